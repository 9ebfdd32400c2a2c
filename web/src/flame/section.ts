// Section: who allocated what is live at the peak.

import type { ReportData } from "../data";
import { shownPanels, sideBySide } from "../pair";
import { makeSection, nothing } from "../section";
import type { Store } from "../store";
import { FlameView } from "./flame";

export function flameSection(data: ReportData, store: Store): HTMLElement {
  const section = makeSection("flame", "Call sites");
  let views: FlameView[] = [];
  function build(): void {
    views = [];
    const panels = shownPanels(data, store);
    const atPeak = panels.every(({ flame }) => flame.moment === "peak");
    const bySite = panels.every(({ flame }) => flame.by === "call_site");
    section.note.textContent = `Who allocated what is live at the ${atPeak ? "peak" : "end"}; callers stand above callees. ${bySite ? "" : "Without stacks: by category and size."}`;
    sideBySide(section.body, data, store.choice.shown, (panel) => {
      if (!panel.flame.parent.length || !panel.flame.bytes[0]) return nothing("Nothing is live then.");
      const view = new FlameView(panel, store);
      views.push(view);
      return view.element;
    });
  }
  store.subscribe((_, changed) => {
    if (changed.has("shown")) build();
    else if (!changed.has("moment")) for (const view of views) view.filtersChanged();
  });
  build();
  return section.element;
}
