// Section: the words of `gapless explain`, the ranks of a job, what would have helped.

import type { ReportData } from "../data";
import { sideBySide } from "../pair";
import { makeSection } from "../section";
import type { Store } from "../store";
import { makeRanks } from "./ranks";
import { summary } from "./summary";

export function summarySection(data: ReportData, store: Store): HTMLElement {
  const section = makeSection("summary", "What happened");
  const show = () => sideBySide(section.body, data, store.choice.shown, summary);
  store.subscribe((_, changed) => changed.has("shown") && show());
  show();
  if (data.job) section.body.before(makeRanks(data, store));
  return section.element;
}
