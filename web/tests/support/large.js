// A report as large as the command may write one (about 20 MB): for how fast the page is.

import { random } from "./program.js";
import { makePanel } from "./report.js";

const MIB = 1 << 20;
const SEGMENTS = 1200;
const CELLS = 90000;
const POINTS = 8000;
const FLAME_NODES = 20000;

/** @param {"peak" | "failure" | "end"} name @param {number} seed @returns {import("../../src/data.ts").Moment} */
function moment(name, seed) {
  const next = random(seed);
  const each = CELLS / SEGMENTS;
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
  for (let row = 0; row < SEGMENTS; row++) {
    let offset = 0;
    let live = 0;
    rows.cell_first.push(cells.bytes.length);
    for (let i = 0; i < each; i++) {
      const size = 512 * Math.ceil(next() ** 4 * 4000);
      cells.offset_bytes.push(offset);
      cells.bytes.push(size);
      cells.state.push(next() < 0.02 ? 1 : 0);
      cells.blocks.push(1);
      cells.live_bytes.push(size);
      cells.born_event.push(Math.floor(next() * 1e6));
      cells.born_us.push(Math.floor(next() * 6e7));
      cells.category.push(Math.floor(next() * 6));
      cells.site.push(Math.floor(next() * 2000));
      offset += size + (next() < 0.3 ? 512 * Math.ceil(next() * 800) : 0);
      live += size;
    }
    rows.arena.push(Math.floor(row / (SEGMENTS / 12)));
    rows.address.push(`0x${(0x7f0000000000n + BigInt(row) * 0x20000000n).toString(16)}`);
    rows.bytes.push(Math.ceil(offset / (2 * MIB)) * 2 * MIB);
    rows.live_bytes.push(live);
    rows.page_bytes.push(2 * MIB);
    rows.cell_count.push(each);
  }
  const sum = (/** @type {number[]} */ values) => values.reduce((total, value) => total + value, 0);
  const arenas = Array.from({ length: 12 }, (_, i) => ({
    stream: i % 4,
    pool: 0,
    kind: /** @type {const} */ ("large"),
    expandable: true,
    segments: 100,
    bytes: sum(rows.bytes.slice(100 * i, 100 * i + 100)),
    live_bytes: sum(rows.live_bytes.slice(100 * i, 100 * i + 100)),
  }));
  return {
    name,
    event: 900000,
    time_us: 54000000,
    held_bytes: sum(rows.bytes),
    live_bytes: sum(rows.live_bytes),
    pending_bytes: 0,
    segment_count: SEGMENTS,
    block_count: CELLS,
    arenas,
    rows,
    cells,
    left_out: { segments: 0, bytes: 0, live_bytes: 0 },
    largest: [],
    oldest: [],
  };
}

/** @param {number} frames @returns {import("../../src/data.ts").Flame} */
function flame(frames) {
  const next = random(5);
  /** @type {import("../../src/data.ts").Flame} */
  const made = {
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
  /** @param {number} parent @param {number} bytes @param {number} depth */
  const grow = (parent, bytes, depth) => {
    const index = made.parent.push(parent) - 1;
    made.frame.push(parent < 0 ? -1 : Math.floor(next() * frames));
    made.label.push(parent < 0 ? "all" : "");
    made.bytes.push(bytes);
    made.blocks.push(1 + Math.floor(next() * 50));
    made.category.push(Math.floor(next() * 6));
    let rest = bytes;
    while (depth < 40 && rest > bytes / 50 && made.parent.length < FLAME_NODES) {
      const part = Math.floor(rest * (depth < 6 ? 0.5 : 0.93));
      if (part < 1024) break;
      grow(index, part, depth + 1);
      rest -= part;
    }
  };
  grow(-1, 40 * 1024 * MIB, 0);
  return made;
}

/** @returns {import("../../src/data.ts").Timeline} */
function timeline(streams = 4) {
  const next = random(9);
  const columns = (/** @type {number} */ count) =>
    Array.from({ length: count }, () => Array.from({ length: POINTS }, () => 512 * Math.floor(next() * 12e6)));
  const live = Array.from({ length: POINTS }, (_, i) => (20 + 12 * Math.sin(i / 90) + next()) * 1024 * MIB);
  return {
    event: Array.from({ length: POINTS }, (_, i) => i * 125),
    time_us: Array.from({ length: POINTS }, (_, i) => i * 7500),
    live_bytes: live,
    pending_bytes: live.map(() => 0),
    held_bytes: live.map((_, i) => (34 + Math.floor(i / 2000)) * 1024 * MIB),
    needed_bytes: live.map((bytes) => bytes * 0.98),
    by_category: columns(6),
    by_stream: columns(streams),
    events_per_stretch: 125,
  };
}

export function makeLargePanel() {
  const panel = makePanel({ file: "large.pickle", streams: 4 });
  const frames = {
    name: /** @type {string[]} */ ([]),
    file: /** @type {string[]} */ ([]),
    line: /** @type {number[]} */ ([]),
  };
  for (let i = 0; i < 5000; i++) {
    frames.name.push(`function_${i % 700}`);
    frames.file.push(`/srv/program/package_${i % 40}/module_${i % 300}.py`);
    frames.line.push(i);
  }
  const sites = Array.from(
    { length: 2000 },
    (_, i) => `module_${i % 300}.py:${i} function_${i % 700}, called from train.py:${i % 90} main`,
  );
  const peak = { event: 900000, time_us: 54000000, live_bytes: 33 * 1024 * MIB, held_bytes: 37 * 1024 * MIB };
  const tables = { largest: panel.moments[0].largest, oldest: panel.moments[0].oldest };
  return {
    ...panel,
    peak_live_bytes: peak.live_bytes,
    peak_held_bytes: peak.held_bytes,
    cap_bytes: null,
    marks: { peak, failure: null, steps: [] },
    sites,
    frames,
    timeline: timeline(),
    moments: [
      { ...moment("peak", 3), ...tables },
      { ...moment("end", 4), ...tables },
    ],
    flame: flame(5000),
  };
}
