// The figures beside the chart: of the place under the cursor, else of the chosen moment.  Its rows are also the legend and switch
// bands off and on.

import type { Panel, Timeline } from "../data";
import { el, fill } from "../dom";
import { swatchElement } from "../palette";
import type { Store } from "../store";
import { bytesAligned, percent } from "../units";
import { whenOf } from "./scale";
import { type Band, bandsOf, type Stacking, swatchesOf } from "./stack";

export interface Readout {
  element: HTMLElement;
  show(index: number): void;
  rebuild(stacking: Stacking): void;
}

function lineRow(kind: string, name: string, title: string): [HTMLElement, HTMLElement] {
  const value = el("td", "number");
  const row = el(
    "tr",
    { title },
    el("td", {}, el("i", { class: `line-sample ${kind}`, attributes: { "aria-hidden": "true" } })),
    el("th", { text: name, attributes: { scope: "row" } }),
    value,
    el("td"),
  );
  return [row, value];
}

export function makeReadout(panel: Panel, timeline: Timeline, store: Store): Readout {
  const when = el("p", "readout-when");
  const table = el("table", { class: "readout-table", attributes: { "aria-label": "Memory at this place" } });
  const element = el("aside", "readout", when, table);
  let bands: Band[] = [];
  let cells: [HTMLElement, HTMLElement][] = [];
  const [heldRow, held] = lineRow("held", "held", "Taken from the driver");
  const [neededRow, needed] = lineRow("needed", "ideal", "What the program asked for and has not let go of: no waste at all");
  const [liveRow, live] = lineRow("none", "live", "In use, rounded as the allocator does");
  const [pendingRow, pending] = lineRow("none", "pending", "Let go by the program, still in use by another stream");

  function bandRow(band: Band, stacking: Stacking, swatch: HTMLElement): HTMLElement {
    const value = el("td", "number");
    const share = el("td", "number share");
    cells.push([value, share]);
    const press = () => (stacking === "category" ? store.toggleCategory(band.index) : store.toggleStream(band.name));
    const toggle = el("button", {
      class: "legend",
      text: band.name,
      title: "Show only this (and others so chosen)",
      on: { click: press },
    });
    toggle.type = "button";
    toggle.setAttribute("aria-pressed", String(band.shown));
    return el("tr", band.shown ? "" : "off", el("td", {}, swatch), el("th", { attributes: { scope: "row" } }, toggle), value, share);
  }
  return {
    element,
    rebuild(stacking) {
      cells = [];
      bands = bandsOf(panel, timeline, stacking, store.choice);
      const swatches = swatchesOf(panel, stacking);
      const rows = bands.map((band) => bandRow(band, stacking, swatchElement(swatches[band.index]!)));
      const sums = [timeline.held_bytes && heldRow, liveRow, neededRow, timeline.pending_bytes.some(Boolean) && pendingRow];
      fill(table, el("tbody", {}, ...sums), el("tbody", {}, ...rows.reverse()));
    },
    show(index) {
      const total = timeline.live_bytes[index] ?? 0;
      when.textContent = whenOf(timeline.event[index] ?? 0, timeline.time_us[index] ?? 0, panel.duration_us > 0);
      held.textContent = bytesAligned(timeline.held_bytes?.[index] ?? 0);
      live.textContent = bytesAligned(total);
      needed.textContent = bytesAligned(timeline.needed_bytes[index] ?? 0);
      pending.textContent = bytesAligned(timeline.pending_bytes[index] ?? 0);
      bands.forEach(({ values }, i) => {
        const [value, share] = cells[i]!;
        value.textContent = bytesAligned(values[index] ?? 0);
        share.textContent = percent(values[index] ?? 0, total);
      });
    },
  };
}
