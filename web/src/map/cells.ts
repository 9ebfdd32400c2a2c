// Finding blocks: at a place of a segment, at an address.

import type { Cells, Moment } from "../data";
import { lowerBound } from "./layout";

/** Cells of a row that touch [from, to) bytes of it. */
export function cellsBetween(moment: Moment, row: number, from: number, to: number): [number, number] {
  const first = moment.rows.cell_first[row]!;
  const count = moment.rows.cell_count[row]!;
  const { offset_bytes, bytes } = moment.cells;
  const begin = lowerBound(count, (i) => offset_bytes[first + i]! + bytes[first + i]! > from);
  const end = lowerBound(count, (i) => offset_bytes[first + i]! >= to);
  return [first + begin, first + Math.max(begin, end)];
}

export interface Place {
  row: number;
  /** Index into cells; -1: idle. */
  cell: number;
  /** Of the cell or of the idle piece. */
  from: number;
  bytes: number;
}

export function placeAt(moment: Moment, row: number, offset: number): Place {
  const { cells, rows } = moment;
  const [begin, end] = cellsBetween(moment, row, offset, offset + 1);
  if (begin < end) return { row, cell: begin, from: cells.offset_bytes[begin]!, bytes: cells.bytes[begin]! };
  const isFirst = begin === rows.cell_first[row]!;
  const isLast = begin === rows.cell_first[row]! + rows.cell_count[row]!;
  const from = isFirst ? 0 : endOf(cells, begin - 1);
  const to = isLast ? rows.bytes[row]! : cells.offset_bytes[begin]!;
  return { row, cell: -1, from, bytes: to - from };
}

const endOf = (cells: Cells, cell: number): number => cells.offset_bytes[cell]! + cells.bytes[cell]!;

export function rowOfCell(moment: Moment, cell: number): number {
  const { cell_first } = moment.rows;
  // Rows without cells share their first cell with the next row: the last that begins at or before it is the one.
  return lowerBound(cell_first.length, (i) => cell_first[i]! > cell) - 1;
}

export function cellAtAddress(moment: Moment, address: string): number {
  const at = BigInt(address);
  for (let row = 0; row < moment.rows.address.length; row++) {
    const offset = at - BigInt(moment.rows.address[row]!);
    if (offset < 0n || offset >= BigInt(moment.rows.bytes[row]!)) continue;
    return placeAt(moment, row, Number(offset)).cell;
  }
  return -1;
}

export const addressOf = (moment: Moment, row: number, offset: number): string =>
  `0x${(BigInt(moment.rows.address[row]!) + BigInt(offset)).toString(16)}`;
