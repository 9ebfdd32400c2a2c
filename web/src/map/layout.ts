// Where segments stand in the address map.  All are drawn to one scale: a line is so many bytes wide, small segments share a line, and
// one that is longer than a line goes on in the next.  Each arena begins a line of its own, under a heading.

import type { Moment } from "../data";

const LINES = 26; // that a map has, about
const LINE_LEAST = 1 << 23;
export const HEADING_HEIGHT = 26;
export const LINE_HEIGHT = 19;

/** A piece of a segment that stands in one line. */
export interface Strip {
  row: number;
  /** Bytes from the beginning of the segment. */
  from: number;
  bytes: number;
  /** Bytes from the beginning of the line. */
  x: number;
  y: number;
}

export interface Heading {
  arena: number;
  y: number;
}

export interface Layout {
  lineBytes: number;
  height: number;
  headings: Heading[];
  /** Top to bottom, then left to right. */
  strips: Strip[];
  /** Index of the first strip of each row of the data. */
  firstOfRow: number[];
}

function chooseLine(moment: Moment): number {
  const total = moment.rows.bytes.reduce((sum, bytes) => sum + bytes, 0);
  const arenas = new Set(moment.rows.arena).size;
  const lines = Math.max(6, LINES - arenas);
  return Math.max(LINE_LEAST, Math.ceil(total / lines / LINE_LEAST) * LINE_LEAST);
}

export function layOut(moment: Moment): Layout {
  const { arena, bytes } = moment.rows;
  const lineBytes = chooseLine(moment);
  const gap = lineBytes / 400;
  const layout: Layout = { lineBytes, height: 0, headings: [], strips: [], firstOfRow: [] };
  let current = -1;
  let x = 0;
  let y = 0; // of the line that is being filled
  const nextLine = () => {
    y += LINE_HEIGHT;
    x = 0;
  };
  for (let row = 0; row < bytes.length; row++) {
    if (arena[row] !== current) {
      if (x > 0) nextLine();
      layout.headings.push({ arena: arena[row]!, y });
      y += HEADING_HEIGHT;
      current = arena[row]!;
    }
    layout.firstOfRow.push(layout.strips.length);
    if (x > 0 && x + bytes[row]! > lineBytes) nextLine();
    for (let from = 0; from < bytes[row]!; ) {
      if (x >= lineBytes) nextLine();
      const length = Math.min(bytes[row]! - from, lineBytes - x);
      layout.strips.push({ row, from, bytes: length, x, y });
      from += length;
      x += length;
    }
    x += gap;
  }
  layout.height = y + (x > 0 ? LINE_HEIGHT : 0);
  return layout;
}

/** The strips whose lines touch [top, bottom), as a range of indices. */
export function stripsBetween(strips: readonly Strip[], top: number, bottom: number): [number, number] {
  const first = lowerBound(strips.length, (i) => strips[i]!.y + LINE_HEIGHT > top);
  const end = lowerBound(strips.length, (i) => strips[i]!.y >= bottom);
  return [first, end];
}

/** The least index for which the test, false up to some index and true from there on, is true. */
export function lowerBound(count: number, test: (index: number) => boolean): number {
  let low = 0;
  let high = count;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (test(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}
