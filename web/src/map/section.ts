// Section: the address map of each panel that is shown, at the chosen moment.

import type { Moment, Panel, ReportData } from "../data";
import { el } from "../dom";
import { momentOf } from "../moment";
import { sideBySide } from "../pair";
import { makeSection, nothing } from "../section";
import type { Store } from "../store";
import { whenOf } from "../timeline/scale";
import { bytes, count, plural } from "../units";
import { MapView } from "./map";

function mapLegend(): HTMLElement {
  const item = (kind: string, text: string) => el("li", {}, el("i", { class: `key ${kind}`, attributes: { "aria-hidden": "true" } }), text);
  return el(
    "ul",
    "legend-line",
    item("cell", "block, in the colour of its category"),
    item("pending", "pending"),
    item("merged", "several, as high as they are full"),
    item("idle", "idle"),
    item("chunk", "chunks behind"),
  );
}

function mapNote(panel: Panel, moment: Moment, lineBytes: number): string {
  const { segments, bytes: size } = moment.left_out;
  const left = segments ? ` ${plural(segments, "small segment")} (${bytes(size)}) are left out.` : "";
  const when = whenOf(moment.event, moment.time_us, panel.duration_us > 0);
  const at = panel.timeline ? `${moment.name}, ${when}` : moment.name;
  return `${at}: ${count(moment.block_count)} blocks in ${plural(moment.segment_count, "segment")}; a line is ${bytes(lineBytes)}.${left}`;
}

/** Marks a block in the map of its panel. */
export type Reveal = (panel: Panel, address: string) => void;

export function mapSection(data: ReportData, store: Store): { element: HTMLElement; reveal: Reveal } {
  const section = makeSection("map", "Address map");
  const views = new Map<Panel, MapView>();
  function make(panel: Panel): HTMLElement {
    const moment = momentOf(panel, store.choice);
    if (!moment?.rows.bytes.length) return nothing("The file does not say where blocks lie.");
    const view = new MapView(panel, store, moment);
    views.set(panel, view);
    return el("div", {}, el("p", { class: "note", text: mapNote(panel, moment, view.lineBytes) }), view.element);
  }
  function build(): void {
    views.clear();
    sideBySide(section.body, data, store.choice.shown, make);
    section.body.append(mapLegend());
  }
  store.subscribe((_, changed) => {
    if (changed.has("shown") || changed.has("moment")) build();
    else for (const view of views.values()) view.filtersChanged();
  });
  build();
  return { element: section.element, reveal: (panel, address) => views.get(panel)?.reveal(address) };
}
