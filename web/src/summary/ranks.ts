// The ranks of a job in a table: which one limits it, and by how much.  Pressing one shows it.

import type { Panel, ReportData } from "../data";
import { button, el, fill } from "../dom";
import { panelTitle } from "../pair";
import type { Store } from "../store";
import { bytesAligned, count } from "../units";

const HEAD = ["", "Verdict", "Live at most", "Held at most", "Refusals"];

function row(panel: Panel, index: number, data: ReportData, store: Store): HTMLElement {
  const { marks, explain, peak_live_bytes, peak_held_bytes } = panel;
  const isShown = store.choice.shown.includes(index);
  const show = () => store.set({ shown: [index] });
  const name = button(panelTitle(panel, data.panels), show, { class: "rank", attributes: { "aria-pressed": isShown } });
  const limits = data.job?.limits === index ? el("small", { class: "limits", text: "limits the job" }) : null;
  const number = (text: string) => el("td", { class: "number", text });
  return el(
    "tr",
    isShown ? "shown" : "",
    el("th", { attributes: { scope: "row" } }, name, limits),
    el("td", { text: explain.verdict }),
    number(bytesAligned(peak_live_bytes)),
    number(peak_held_bytes === null ? "–" : bytesAligned(peak_held_bytes)),
    number(count(marks.failure?.count ?? 0)),
  );
}

export function makeRanks(data: ReportData, store: Store): HTMLElement {
  const body = el("tbody");
  const head = HEAD.map((text, i) => el(text ? "th" : "td", { class: i > 1 ? "number" : "", text }));
  const table = el("table", { class: "grid compact ranks", attributes: { "aria-label": "Ranks of the job" } });
  table.append(el("thead", {}, el("tr", {}, ...head)), body);
  const show = () => fill(body, ...data.panels.map((panel, index) => row(panel, index, data, store)));
  store.subscribe((_, changed) => {
    if (!changed.has("shown")) return;
    const focused = [...body.querySelectorAll("button")].indexOf(document.activeElement as HTMLButtonElement);
    show();
    body.querySelectorAll("button")[focused]?.focus();
  });
  show();
  return el("div", "job", el("p", { text: data.job?.text ?? "" }), el("div", "grid-scroll", table));
}
