// Section: the timeline of each panel that is shown.

import type { Panel, ReportData } from "../data";
import { shownPanels, sideBySide } from "../pair";
import { makeSection, nothing } from "../section";
import type { Choice, Store } from "../store";
import { type Manner, topOf } from "./chart";
import { makeControls } from "./controls";
import type { Stacking } from "./stack";
import { TimelineView } from "./timeline";

/** What is left out, and which filters these charts cannot obey. */
function noteOf(panels: readonly Panel[], choice: Choice, stacking: Stacking): string {
  const apart = stacking === "category" ? "streams" : "categories";
  const unknown = [choice.text && "text", choice[apart].size > 0 && apart].filter(Boolean);
  const reduced = panels.some(({ timeline }) => (timeline?.events_per_stretch ?? 1) > 1);
  const note = [
    reduced && "Every stretch shows its least and its most.",
    unknown.length > 0 && `Stacked by ${stacking}, it cannot tell by ${unknown.join(" or ")}.`,
  ];
  return note.filter(Boolean).join(" ");
}

export function timelineSection(data: ReportData, store: Store): HTMLElement {
  let views: TimelineView[] = [];
  let manner: Manner = { stacking: "category", along: "event", top: topOf(shownPanels(data, store)), ownTop: false };
  const controls = makeControls(manner, change);
  const section = makeSection("timeline", "Timeline", ...controls.elements);

  function tell(): void {
    section.note.textContent = noteOf(shownPanels(data, store), store.choice, manner.stacking);
  }
  function change(part: Partial<Manner>): void {
    manner = { ...manner, ...part };
    for (const view of views) view.show(manner);
    tell();
  }
  function make(panel: Panel): HTMLElement {
    if (!panel.timeline) return nothing("The file has no history, so there is no timeline.");
    const view = new TimelineView(panel, panel.timeline, store, manner);
    views.push(view);
    return view.element;
  }
  function build(): void {
    views = [];
    const panels = shownPanels(data, store);
    controls.suit(panels);
    sideBySide(section.body, data, store.choice.shown, make);
    change({ top: topOf(panels) });
  }
  store.subscribe((choice, changed) => {
    if (changed.has("shown")) return build();
    if (changed.has("moment")) for (const view of views) view.momentChanged();
    // Streams can only be told apart where they are stacked: choosing one shows them.
    if (changed.has("streams") && choice.streams.size && manner.stacking === "category") {
      controls.setStacking("stream");
      return change({ stacking: "stream" });
    }
    if (changed.has("categories") || changed.has("streams")) for (const view of views) view.show(manner);
    tell();
  });
  queueMicrotask(build); // once the section stands in the page, which gives the charts their width
  return section.element;
}
