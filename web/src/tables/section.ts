// Section: the largest and the oldest blocks.

import type { Panel, ReportData } from "../data";
import type { Reveal } from "../map/section";
import { momentOf } from "../moment";
import { sideBySide } from "../pair";
import { makeChoices, makeSection, nothing } from "../section";
import type { Store } from "../store";
import { TableView, type Which } from "./tables";

const WHICH: [Which, string][] = [
  ["largest", "Largest"],
  ["oldest", "Oldest"],
];

export function blocksSection(data: ReportData, store: Store, reveal: Reveal): HTMLElement {
  const views = new Map<Panel, TableView>();
  let which: Which = "largest";
  const choices = makeChoices("Which blocks", WHICH, which, (value) => {
    which = value;
    for (const view of views.values()) view.choose(which);
  });
  const section = makeSection("blocks", "Blocks", choices.element);
  function make(panel: Panel): HTMLElement {
    const moment = momentOf(panel, store.choice);
    if (!moment) return nothing("No blocks are known.");
    const view = new TableView(panel, store, moment, (address) => reveal(panel, address));
    view.choose(which);
    views.set(panel, view);
    return view.element;
  }
  function build(): void {
    views.clear();
    sideBySide(section.body, data, store.choice.shown, make);
  }
  store.subscribe((choice, changed) => {
    if (changed.has("shown")) return build();
    for (const [panel, view] of views) view.show(momentOf(panel, choice));
  });
  build();
  return section.element;
}
