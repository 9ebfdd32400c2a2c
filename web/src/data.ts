/**
 * What `gapless report` writes into the page, as JSON in `<script type="application/json" id="gapless-data">`.
 *
 * Units: names that end in `bytes` are bytes, `_us` microseconds since the first event of the file. An *event* is an index into the device's
 * events, counted from 0, and a state "at" an event is the state after it. `null` says that the file does not tell.
 *
 * Tables are stored by column: equal indices of a table's arrays belong together. Everything is reduced before it gets here; where something
 * had to be left out, a field says how much (`left_out`, merged cells, "other" nodes), so that sums stay whole.
 *
 * In the file every `<` of the JSON is written as \u003c, which JSON.parse gives back.
 */

/** Raised when a field changes its meaning or goes; fields that are added do not raise it. */
export const FORMAT_VERSION = 1;

export interface ReportData {
  format: "gapless-report";
  version: number;
  /** Of the command: "gapless 0.1.0". */
  tool: string;
  /**
   * At least one. A panel is one device of one file; the first is the one to open with.
   */
  panels: Panel[];
  /** Where exactly two files (or two devices) were given: what changed from the first to the second. */
  diff: Diff | null;
  /** Where there are several panels: which of them limits the job, and why. */
  job: Job | null;
}

export interface Job {
  /** Index into panels. */
  limits: number;
  /** A paragraph. */
  text: string;
}

export interface Panel {
  /** The path as it was given. */
  file: string;
  device: number;
  /** Of the device. A snapshot without a history has none, or a mark of its own. */
  event_count: number;
  /** Length of the history; 0 where there are no times. */
  duration_us: number;
  /** Of the first event, since 1970; null: unknown. */
  began_us: number | null;
  /** The allocator that was recorded. */
  allocator: "native" | "expandable" | "gapless";
  /** PYTORCH_CUDA_ALLOC_CONF of the program, "" for none. */
  conf: string;
  /** One sentence: events, length, segments, steps. */
  head: string;
  /** What `gapless explain --json` says: the words of the page's top. */
  explain: Explain;
  /** P: most live bytes at a time. */
  peak_live_bytes: number;
  /** Most bytes at a time that the program had asked for and not let go of: no rounding, no waiting for streams. */
  peak_needed_bytes: number;
  /** null: the file does not tell what was taken from the driver. */
  peak_held_bytes: number | null;
  /** What may be held, if it is known; the bound of the what-if panel. */
  cap_bytes: number | null;
  marks: Marks;
  /** The streams that blocks belong to, most bytes first; index = `stream` elsewhere. The last one may be "other". */
  streams: Stream[];
  /** Index = `pool` elsewhere; [0] is the default pool. */
  pools: Pool[];
  /** Names of call sites; index = `site` elsewhere. [0] stands for blocks of which none is known. */
  sites: string[];
  /** Lines of programs; index = `frame` elsewhere. */
  frames: Frames;
  /** null: there is no history. */
  timeline: Timeline | null;
  /** The address map at two or three moments: "peak" and "failure" where they are, "end" always. */
  moments: Moment[];
  /** At the peak; of a snapshot without a history at the end. */
  flame: Flame;
  what_if: WhatIf;
}

/** The order of Timeline.by_category and the meaning of `category` elsewhere. */
export const CATEGORIES = ["weights", "gradients", "activations", "optimiser_states", "temporary_buffers", "unknown"] as const;
export type Category = (typeof CATEGORIES)[number];

export interface Stream {
  /** As recorded, in hexadecimal ("0x0"); null for "other", which stands for all streams that are not listed. */
  id: string | null;
  /** "default stream", "stream 0x5581c0de", "5 other streams". */
  name: string;
}

export interface Pool {
  /** PyTorch's two numbers. */
  id: [number, number];
  name: string;
}

/** Columns. */
export interface Frames {
  /** The function. */
  name: string[];
  /** The path as it was recorded. */
  file: string[];
  line: number[];
}

export interface Mark {
  event: number;
  time_us: number;
  live_bytes: number;
  held_bytes: number | null;
}

export interface Failure extends Mark {
  request_bytes: number;
  /** Refusals in the file; this is the last one. */
  count: number;
}

export interface Marks {
  /** Of live bytes; null without events. */
  peak: Mark | null;
  /** The last refused request. */
  failure: Failure | null;
  /** Of the program, in order; at most 1,000, beyond that evenly thinned. Empty where steps cannot be told. */
  steps: Step[];
}

export interface Step {
  /** Its number in the history, from 0. */
  index: number;
  /** Events [first, end). */
  first: number;
  end: number;
  peak_event: number;
  peak_bytes: number;
}

/**
 * Columns: states after some events. Of every stretch of events those with the least and the most live and held bytes are there, so that
 * the envelope is that of the whole history; the peak and the failure are always there. In order of events. Values between points are not
 * to be interpolated: draw steps.
 */
export interface Timeline {
  event: number[];
  time_us: number[];
  /** 512-byte-rounded, from alloc to free_completed: PyTorch's "active". */
  live_bytes: number[];
  /** Of the live: let go by the program, but still in use by another stream. */
  pending_bytes: number[];
  /** Taken from the driver; null: the file does not tell. */
  held_bytes: number[] | null;
  /** The ideal: what the program asked for and has not let go of, unrounded: the bytes needed with no waste at all. */
  needed_bytes: number[];
  /** One array for each of CATEGORIES; they sum to live_bytes. */
  by_category: number[][];
  /** One array for each of Panel.streams; they sum to live_bytes. */
  by_stream: number[][];
  /** Events between two points of the finest stretch: 1 means that nothing was left out. */
  events_per_stretch: number;
}

export interface Moment {
  name: "peak" | "failure" | "end";
  event: number;
  time_us: number;
  held_bytes: number;
  /**
   * Of all blocks, with pending. A block that is there at the end is as large as the allocator made it, which may be more than the
   * timeline counts for it.
   */
  live_bytes: number;
  pending_bytes: number;
  segment_count: number;
  block_count: number;
  /** What holds memory, summed over all segments, also those that are not among rows. Most held first. */
  arenas: Arena[];
  /** Segments, by arena and address; the largest ones where there are too many. */
  rows: Rows;
  /** Blocks in rows, by row and address. What no cell covers is idle. */
  cells: Cells;
  /** Segments that are not among rows. */
  left_out: { segments: number; bytes: number; live_bytes: number };
  largest: Block[];
  /** Oldest first. */
  oldest: Block[];
}

/** Segments of one stream, pool and kind: what can serve the same requests. */
export interface Arena {
  stream: number;
  pool: number;
  /** small: blocks up to 1 MiB; paged: the strategy gapless, any size. */
  kind: "small" | "large" | "paged";
  expandable: boolean;
  segments: number;
  bytes: number;
  live_bytes: number;
}

/** Columns. */
export interface Rows {
  arena: number[];
  /** Hexadecimal, as addresses do not fit a number: "0x7f12c0000000". */
  address: string[];
  bytes: number[];
  live_bytes: number[];
  /** Of the chunks behind, which begin at the row's address; 0: the segment is one piece. */
  page_bytes: number[];
  /** Cells [cell_first[i], cell_first[i] + cell_count[i]) are the row's. */
  cell_first: number[];
  cell_count: number[];
}

/** Columns. */
export interface Cells {
  /** From the beginning of the row. */
  offset_bytes: number[];
  /** That the cell covers. */
  bytes: number[];
  /** 0 live, 1 pending, 2 several blocks with the gaps between them, merged for want of room. */
  state: number[];
  /** 1, or the blocks that were merged. */
  blocks: number[];
  /** Of the blocks in it; less than `bytes` where gaps were merged. */
  live_bytes: number[];
  /** The event that allocated it; -1 (and so born_us): before the first one, or merged. Age = Moment.time_us - born_us. */
  born_event: number[];
  born_us: number[];
  /** Index into CATEGORIES; of merged cells that of most bytes. */
  category: number[];
  /** Index into Panel.sites; of merged cells that of the largest block. */
  site: number[];
}

export interface Block {
  address: string;
  bytes: number;
  pending: boolean;
  /** -1: it was there before the first event; its age is not known then. */
  born_event: number;
  born_us: number;
  /** Index into Panel.streams. */
  stream: number;
  pool: number;
  category: number;
  site: number;
  /** Indices into Panel.frames, innermost first; at most 40. */
  stack: number[];
}

/**
 * A tree, stored by column in preorder (parents before children, children by bytes, most first). Node 0 is the root, its parent -1.
 * `bytes` are those of the node with all below it: a node's width; bytes of a node less those of its children ended there.
 */
export interface Flame {
  moment: "peak" | "end";
  /** call_site: nodes are frames, outermost first. category: the file has no stacks; below the root categories, below them sizes of blocks. */
  by: "call_site" | "category";
  parent: number[];
  /** Index into Panel.frames; -1: `label` says what it is. */
  frame: number[];
  /** "" where frame says it; else "all", "other (312)", "no call site recorded", "activations", "24 MiB". */
  label: string[];
  bytes: number[];
  blocks: number[];
  /** Index into CATEGORIES, that of most of its bytes. */
  category: number[];
  /** Nodes that "other" nodes stand for: too narrow, or too deep. */
  merged: number;
}

export interface WhatIf {
  /** Why nothing was replayed, in words: it was not asked for, there is no history, it contradicts itself. "" where it was. */
  reason: string;
  /** P of what was replayed: with the refused request, and with what was there before the history. Factors are of this. */
  peak_live_bytes: number;
  /** Columns of the table: what may be held; null: no limit. In increasing order, null last. */
  caps: Cap[];
  /** native, expandable, gapless, ideal; the recorded one is marked. */
  policies: WhatIfPolicy[];
  /** true: the time for replays ran out, and some results are null. */
  out_of_time: boolean;
}

export interface Cap {
  bytes: number | null;
  /** Of P; null for no limit. */
  factor: number | null;
  /** The cap that was asked for, or that the file says or implies. */
  is_given: boolean;
}

export interface WhatIfPolicy {
  name: "native" | "expandable" | "gapless" | "ideal";
  recorded: boolean;
  /** One for each of WhatIf.caps; null: not tried. */
  results: (WhatIfResult | null)[];
}

export interface WhatIfResult {
  /** Every request was served. */
  fits: boolean;
  /** Most held (the floor of it for ideal); null for what did not fit. */
  held_bytes: number | null;
  /** What it costs: calls of the driver and time in them, of the program (background excluded). */
  driver_calls: number;
  driver_us: number;
  background_us: number;
  /** Waits of the host inside an allocation. */
  stalls: number;
  stall_us: number;
  /** The first refusal; null where it fits. */
  failed: { event: number; request_bytes: number; live_bytes: number; held_bytes: number; reason: string } | null;
}

/** As `gapless explain --json`; docs/explain.md. */
export interface Explain {
  verdict: string;
  /** Two or three sentences. */
  verdict_text: string;
  held_bytes: number;
  live_bytes: number;
  pending_bytes: number;
  idle_bytes: number;
  idle_returnable_bytes: number;
  idle_stuck_bytes: number;
  largest_idle_piece_bytes: number;
  largest_servable_bytes: number;
  peak_live_bytes: number;
  card_bytes: number | null;
  limit_bytes: number | null;
  bound_bytes: number | null;
  categories: Record<Category, { bytes: number; peak_bytes: number }>;
  call_sites: { site: string | null; category: Category; bytes: number; blocks: number; scaling: string | null }[];
  steps: number;
  completeness: {
    has_history: boolean;
    has_segments: boolean;
    has_stacks: boolean;
    wrapped: boolean;
    torn: boolean;
    lost_events: number;
    overwritten_events: number;
    contradictions: number;
    first_contradiction: string | null;
  };
  questions: { number: number; question: string; answer: string }[];
  /** null: none was looked for. */
  advice:
    | {
        kind: string;
        change: string;
        text: string;
        checked: boolean;
        works: boolean | null;
        peak_reserved_bytes: number | null;
      }[]
    | null;
}

/** As `gapless diff --json`; docs/diff.md. Changes are those of b less those of a. */
export interface Diff {
  /** Indices into panels. */
  panel_a: number;
  panel_b: number;
  same: boolean;
  /** A part of 1. */
  tolerance: number;
  /** One to three sentences. */
  summary: string;
  a: DiffSide;
  b: DiffSide;
  /** By name: peak_live_bytes, peak_held_bytes, ...; null: a file does not tell. */
  figures: Record<string, { a: number | null; b: number | null; change: number | null; differs: boolean | null }>;
  /** At the peaks; at most --top rows each, the largest changes first. */
  call_sites: DiffPair[];
  categories: DiffPair[];
  streams: DiffPair[];
  sizes: DiffPair[];
  driver_calls: DiffPair[];
  /** Pairs that were left out of each list. */
  left_out: { call_sites: number; categories: number; streams: number; sizes: number; driver_calls: number };
}

export interface DiffSide {
  file: string | null;
  device: number;
  step: number | null;
  steps: number;
  events: number;
  conf: string | null;
  has_history: boolean;
  has_stacks: boolean;
  wrapped: boolean;
  torn: boolean;
  contradictions: number;
}

export interface DiffPair {
  a_name: string | null;
  b_name: string | null;
  a_bytes: number;
  b_bytes: number;
  a_count: number;
  b_count: number;
  change_bytes: number;
  differs: boolean;
}
