// The head of the page: what file this is, which of several is shown, theme and help.

import type { ReportData } from "../data";
import { button, el } from "../dom";
import { panelTitle } from "../pair";
import type { Store } from "../store";
import { onTheme, theme, toggleTheme } from "../theme";

const SIDE_BY_SIDE = "both";

/** Which of the panels: two side by side where there is a diff of them. */
function chooser(data: ReportData, store: Store): HTMLElement | null {
  if (data.panels.length < 2) return null;
  const list = el("select", { attributes: { "aria-label": "Which file is shown" } });
  const option = (value: string, text: string) => list.append(el("option", { text, attributes: { value } }));
  if (data.diff) option(SIDE_BY_SIDE, "Both, side by side");
  data.panels.forEach((panel, index) => {
    const limits = data.job?.limits === index ? " (limits the job)" : "";
    option(String(index), `${panelTitle(panel, data.panels)}${limits}`);
  });
  const follow = () => {
    list.value = store.choice.shown.length > 1 ? SIDE_BY_SIDE : String(store.choice.shown[0]);
  };
  follow();
  store.subscribe(follow);
  list.addEventListener("change", () => {
    const both = data.diff ? [data.diff.panel_a, data.diff.panel_b] : [];
    store.set({ shown: list.value === SIDE_BY_SIDE ? both : [Number(list.value)] });
  });
  return list;
}

function themeButton(): HTMLElement {
  const made = button("", toggleTheme, { class: "quiet", title: "Dark or light (d)" });
  const show = () => {
    made.textContent = theme() === "dark" ? "Light" : "Dark";
    made.setAttribute("aria-label", theme() === "dark" ? "Switch to light colours" : "Switch to dark colours");
  };
  onTheme(made, show);
  show();
  return made;
}

export function makeHead(data: ReportData, store: Store, help: () => void): HTMLElement {
  const first = data.panels[0]!;
  const title = data.panels.length > 1 ? null : el("p", { class: "file", text: panelTitle(first, data.panels), title: first.file });
  return el(
    "header",
    "page-head",
    el("h1", {}, el("b", { text: "gapless" }), " report"),
    title ?? chooser(data, store),
    el(
      "div",
      "head-tools",
      themeButton(),
      button("Keys", help, { class: "quiet", title: "Keys (?)", attributes: { "aria-keyshortcuts": "?" } }),
    ),
  );
}
