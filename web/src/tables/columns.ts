// The columns of the tables of blocks: how a cell reads, and how it sorts.

import type { Block, Moment, Panel } from "../data";
import { ageOf } from "../map/words";
import { categoryName } from "../palette";
import { bytesAligned } from "../units";

export interface Column {
  key: string;
  title: string;
  isNumber: boolean;
  text(block: Block): string;
  /** What it sorts by. */
  order(block: Block): number | string;
}

export function columnsOf(panel: Panel, moment: Moment): Column[] {
  const hasTimes = panel.duration_us > 0;
  const age = ({ born_event, born_us }: Block) =>
    born_event < 0 ? Number.MAX_SAFE_INTEGER : hasTimes ? moment.time_us - born_us : moment.event - born_event;
  const stream = ({ stream: index }: Block) => panel.streams[index]?.name ?? "";
  const columns: Column[] = [
    {
      key: "size",
      title: "Size",
      isNumber: true,
      text: ({ bytes }) => bytesAligned(bytes),
      order: ({ bytes }) => bytes,
    },
    {
      key: "age",
      title: "Age",
      isNumber: true,
      text: ({ born_event, born_us }) => (born_event < 0 ? "not known" : ageOf(moment, born_event, born_us, hasTimes).replace(/ \(.*/, "")),
      order: age,
    },
    {
      key: "born",
      title: "From event",
      isNumber: true,
      text: ({ born_event }) => (born_event < 0 ? "–" : born_event.toLocaleString("en-US")),
      order: ({ born_event }) => born_event,
    },
    {
      key: "state",
      title: "State",
      isNumber: false,
      text: ({ pending }) => (pending ? "pending" : "live"),
      order: ({ pending }) => Number(pending),
    },
    {
      key: "category",
      title: "For",
      isNumber: false,
      text: ({ category }) => categoryName(category),
      order: ({ category }) => category,
    },
    {
      key: "site",
      title: "Call site",
      isNumber: false,
      text: ({ site }) => panel.sites[site] ?? "",
      order: ({ site }) => panel.sites[site] ?? "",
    },
  ];
  if (panel.streams.length > 1) columns.splice(5, 0, { key: "stream", title: "Stream", isNumber: false, text: stream, order: stream });
  return columns;
}
