// Section: what other allocators would have held.

import type { ReportData } from "../data";
import { sideBySide } from "../pair";
import { makeSection } from "../section";
import type { Store } from "../store";
import { whatIf } from "./whatif";

export function whatIfSection(data: ReportData, store: Store): HTMLElement {
  const section = makeSection("what-if", "What if");
  section.note.textContent = "The same requests, replayed with other allocators.";
  const show = () => sideBySide(section.body, data, store.choice.shown, whatIf);
  store.subscribe((_, changed) => changed.has("shown") && show());
  show();
  return section.element;
}
