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

export function placeOf(moment: Moment, cell: number): Place {
  const { offset_bytes, bytes } = moment.cells;
  return { row: rowOfCell(moment, cell), cell, from: offset_bytes[cell]!, bytes: bytes[cell]! };
}

/** The next block that the filters let through; null: there is none. */
export function nextBlock(moment: Moment, matcher: Matcher, from: number, direction: Direction): Place | null {
  const count = moment.cells.bytes.length;
  let cell = from >= 0 ? from + direction : direction > 0 ? 0 : count - 1;
  while (cell >= 0 && cell < count && !passes(moment, matcher, cell)) cell += direction;
  return cell >= 0 && cell < count ? placeOf(moment, cell) : null;
}

/** The strip in which a place begins. */
export function stripOf({ strips, firstOfRow }: Layout, place: Place): Strip {
  let i = firstOfRow[place.row]!;
  while (strips[i + 1]?.row === place.row && strips[i + 1]!.from <= place.from) i++;
  return strips[i]!;
}

/** What lies above or below a place; null: that was the last line. */
export function nextLine(moment: Moment, layout: Layout, place: Place, direction: Direction): Place | null {
  const { strips } = layout;
  const strip = stripOf(layout, place);
  const x = strip.x + place.from - strip.from;
  let i = strips.indexOf(strip);
  while (strips[i]?.y === strip.y) i += direction;
  const y = strips[i]?.y;
  if (y === undefined) return null;
  const [first, end] = stripsBetween(strips, y, y + 1);
  let nearest = strips[first]!;
  for (let j = first; j < end; j++) if (strips[j]!.x <= x) nearest = strips[j]!;
  const inside = Math.min(Math.max(0, x - nearest.x), nearest.bytes - 1);
  return placeAt(moment, nearest.row, nearest.from + inside);
}
