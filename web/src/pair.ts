// One panel over the whole width, or two side by side, each under its letter.

import type { Panel, ReportData } from "./data";
import { el, fill } from "./dom";
import type { Store } from "./store";

export const shownPanels = (data: ReportData, store: Store): Panel[] => store.choice.shown.map((index) => data.panels[index]!);

const LETTERS = ["A", "B"];

/** The file, and the device where the file has several. */
export function panelTitle({ file, device }: Panel, panels: readonly Panel[]): string {
  return panels.some((other) => other.file === file && other.device !== device) ? `${file}, device ${device}` : file;
}

export function sideBySide(
  body: HTMLElement,
  data: ReportData,
  shown: readonly number[],
  make: (panel: Panel, index: number) => HTMLElement,
): void {
  const columns = shown.map((index, i) => {
    const panel = data.panels[index]!;
    const content = make(panel, i);
    if (shown.length === 1) return content;
    const title = el(
      "p",
      "column-title",
      el("b", { class: `side side-${LETTERS[i]!.toLowerCase()}`, text: LETTERS[i]! }),
      el("span", { text: panelTitle(panel, data.panels) }),
    );
    return el("div", "column", title, content);
  });
  body.classList.toggle("two", shown.length > 1);
  fill(body, ...columns);
}
