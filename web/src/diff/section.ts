// Section: what changed, where two files are compared.

import type { ReportData } from "../data";
import { makeSection } from "../section";
import type { Store } from "../store";
import { makeDiff } from "./diff";

export function diffSection(data: ReportData, store: Store): HTMLElement | null {
  if (!data.diff) return null;
  const section = makeSection("changes", "What changed");
  section.body.append(makeDiff(data, data.diff, store));
  return section.element;
}
