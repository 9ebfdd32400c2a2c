// A made-up training program: weights, then steps of forward, backward and optimiser, with a second stream that copies.  The same seed
// gives the same history.

import { Heap } from "./heap.js";

const MIB = 1 << 20;
const WEIGHTS = 0;
const GRADIENTS = 1;
const ACTIVATIONS = 2;
const STATES = 3;
const TEMPORARY = 4;

/**
 * @typedef {import("./heap.js").Block} Block
 * @typedef {{ event: number, timeUs: number, live: number, held: number, needed: number, pending: number, byCategory: number[],
 *   byStream: number[] }} Point
 */

/** @param {number} seed */
export function random(seed) {
  let state = seed >>> 0 || 1;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

export class Program {
  /** @type {Point[]} */
  points = [];
  /** @type {{ index: number, first: number, end: number }[]} */
  steps = [];
  /** @type {Block[]} */
  blocks = [];
  sites = ["unknown"];
  /** @type {import("../../src/data.ts").Frames} */
  frames = { name: [], file: [], line: [] };
  /** @type {(() => void) | null} */
  onPeak = null;
  peak = 0;
  #live = 0;
  #needed = 0;
  #pending = 0;
  #byCategory = [0, 0, 0, 0, 0, 0];
  /** @type {number[]} */
  #byStream;
  #event = 0;
  #timeUs = 0;
  /** @type {Map<string, number>} */
  #frameIndex = new Map();

  /** @param {{ seed?: number, layers?: number, steps?: number, scale?: number, streams?: number, expandable?: boolean }} options */
  constructor({ seed = 1, layers = 24, steps = 4, scale = 1, streams = 2, expandable = false } = {}) {
    this.options = { layers, steps, scale, streams };
    this.random = random(seed);
    this.heap = new Heap({ expandable });
    this.#byStream = new Array(streams).fill(0);
  }

  get now() {
    return { event: Math.max(0, this.#event - 1), timeUs: this.#timeUs };
  }

  /** @param {string} name @param {string} file @param {number} line */
  frame(name, file, line) {
    const key = `${file}:${line}:${name}`;
    const known = this.#frameIndex.get(key);
    if (known !== undefined) return known;
    const index = this.frames.name.push(name) - 1;
    this.frames.file.push(file);
    this.frames.line.push(line);
    this.#frameIndex.set(key, index);
    return index;
  }

  /** @param {number[]} stack innermost first */
  #site(stack) {
    const inner = stack[0];
    const file = this.frames.file[inner].split("/").at(-1);
    const name = `${file}:${this.frames.line[inner]} ${this.frames.name[inner]}`;
    const known = this.sites.indexOf(name);
    return known >= 0 ? known : this.sites.push(name) - 1;
  }

  /**
   * @param {number} mib
   * @param {number} category
   * @param {number[]} stack
   * @param {number} stream
   */
  allocate(mib, category, stack, stream = 0) {
    const wanted = Math.max(1, Math.round(mib * this.options.scale * MIB * (0.96 + 0.08 * this.random())));
    const block = this.heap.allocate(wanted, stream);
    Object.assign(block, {
      category,
      stack,
      site: this.#site(stack),
      bornEvent: this.#event,
      bornUs: this.#timeUs,
      pending: false,
    });
    this.#account(block, 1);
    return block;
  }

  /** @param {Block} block */
  free(block) {
    this.#account(block, -1);
    this.heap.free(block);
  }

  /** @param {Block} block @param {1 | -1} sign */
  #account(block, sign) {
    const { bytes, wanted, category, segment } = block;
    this.#live += sign * bytes;
    this.#needed += sign * wanted;
    this.#byCategory[category] += sign * bytes;
    this.#byStream[segment.arena.stream] += sign * bytes;
    if (sign < 0 && block.pending) this.#pending -= bytes;
    this.points.push({
      event: this.#event++,
      timeUs: this.#timeUs,
      live: this.#live,
      held: this.heap.held,
      needed: this.#needed,
      pending: this.#pending,
      byCategory: [...this.#byCategory],
      byStream: [...this.#byStream],
    });
    this.#timeUs += Math.round(20 + 400 * this.random());
    if (this.#live > this.peak) this.peak = this.#live;
  }

  run() {
    const { layers, steps } = this.options;
    const main = this.frame("main", "/srv/train/train.py", 88);
    const step = this.frame("training_step", "/srv/train/train.py", 41);
    const build = this.frame("__init__", "/srv/train/model.py", 31);
    for (let layer = 0; layer < layers; layer++) {
      for (const line of [44, 45, 46, 52])
        this.allocate(line === 52 ? 6 : 14, WEIGHTS, [this.frame("Linear", "/srv/train/model.py", line), build, main]);
    }
    for (let i = 0; i < steps; i++) {
      const first = this.#event;
      this.#step(i, [step, main]);
      this.steps.push({ index: i, first, end: this.#event });
    }
    return this;
  }

  /** @param {number} index @param {number[]} stack */
  #step(index, stack) {
    const { layers, streams } = this.options;
    const length = 0.6 + 0.5 * this.random() + (index === this.options.steps - 1 ? 0.35 : 0);
    const copy = this.frame("prefetch", "/srv/train/data.py", 19);
    const batch = this.allocate(64 * length, TEMPORARY, [copy, ...stack], streams > 1 ? 1 + (index % (streams - 1)) : 0);
    const saved = this.#forward(layers, length, stack);
    const loss = this.allocate(380 * length, TEMPORARY, [this.frame("cross_entropy", "/srv/train/loss.py", 12), ...stack]);
    if (index === this.options.steps - 1) this.onPeak?.();
    this.free(loss);
    const gradients = this.#backward(saved, stack);
    if (index === 0) this.#states(layers, stack);
    for (const gradient of gradients) this.free(gradient);
    this.free(batch);
  }

  /** @param {number} layers @param {number} length @param {number[]} stack */
  #forward(layers, length, stack) {
    const forward = this.frame("forward", "/srv/train/model.py", 120);
    /** @type {Block[]} */
    const saved = [];
    for (let layer = 0; layer < layers; layer++) {
      const block = [this.frame("block", "/srv/train/model.py", 96), forward, ...stack];
      const attention = [this.frame("attention", "/srv/train/attention.py", 64), ...block];
      saved.push(this.allocate(22 * length, ACTIVATIONS, attention));
      const scores = this.allocate(31 * length, TEMPORARY, [this.frame("softmax", "/srv/train/attention.py", 71), ...attention]);
      saved.push(this.allocate(9 * length, ACTIVATIONS, [this.frame("layer_norm", "/srv/train/norm.py", 8), ...block]));
      saved.push(this.allocate(0.4, ACTIVATIONS, [this.frame("dropout", "/srv/train/model.py", 77), ...block]));
      saved.push(this.allocate(38 * length, ACTIVATIONS, [this.frame("mlp", "/srv/train/mlp.py", 27), ...block]));
      this.free(scores);
    }
    return saved;
  }

  /** @param {Block[]} saved @param {number[]} stack */
  #backward(saved, stack) {
    const backward = this.frame("backward", "/srv/train/train.py", 52);
    /** @type {Block[]} */
    const gradients = [];
    while (saved.length) {
      const block = /** @type {Block} */ (saved.pop());
      const flow = this.allocate(block.wanted / MIB / this.options.scale, TEMPORARY, [
        this.frame("grad_input", "/srv/train/mlp.py", 40),
        backward,
        ...stack,
      ]);
      gradients.push(this.allocate(12, GRADIENTS, [this.frame("grad_weight", "/srv/train/mlp.py", 44), backward, ...stack]));
      this.free(flow);
      this.free(block);
    }
    return gradients;
  }

  /** @param {number} layers @param {number[]} stack */
  #states(layers, stack) {
    const adam = this.frame("adam", "/srv/train/optimiser.py", 33);
    for (let layer = 0; layer < 2 * layers; layer++) this.allocate(24, STATES, [adam, ...stack]);
  }
}
