// The columns of the tables of blocks: how a cell reads, and how it sorts.

import { age } from "../age";
import type { Block, Moment, Panel } from "../data";
import { categoryName } from "../palette";
import { bytesAligned, count } from "../units";

export interface Column {
  key: string;
  title: string;
  isNumber: boolean;
  text(block: Block): string;
  /** What it sorts by. */
  order(block: Block): number | string;
}

type Words = (block: Block) => string;
type Order = (block: Block) => number;

const words = (key: string, title: string, text: Words): Column => ({ key, title, isNumber: false, text, order: text });
const number = (key: string, title: string, text: Words, order: Order): Column => ({ key, title, isNumber: true, text, order });

export function columnsOf(panel: Panel, moment: Moment): Column[] {
  const hasTimes = panel.duration_us > 0;
  const born = ({ born_event, born_us }: Block) => ({ event: born_event, us: born_us });
  const columns = [
    number(
      "size",
      "Size",
      ({ bytes }) => bytesAligned(bytes),
      ({ bytes }) => bytes,
    ),
    // What was there before the first event is the oldest.
    number(
      "age",
      "Age",
      (block) => age(moment, born(block), hasTimes),
      ({ born_event }) => -born_event,
    ),
    number(
      "born",
      "From event",
      ({ born_event }) => (born_event < 0 ? "–" : count(born_event)),
      ({ born_event }) => born_event,
    ),
    words("state", "State", ({ pending }) => (pending ? "pending" : "live")),
    words("category", "For", ({ category }) => categoryName(category)),
  ];
  if (panel.streams.length > 1) columns.push(words("stream", "Stream", ({ stream }) => panel.streams[stream]?.name ?? ""));
  // The first site stands for blocks of which none is known.
  if (panel.sites.length > 1) columns.push(words("site", "Call site", ({ site }) => panel.sites[site] ?? ""));
  return columns;
}
