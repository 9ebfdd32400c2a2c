// What changed from the first file to the second.

import { CATEGORIES, type Diff, type DiffPair, type ReportData } from "../data";
import { el, fill } from "../dom";
import { panelTitle } from "../pair";
import { makeChoices } from "../section";
import type { Choice, Store } from "../store";
import { bytes, bytesAligned, bytesDifference, count, duration } from "../units";

type Lists = "call_sites" | "categories" | "streams" | "sizes" | "driver_calls";

const LISTS: [Lists, string][] = [
  ["call_sites", "Call sites"],
  ["categories", "Categories"],
  ["streams", "Streams"],
  ["sizes", "Sizes"],
  ["driver_calls", "Driver calls"],
];

function value(name: string, amount: number | null, signed = false): string {
  if (amount === null) return "–";
  const plus = signed && amount > 0 ? "+" : "";
  if (name.includes("bytes")) return signed ? bytesDifference(amount) : bytes(amount);
  if (name.endsWith("_us")) return plus + duration(amount);
  if (name.endsWith("percent")) return `${plus}${amount.toFixed(1)} %`.replace("-", "−");
  return plus + count(amount).replace("-", "−");
}

const words = (name: string): string => name.replace(/_(bytes|us|percent)(?=_|$)/, "").replaceAll("_", " ");

function bar(change: number, most: number): HTMLElement {
  const made = el("div", { class: "change", attributes: { "aria-hidden": "true" } });
  const piece = el("span", change > 0 ? "more" : "less");
  piece.style.width = `${(50 * Math.abs(change)) / (most || 1)}%`;
  made.append(piece);
  return made;
}

function figures(diff: Diff): HTMLElement {
  const rows = Object.entries(diff.figures).map(([name, { a, b, change, differs }]) =>
    el(
      "tr",
      differs ? "differs" : "same",
      el("th", { text: words(name), attributes: { scope: "row" } }),
      el("td", { class: "number", text: value(name, a) }),
      el("td", { class: "number", text: value(name, b) }),
      el("td", { class: "number change-number", text: value(name, change, true) }),
    ),
  );
  const head = ["Figure", "A", "B", "Change"].map((text, i) => el("th", { class: i ? "number" : "", text, attributes: { scope: "col" } }));
  return el("table", "grid diff-figures", el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...rows));
}

function pairName({ a_name, b_name }: DiffPair): string {
  if (a_name === null) return `${b_name ?? ""} (only in B)`;
  if (b_name === null) return `${a_name} (only in A)`;
  return a_name === b_name ? b_name : `${b_name} (in A ${a_name})`;
}

function pairRow(pair: DiffPair, most: number, which: Lists): HTMLElement {
  const isOurs = which === "categories" || which === "driver_calls"; // not a name from a file
  const name = isOurs ? pairName(pair).replaceAll("_", " ") : pairName(pair);
  return el(
    "tr",
    pair.differs ? "differs" : "same",
    el("th", { class: "site", text: name, title: name, attributes: { scope: "row" } }),
    el("td", { class: "number", text: bytesAligned(pair.a_bytes) }),
    el("td", { class: "number times", text: `× ${count(pair.a_count)}` }),
    el("td", { class: "number", text: bytesAligned(pair.b_bytes) }),
    el("td", { class: "number times", text: `× ${count(pair.b_count)}` }),
    el("td", { class: "number change-number", text: bytesDifference(pair.change_bytes) }),
    el("td", "change-cell", bar(pair.change_bytes, most)),
  );
}

/** What a list's rows are decides which filters they know. */
function filter(which: Lists, { text, categories, streams }: Choice): (pair: DiffPair) => boolean {
  const name = ({ a_name, b_name }: DiffPair) => b_name ?? a_name ?? "";
  if (which === "categories") return (pair) => !categories.size || [...categories].some((index) => CATEGORIES[index] === name(pair));
  if (which === "streams") return (pair) => !streams.size || streams.has(name(pair));
  return (pair) => !text || pairName(pair).toLowerCase().includes(text);
}

function list(diff: Diff, which: Lists, choice: Choice): HTMLElement {
  const holds = filter(which, choice);
  const pairs = diff[which].filter(holds);
  if (!pairs.length)
    return el("p", {
      class: "note",
      text: diff[which].length ? "The filters leave none." : "The files do not tell, or have none.",
    });
  const most = pairs.reduce((largest, { change_bytes }) => Math.max(largest, Math.abs(change_bytes)), 0);
  const head = ["", "A", "", "B", "", "Change", ""].map((title) => el(title ? "th" : "td", { class: "number", text: title }));
  const rest = diff.left_out[which];
  return el(
    "div",
    {},
    el(
      "div",
      "grid-scroll",
      el(
        "table",
        "grid diff-pairs",
        el("thead", {}, el("tr", {}, ...head)),
        el("tbody", {}, ...pairs.map((pair) => pairRow(pair, most, which))),
      ),
    ),
    rest > 0 && el("p", { class: "note", text: `${count(rest)} more with smaller changes are left out.` }),
  );
}

export function makeDiff(data: ReportData, diff: Diff, store: Store): HTMLElement {
  const place = el("div", "diff-list");
  let which: Lists = diff.call_sites.length ? "call_sites" : "categories";
  const show = () => fill(place, list(diff, which, store.choice));
  const choices = makeChoices(
    "Parts",
    LISTS.filter(([name]) => diff[name].length > 0),
    which,
    (name) => {
      which = name;
      show();
    },
  );
  store.subscribe(show);
  show();
  const side = (letter: string, panel: number) =>
    el(
      "li",
      {},
      el("b", { class: `side side-${letter.toLowerCase()}`, text: letter }),
      el("span", { text: panelTitle(data.panels[panel]!, data.panels) }),
    );
  return el(
    "div",
    "diff",
    el(
      "div",
      "diff-head",
      el("ul", "sides", side("A", diff.panel_a), side("B", diff.panel_b)),
      el("p", { class: "diff-summary", text: diff.summary }),
    ),
    el("div", "diff-columns", figures(diff), el("div", "diff-parts", choices.element, place)),
  );
}
