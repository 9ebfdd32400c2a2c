// What other allocators would have held, replayed under a chosen cap.

import type { Cap, Panel, WhatIfPolicy, WhatIfResult } from "../data";
import { el, fill } from "../dom";
import { bytes, bytesAligned, count, duration, percent } from "../units";
import { matrix } from "./matrix";

const ABOUT: Record<WhatIfPolicy["name"], string> = {
  native: "PyTorch's allocator",
  expandable: "PyTorch's, expandable segments",
  gapless: "this allocator",
  ideal: "no waste at all",
};

/** The scale that all bars of a panel share, whatever the cap. */
function widest(panel: Panel): number {
  const held = panel.what_if.policies.flatMap(({ results }) =>
    results.map((result) => result?.held_bytes ?? result?.failed?.held_bytes ?? 0),
  );
  return Math.max(panel.what_if.peak_live_bytes, ...held) * 1.02 || 1;
}

function line(kind: string, at: number, scale: number): HTMLElement | null {
  if (at > scale) return null;
  const made = el("i", `track-line ${kind}`);
  made.style.left = `${(100 * at) / scale}%`;
  return made;
}

function track(result: WhatIfResult | null, name: string, panel: Panel, cap: Cap, scale: number): HTMLElement {
  const held = result?.held_bytes ?? result?.failed?.held_bytes ?? 0;
  const fillIn = el("span", `track-fill ${name} ${result?.fits ? "" : "broken"}`);
  fillIn.style.width = `${(100 * held) / scale}%`;
  return el(
    "div",
    { class: "track", attributes: { "aria-hidden": "true" } },
    fillIn,
    line("peak", panel.what_if.peak_live_bytes, scale),
    cap.bytes === null ? null : line("cap", cap.bytes, scale),
  );
}

function outcome(result: WhatIfResult | null, panel: Panel): HTMLElement {
  if (!result) return el("span", { class: "quiet-text", text: "not tried" });
  if (result.fits) {
    const p = panel.what_if.peak_live_bytes;
    const over = (result.held_bytes ?? 0) - p;
    const text = over > p / 1000 ? `fits, P + ${percent(over, p)}` : "fits";
    return el("span", "fits", el("b", { text: "✓ " }), text);
  }
  const failed = result.failed;
  const where = failed ? `refuses ${bytes(failed.request_bytes)} at event ${count(failed.event)}` : "does not fit";
  return el("span", { class: "refuses", title: failed?.reason ?? "" }, el("b", { text: "× " }), where);
}

const times = (calls: number, us: number): string => (calls ? `${count(calls)} · ${duration(us)}` : "0");

function row(policy: WhatIfPolicy, index: number, panel: Panel, cap: Cap, scale: number): HTMLElement {
  const result = policy.results[index] ?? null;
  const number = (text: string, title = "") => el("td", { class: "number", text, title });
  const name = el(
    "th",
    { attributes: { scope: "row" } },
    el("b", { text: policy.name }),
    el("small", { class: "about", text: ABOUT[policy.name] }),
    policy.recorded ? el("small", { text: "as recorded" }) : null,
  );
  const isIdeal = policy.name === "ideal";
  const behind = result?.background_us ? `and ${duration(result.background_us)} in the background` : "";
  return el(
    "tr",
    "",
    name,
    el("td", "track-cell", track(result, policy.name, panel, cap, scale)),
    number(result?.held_bytes != null ? bytesAligned(result.held_bytes) : "–"),
    el("td", "outcome", outcome(result, panel)),
    number(result && !isIdeal ? times(result.driver_calls, result.driver_us) : "–", behind),
    number(result && !isIdeal ? times(result.stalls, result.stall_us) : "–"),
  );
}

const HEAD: [string, string][] = [
  ["Allocator", ""],
  ["", "track-cell"],
  ["Held at most", "number"],
  ["", "outcome"],
  ["Driver calls", "number"],
  ["Stalls", "number"],
];

function table(panel: Panel, index: number): HTMLElement {
  const cap = panel.what_if.caps[index]!;
  const scale = widest(panel);
  const head = HEAD.map(([text, kind]) => el(text ? "th" : "td", { class: kind, text, ...(text ? { attributes: { scope: "col" } } : {}) }));
  const rows = panel.what_if.policies.map((policy) => row(policy, index, panel, cap, scale));
  return el("table", "grid whatif-table", el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...rows));
}

export function whatIf(panel: Panel): HTMLElement {
  const { what_if } = panel;
  const { caps, reason, out_of_time, peak_live_bytes } = what_if;
  if (!caps.length) return el("p", { class: "note", text: reason ? `Nothing was replayed: ${reason}.` : "Nothing was replayed." });
  const choices = el("div", "grid-scroll");
  const place = el("div", "grid-scroll");
  function show(index: number): void {
    fill(choices, matrix(what_if, index, choose));
    fill(place, table(panel, index));
  }
  function choose(index: number): void {
    show(index);
    choices.querySelectorAll<HTMLElement>(".cap")[index]?.focus();
  }
  const given = caps.findIndex(({ is_given }) => is_given);
  show(given >= 0 ? given : caps.length - 1);
  const late = out_of_time ? "The time for replays ran out; what is missing was not tried. " : "";
  const note = `${late}P, the dotted line, is the most that has to live at a time: ${bytes(peak_live_bytes)}.`;
  return el("div", "whatif", choices, place, el("p", { class: "note", text: note }));
}
