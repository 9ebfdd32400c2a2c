// Reports for the tests: what the command would write of a made-up program.

import { flameOf } from "./flame.js";
import { momentOf } from "./moment.js";
import { Program } from "./program.js";

/**
 * @typedef {import("../../src/data.ts").ReportData} ReportData
 * @typedef {import("../../src/data.ts").Panel} Panel
 * @typedef {import("./program.js").Point} Point
 */

const CATEGORIES = /** @type {const} */ (["weights", "gradients", "activations", "optimiser_states", "temporary_buffers", "unknown"]);

/** @param {Point[]} points @param {number} most @param {number} keep the event that must stay */
function thinned(points, most, keep) {
  const stretch = Math.ceil(points.length / most);
  return points.filter(({ event }, i) => i % stretch === 0 || event === keep || i === points.length - 1);
}

/** @param {Point[]} points @param {number} streams @param {number} stretch @returns {import("../../src/data.ts").Timeline} */
function timelineOf(points, streams, stretch) {
  return {
    event: points.map(({ event }) => event),
    time_us: points.map(({ timeUs }) => timeUs),
    live_bytes: points.map(({ live }) => live),
    pending_bytes: points.map(({ pending }) => pending),
    held_bytes: points.map(({ held }) => held),
    needed_bytes: points.map(({ needed }) => needed),
    by_category: CATEGORIES.map((_, i) => points.map(({ byCategory }) => byCategory[i])),
    by_stream: Array.from({ length: streams }, (_, i) => points.map(({ byStream }) => byStream[i])),
    events_per_stretch: stretch,
  };
}

/** @param {Point} peak @param {number} heldAtMost @returns {import("../../src/data.ts").WhatIf} */
function whatIfOf(peak, heldAtMost) {
  const caps = [1, 1.05, 1.2, null].map((factor) => ({
    bytes: factor && Math.round(peak.live * factor),
    factor,
    is_given: factor === 1.05,
  }));
  const policy = (
    /** @type {"native" | "expandable" | "gapless" | "ideal"} */ name,
    /** @type {number} */ held,
    /** @type {number} */ calls,
  ) => ({
    name,
    recorded: name === "native",
    results: caps.map(({ bytes }) => {
      const fits = bytes === null || held <= bytes;
      const failed = {
        event: peak.event,
        request_bytes: 380 << 20,
        live_bytes: peak.live,
        held_bytes: bytes ?? 0,
        reason: "no idle block fits",
      };
      return {
        fits,
        held_bytes: fits ? held : null,
        driver_calls: calls,
        driver_us: calls * 310,
        background_us: 0,
        stalls: fits ? 0 : 3,
        stall_us: fits ? 0 : 812,
        failed: fits ? null : failed,
      };
    }),
  });
  const policies = [
    policy("native", heldAtMost, 131),
    policy("expandable", Math.round(peak.live * 1.09), 812),
    policy("gapless", Math.round(peak.live * 1.012), 240),
    policy("ideal", peak.live, 0),
  ];
  return { reason: "", peak_live_bytes: peak.live, caps, policies, out_of_time: false };
}

/** @param {Point} peak @param {number} held @param {boolean} refused @returns {import("../../src/data.ts").Explain} */
function explainOf(peak, held, refused) {
  const idle = held - peak.live;
  const categories = /** @type {import("../../src/data.ts").Explain["categories"]} */ (
    Object.fromEntries(CATEGORIES.map((name, i) => [name, { bytes: peak.byCategory[i], peak_bytes: peak.byCategory[i] }]))
  );
  return {
    verdict: refused ? "fragmented" : "fits",
    verdict_text: refused
      ? "Fragmentation: 1.69 GiB were asked and more than that was idle, but the largest idle piece that could serve it was smaller; the rest lies between live blocks."
      : "Nothing was refused: memory for a large request is idle or can be returned at once.",
    held_bytes: held,
    live_bytes: peak.live,
    pending_bytes: peak.pending,
    idle_bytes: idle,
    idle_returnable_bytes: Math.round(idle * 0.2),
    idle_stuck_bytes: idle - Math.round(idle * 0.2),
    largest_idle_piece_bytes: Math.round(idle * 0.4),
    largest_servable_bytes: Math.round(idle * 0.4),
    peak_live_bytes: peak.live,
    card_bytes: 80 * 2 ** 30,
    limit_bytes: null,
    bound_bytes: held,
    categories,
    call_sites: [],
    steps: 4,
    completeness: {
      has_history: true,
      has_segments: true,
      has_stacks: true,
      wrapped: false,
      torn: false,
      lost_events: 0,
      overwritten_events: 0,
      contradictions: 0,
      first_contradiction: null,
    },
    questions: [
      { number: 1, question: "Why was it refused?", answer: "The largest idle piece was too small." },
      { number: 2, question: "In pieces, or full?", answer: "In pieces." },
      { number: 3, question: "Which options are in force?", answer: "None was set." },
    ],
    advice: [
      {
        kind: "option",
        change: "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        text: "With it the program goes through.",
        checked: true,
        works: true,
        peak_reserved_bytes: held,
      },
      {
        kind: "gapless",
        change: "gapless as the allocator (backend:gapless)",
        text: "The unchanged program goes through.",
        checked: true,
        works: true,
        peak_reserved_bytes: held,
      },
      {
        kind: "batch",
        change: "a batch of 90 % of the size",
        text: "It does not go through.",
        checked: true,
        works: false,
        peak_reserved_bytes: null,
      },
      {
        kind: "card",
        change: "a larger card",
        text: "It was not tried.",
        checked: false,
        works: null,
        peak_reserved_bytes: null,
      },
    ],
  };
}

/**
 * @param {ConstructorParameters<typeof Program>[0] & { file?: string, points?: number, refused?: boolean }} options
 * @returns {Panel}
 */
export function makePanel(options = {}) {
  const { file = "train.pickle", points: most = 3000, refused = true, streams = 2 } = options;
  const program = new Program(options);
  /** @type {import("../../src/data.ts").Moment | null} */
  let peakMoment = null;
  let flame = flameOf(program.heap);
  program.onPeak = () => {
    peakMoment = momentOf(program.heap, "peak", program.now.event, program.now.timeUs);
    flame = flameOf(program.heap);
  };
  program.run();
  const last = program.points[program.points.length - 1];
  const at = /** @type {import("../../src/data.ts").Moment} */ (/** @type {unknown} */ (peakMoment));
  const peak = program.points[at.event];
  const mark = { event: peak.event, time_us: peak.timeUs, live_bytes: peak.live, held_bytes: peak.held };
  const failure = program.points[Math.min(program.points.length - 1, peak.event + 3)];
  const seen = thinned(program.points, most, peak.event);
  return {
    file,
    device: 0,
    event_count: program.points.length,
    duration_us: last.timeUs,
    began_us: null,
    allocator: options.expandable ? "expandable" : "native",
    conf: options.expandable ? "expandable_segments:True" : "",
    head: `Device 0: ${program.points.length} events, ${program.heap.segments.length} segments, ${program.steps.length} steps.`,
    explain: explainOf(peak, last.held, refused),
    peak_live_bytes: program.peak,
    peak_needed_bytes: peak.needed,
    peak_held_bytes: last.held,
    cap_bytes: Math.round(last.held * 1.02),
    marks: {
      peak: mark,
      failure: refused
        ? {
            event: failure.event,
            time_us: failure.timeUs,
            live_bytes: failure.live,
            held_bytes: failure.held,
            request_bytes: 1811840000,
            count: 2,
          }
        : null,
      steps: program.steps.map((step) => ({ ...step, peak_event: step.first, peak_bytes: 0 })),
    },
    streams: Array.from({ length: streams }, (_, i) => ({ id: `0x${i}`, name: i ? `stream ${i}` : "default stream" })),
    pools: [{ id: [0, 0], name: "default pool" }],
    sites: program.sites,
    frames: program.frames,
    timeline: timelineOf(seen, streams, Math.ceil(program.points.length / most)),
    moments: [
      at,
      ...(refused ? [{ ...at, name: /** @type {const} */ ("failure") }] : []),
      momentOf(program.heap, "end", last.event, last.timeUs),
    ],
    flame,
    what_if: whatIfOf(peak, last.held),
  };
}

/** @param {Panel[]} panels @param {import("../../src/data.ts").Diff | null} diff @returns {ReportData} */
export const makeReport = (panels, diff = null) => ({
  format: "gapless-report",
  version: 1,
  tool: "gapless 0.0.0",
  panels,
  diff,
  job: null,
});

/** @param {Panel} a @param {Panel} b @returns {import("../../src/data.ts").Diff} */
export function makeDiff(a, b) {
  const side = (/** @type {Panel} */ { file, event_count, conf }) => ({
    file,
    device: 0,
    step: null,
    steps: 4,
    events: event_count,
    conf,
    has_history: true,
    has_stacks: true,
    wrapped: false,
    torn: false,
    contradictions: 0,
  });
  const figure = (/** @type {number} */ x, /** @type {number} */ y) => ({
    a: x,
    b: y,
    change: y - x,
    differs: x !== y,
  });
  const pair = (
    /** @type {string | null} */ a_name,
    /** @type {string | null} */ b_name,
    /** @type {number} */ x,
    /** @type {number} */ y,
  ) => ({
    a_name,
    b_name,
    a_bytes: x,
    b_bytes: y,
    a_count: 4,
    b_count: 5,
    change_bytes: y - x,
    differs: x !== y,
  });
  return {
    panel_a: 0,
    panel_b: 1,
    same: false,
    tolerance: 0.01,
    summary: "At its peak B has less live than A. Most of it are activations.",
    a: side(a),
    b: side(b),
    figures: {
      peak_live_bytes: figure(a.peak_live_bytes, b.peak_live_bytes),
      peak_held_bytes: figure(a.peak_held_bytes ?? 0, b.peak_held_bytes ?? 0),
      waste_percent: figure(9.25, 4.5),
      allocations: figure(a.event_count, b.event_count),
      refusals: figure(2, 2),
    },
    call_sites: [
      pair("mlp.py:27 forward", "mlp.py:27 forward", 4e8, 9e8),
      pair("old.py:1 gone", null, 3e8, 0),
      pair(null, "new.py:9 came", 0, 2e8),
    ],
    categories: CATEGORIES.map((name, i) =>
      pair(name, name, a.explain.categories[name].peak_bytes, b.explain.categories[name].peak_bytes + i),
    ),
    streams: [pair("default stream", "default stream", 1e9, 1e9)],
    sizes: [],
    driver_calls: [],
    left_out: { call_sites: 12, categories: 0, streams: 0, sizes: 0, driver_calls: 0 },
  };
}
