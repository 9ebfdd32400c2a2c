// The flame graph of a heap: its live blocks by their stacks.

/**
 * @typedef {{ frame: number, bytes: number, blocks: number, byCategory: number[], children: Map<number, Node> }} Node
 * @typedef {import("./heap.js").Heap} Heap
 */

/** @returns {Node} */
const node = (/** @type {number} */ frame) => ({
  frame,
  bytes: 0,
  blocks: 0,
  byCategory: new Array(6).fill(0),
  children: new Map(),
});

/**
 * @param {Heap} heap
 * @returns {import("../../src/data.ts").Flame}
 */
export function flameOf(heap) {
  const root = node(-1);
  for (const { blocks } of heap.segments) for (const block of blocks) if (!block.free) addBlock(root, block);
  /** @type {import("../../src/data.ts").Flame} */
  const flame = {
    moment: "peak",
    by: "call_site",
    parent: [],
    frame: [],
    label: [],
    bytes: [],
    blocks: [],
    category: [],
    merged: 0,
  };
  write(flame, root, -1);
  return flame;
}

/**
 * @param {Node} root
 * @param {import("./heap.js").Block} block
 */
function addBlock(root, block) {
  let at = root;
  for (let i = block.stack.length; i >= 0; i--) {
    if (i < block.stack.length) {
      const frame = block.stack[i];
      const child = at.children.get(frame) ?? node(frame);
      at.children.set(frame, child);
      at = child;
    }
    at.bytes += block.bytes;
    at.blocks++;
    at.byCategory[block.category] += block.bytes;
  }
}

/**
 * @param {import("../../src/data.ts").Flame} flame
 * @param {Node} from
 * @param {number} parent
 */
function write(flame, from, parent) {
  const index = flame.parent.push(parent) - 1;
  flame.frame.push(from.frame);
  flame.label.push(from.frame < 0 ? "all" : "");
  flame.bytes.push(from.bytes);
  flame.blocks.push(from.blocks);
  flame.category.push(from.byCategory.indexOf(Math.max(...from.byCategory)));
  for (const child of [...from.children.values()].sort((a, b) => b.bytes - a.bytes)) write(flame, child, index);
}
