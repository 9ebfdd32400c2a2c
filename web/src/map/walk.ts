// From block to block, and from line to line, for the arrow keys.

import type { Moment } from "../data";
import type { Matcher } from "../match";
import { type Place, placeAt, rowOfCell } from "./cells";
import { type Layout, type Strip, stripsBetween } from "./layout";

export type Direction = 1 | -1;

function passes(moment: Moment, matcher: Matcher, cell: number): boolean {
  if (matcher.all) return true;
  const { cells, rows, arenas } = moment;
  if (!matcher.category(cells.category[cell]!) || !matcher.site(cells.site[cell]!)) return false;
  return matcher.stream(arenas[rows.arena[rowOfCell(moment, cell)]!]!.stream);
}

/** A place, and in which of its strips the reader is: a block may go on over several lines. */
export interface Spot {
  place: Place;
  strip: Strip;
}

/** The strip in which a place begins. */
function stripOf({ strips, firstOfRow }: Layout, place: Place): Strip {
  let i = firstOfRow[place.row]!;
  while (strips[i + 1]?.row === place.row && strips[i + 1]!.from <= place.from) i++;
  return strips[i]!;
}

export function spotOf(moment: Moment, layout: Layout, cell: number): Spot {
  const { offset_bytes, bytes } = moment.cells;
  const place = { row: rowOfCell(moment, cell), cell, from: offset_bytes[cell]!, bytes: bytes[cell]! };
  return { place, strip: stripOf(layout, place) };
}

/** Bytes from the beginning of the line to the middle of what is seen of the place in it. */
export function middleOf({ place, strip }: Spot): number {
  const from = Math.max(place.from, strip.from);
  const to = Math.min(place.from + place.bytes, strip.from + strip.bytes);
  return strip.x - strip.from + (from + to) / 2;
}

/** The next block that the filters let through; null: there is none. */
export function nextBlock(moment: Moment, layout: Layout, matcher: Matcher, from: number, direction: Direction): Spot | null {
  const count = moment.cells.bytes.length;
  let cell = from >= 0 ? from + direction : direction > 0 ? 0 : count - 1;
  while (cell >= 0 && cell < count && !passes(moment, matcher, cell)) cell += direction;
  return cell >= 0 && cell < count ? spotOf(moment, layout, cell) : null;
}

/** What lies above or below a spot; null: that was the last line. */
export function nextLine(moment: Moment, layout: Layout, spot: Spot, direction: Direction): Spot | null {
  const { strips } = layout;
  const x = middleOf(spot);
  let i = strips.indexOf(spot.strip);
  while (strips[i]?.y === spot.strip.y) i += direction;
  const y = strips[i]?.y;
  if (y === undefined) return null;
  const [first, end] = stripsBetween(strips, y, y + 1);
  let strip = strips[first]!;
  for (let j = first; j < end; j++) if (strips[j]!.x <= x) strip = strips[j]!;
  const inside = Math.min(Math.max(0, Math.floor(x - strip.x)), strip.bytes - 1);
  return { place: placeAt(moment, strip.row, strip.from + inside), strip };
}
