// A small caching allocator, which makes histories for the tests: segments, best fit, splitting; what a report shows of one.

const MIB = 1 << 20;
const ROUND = 512;

/**
 * @typedef {{ stream: number, pool: number, kind: "small" | "large", expandable: boolean }} ArenaKey
 * @typedef {{ arena: ArenaKey, address: bigint, bytes: number, blocks: Block[] }} Segment
 * @typedef {{ segment: Segment, offset: number, bytes: number, wanted: number, free: boolean, pending: boolean,
 *   bornEvent: number, bornUs: number, category: number, site: number, stack: number[] }} Block
 */

export class Heap {
  /** @type {Segment[]} */
  segments = [];
  held = 0;
  #next = 0x7f1200000000n;

  /** @param {{ expandable?: boolean, segmentBytes?: number }} options */
  constructor({ expandable = false, segmentBytes = 20 * MIB } = {}) {
    this.expandable = expandable;
    this.segmentBytes = segmentBytes;
  }

  /**
   * @param {number} wanted
   * @param {number} stream
   * @returns {Block}
   */
  allocate(wanted, stream) {
    const bytes = Math.ceil(wanted / ROUND) * ROUND;
    const kind = bytes <= MIB ? "small" : "large";
    const found = this.#fit(bytes, stream, kind) ?? this.#grow(bytes, stream, kind);
    const rest = found.bytes - bytes;
    if (rest >= ROUND) {
      const { blocks } = found.segment;
      blocks.splice(blocks.indexOf(found) + 1, 0, idle(found.segment, found.offset + bytes, rest));
      found.bytes = bytes;
    }
    found.free = false;
    found.wanted = wanted;
    return found;
  }

  /** @param {Block} block */
  free(block) {
    const { blocks } = block.segment;
    let i = blocks.indexOf(block);
    block.free = true;
    if (blocks[i + 1]?.free) {
      block.bytes += blocks[i + 1].bytes;
      blocks.splice(i + 1, 1);
    }
    if (blocks[i - 1]?.free) {
      blocks[i - 1].bytes += block.bytes;
      blocks.splice(i--, 1);
    }
  }

  #fit(/** @type {number} */ bytes, /** @type {number} */ stream, /** @type {string} */ kind) {
    /** @type {Block | null} */
    let best = null;
    for (const { arena, blocks } of this.segments) {
      if (arena.stream !== stream || arena.kind !== kind) continue;
      for (const block of blocks) if (block.free && block.bytes >= bytes && (!best || block.bytes < best.bytes)) best = block;
    }
    return best;
  }

  #grow(/** @type {number} */ bytes, /** @type {number} */ stream, /** @type {"small" | "large"} */ kind) {
    const least = kind === "small" ? 2 * MIB : this.segmentBytes;
    const size = Math.ceil(Math.max(bytes, least) / (2 * MIB)) * 2 * MIB;
    /** @type {Segment} */
    const segment = {
      arena: { stream, pool: 0, kind, expandable: this.expandable },
      address: this.#next,
      bytes: size,
      blocks: [],
    };
    this.#next += BigInt(size) + 0x4000000n;
    segment.blocks.push(idle(segment, 0, size));
    this.segments.push(segment);
    this.held += size;
    return segment.blocks[0];
  }
}

/**
 * @param {Segment} segment
 * @param {number} offset
 * @param {number} bytes
 * @returns {Block}
 */
function idle(segment, offset, bytes) {
  return {
    segment,
    offset,
    bytes,
    wanted: 0,
    free: true,
    pending: false,
    bornEvent: -1,
    bornUs: 0,
    category: 5,
    site: 0,
    stack: [],
  };
}
