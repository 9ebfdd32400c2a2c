// The bar that stays on top: filters and the moment, which act on every section.

import { CATEGORIES, type ReportData } from "../data";
import { button, el, fill } from "../dom";
import { categoryName, categorySwatches, swatchElement } from "../palette";
import { makeChoices } from "../section";
import type { MomentName, Store } from "../store";
import { onTheme } from "../theme";

const MOMENTS: [MomentName, string][] = [
  ["peak", "Peak"],
  ["failure", "Failure"],
  ["end", "End"],
];
const TYPING_PAUSE_MS = 120;

function chip(text: string, pressed: boolean, press: () => void, mark?: HTMLElement): HTMLElement {
  const made = button("", press, { class: "chip", attributes: { "aria-pressed": pressed } });
  if (mark) made.append(mark);
  made.append(text);
  return made;
}

function textField(store: Store): HTMLInputElement {
  const field = el("input", {
    id: "filter-text",
    attributes: {
      type: "search",
      placeholder: "Call site, function or file",
      "aria-label": "Filter by call site, function or file",
      spellcheck: "false",
      autocomplete: "off",
    },
  });
  let timer = 0;
  field.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => store.set({ text: field.value.trim().toLowerCase() }), TYPING_PAUSE_MS);
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      field.value = "";
      store.set({ text: "" });
      field.blur();
    }
  });
  return field;
}

function streamsOf(data: ReportData, shown: readonly number[]): string[] {
  return [...new Set(shown.flatMap((index) => data.panels[index]!.streams.map(({ name }) => name)))];
}

/** Several streams stand in a list that unfolds: there may be dozens. */
function streamMenu(names: string[], store: Store): HTMLElement | null {
  if (names.length < 2) return null;
  const { streams } = store.choice;
  const boxes = names.map((name) => {
    const box = el("input", { attributes: { type: "checkbox" } });
    box.checked = streams.has(name);
    box.addEventListener("change", () => store.toggleStream(name));
    return el("label", {}, box, name);
  });
  const title = streams.size ? `Streams: ${streams.size} of ${names.length}` : `Streams: all ${names.length}`;
  return el(
    "details",
    "menu",
    el("summary", { class: streams.size ? "chosen" : "", text: title }),
    el("div", { class: "menu-list", attributes: { role: "group", "aria-label": "Streams" } }, ...boxes),
  );
}

function moments(data: ReportData, store: Store): HTMLElement {
  const there = new Set(store.choice.shown.flatMap((index) => data.panels[index]!.moments.map(({ name }) => name)));
  const options = MOMENTS.filter(([name]) => there.has(name));
  if (options.length < 2) return el("div");
  const choices = makeChoices("Moment", options, store.choice.moment, (moment) => store.set({ moment }));
  return el("div", "moment", el("span", { class: "control-label", text: "at" }), choices.element);
}

export function makeFilters(data: ReportData, store: Store): HTMLElement {
  const field = textField(store);
  const chips = el("div", { class: "chips", attributes: { role: "group", "aria-label": "Categories" } });
  const streams = el("div", "streams");
  const when = el("div");
  const clear = button("Clear", () => store.clearFilters(), { class: "quiet clear", title: "All filters off (x)" });

  function showChips(): void {
    const swatches = categorySwatches();
    const { categories } = store.choice;
    fill(
      chips,
      ...CATEGORIES.map((_, index) =>
        chip(categoryName(index), categories.has(index), () => store.toggleCategory(index), swatchElement(swatches[index]!)),
      ),
    );
  }
  /** An open list stays open while its boxes are ticked. */
  function showStreams(): void {
    const open = streams.querySelector("details")?.open ?? false;
    const focused = [...streams.querySelectorAll("input")].indexOf(document.activeElement as HTMLInputElement);
    fill(streams, streamMenu(streamsOf(data, store.choice.shown), store));
    const menu = streams.querySelector("details");
    if (menu) menu.open = open;
    streams.querySelectorAll("input")[focused]?.focus();
  }
  function show(): void {
    const focused = [...chips.children].indexOf(document.activeElement as HTMLElement);
    showChips();
    (chips.children[focused] as HTMLElement | undefined)?.focus();
    showStreams();
    clear.hidden = !store.isFiltered;
    if (store.choice.text !== field.value.trim().toLowerCase()) field.value = store.choice.text;
  }
  const showMoments = () => fill(when, moments(data, store));
  store.subscribe((_, changed) => {
    show();
    if (changed.has("shown")) showMoments();
  });
  onTheme(chips, showChips);
  show();
  showMoments();
  return el(
    "div",
    { class: "filters", attributes: { role: "search", "aria-label": "Filters and moment" } },
    field,
    chips,
    streams,
    clear,
    when,
  );
}
