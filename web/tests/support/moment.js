// The state of a heap as a report has it: arenas, rows, cells, tables of blocks.

/**
 * @typedef {import("../../src/data.ts").Moment} Moment
 * @typedef {import("./heap.js").Heap} Heap
 * @typedef {import("./heap.js").Block} Block
 * @typedef {import("./heap.js").Segment} Segment
 */

const TABLE_ROWS = 100;

const keyOf = (/** @type {Segment} */ { arena }) => `${arena.stream}/${arena.pool}/${arena.kind}`;
const liveOf = (/** @type {Segment} */ { blocks }) => blocks.reduce((sum, block) => sum + (block.free ? 0 : block.bytes), 0);
const hex = (/** @type {bigint} */ value) => `0x${value.toString(16)}`;

/**
 * @param {Heap} heap
 * @param {"peak" | "failure" | "end"} name
 * @param {number} event
 * @param {number} timeUs
 * @returns {Moment}
 */
export function momentOf(heap, name, event, timeUs) {
  const arenas = arenasOf(heap);
  const order = new Map(arenas.map((arena, i) => [`${arena.stream}/${arena.pool}/${arena.kind}`, i]));
  const index = (/** @type {Segment} */ segment) => order.get(keyOf(segment)) ?? 0;
  const segments = [...heap.segments].sort((a, b) => index(a) - index(b) || Number(a.address - b.address));
  const live = segments.flatMap(({ blocks }) => blocks.filter(({ free }) => !free));
  const sum = (/** @type {Block[]} */ blocks) => blocks.reduce((total, { bytes }) => total + bytes, 0);
  const byAge = [...live].sort((a, b) => a.bornEvent - b.bornEvent);
  const bySize = [...live].sort((a, b) => b.bytes - a.bytes);
  return {
    name,
    event,
    time_us: timeUs,
    held_bytes: heap.held,
    live_bytes: sum(live),
    pending_bytes: sum(live.filter(({ pending }) => pending)),
    segment_count: segments.length,
    block_count: live.length,
    arenas,
    ...tables(segments, index),
    left_out: { segments: 0, bytes: 0, live_bytes: 0 },
    largest: bySize.slice(0, TABLE_ROWS).map(blockRow),
    oldest: byAge.slice(0, TABLE_ROWS).map(blockRow),
  };
}

/** @param {Heap} heap */
function arenasOf(heap) {
  /** @type {Map<string, import("../../src/data.ts").Arena>} */
  const found = new Map();
  for (const segment of heap.segments) {
    const key = keyOf(segment);
    const arena = found.get(key) ?? { ...segment.arena, segments: 0, bytes: 0, live_bytes: 0 };
    arena.segments++;
    arena.bytes += segment.bytes;
    arena.live_bytes += liveOf(segment);
    found.set(key, arena);
  }
  return [...found.values()].sort((a, b) => b.bytes - a.bytes);
}

/**
 * @param {Segment[]} segments
 * @param {(segment: Segment) => number} index
 */
function tables(segments, index) {
  /** @type {import("../../src/data.ts").Rows} */
  const rows = { arena: [], address: [], bytes: [], live_bytes: [], page_bytes: [], cell_first: [], cell_count: [] };
  /** @type {import("../../src/data.ts").Cells} */
  const cells = {
    offset_bytes: [],
    bytes: [],
    state: [],
    blocks: [],
    live_bytes: [],
    born_event: [],
    born_us: [],
    category: [],
    site: [],
  };
  for (const segment of segments) {
    const live = segment.blocks.filter(({ free }) => !free);
    rows.arena.push(index(segment));
    rows.address.push(hex(segment.address));
    rows.bytes.push(segment.bytes);
    rows.live_bytes.push(liveOf(segment));
    rows.page_bytes.push(segment.arena.expandable ? 2 << 20 : 0);
    rows.cell_first.push(cells.bytes.length);
    rows.cell_count.push(live.length);
    for (const block of live) addCell(cells, block);
  }
  return { rows, cells };
}

/**
 * @param {import("../../src/data.ts").Cells} cells
 * @param {Block} block
 */
function addCell(cells, block) {
  cells.offset_bytes.push(block.offset);
  cells.bytes.push(block.bytes);
  cells.state.push(block.pending ? 1 : 0);
  cells.blocks.push(1);
  cells.live_bytes.push(block.bytes);
  cells.born_event.push(block.bornEvent);
  cells.born_us.push(block.bornUs);
  cells.category.push(block.category);
  cells.site.push(block.site);
}

/**
 * @param {Block} block
 * @returns {import("../../src/data.ts").Block}
 */
function blockRow(block) {
  return {
    address: hex(block.segment.address + BigInt(block.offset)),
    bytes: block.bytes,
    pending: block.pending,
    born_event: block.bornEvent,
    born_us: block.bornUs,
    stream: block.segment.arena.stream,
    pool: block.segment.arena.pool,
    category: block.category,
    site: block.site,
    stack: block.stack,
  };
}
