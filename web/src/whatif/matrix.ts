// Under which cap which allocator goes through: a column for each cap, to be chosen, a row for each allocator.

import type { Cap, WhatIf, WhatIfResult } from "../data";
import { el } from "../dom";
import { bytes, byteUnit, count } from "../units";

function sign(result: WhatIfResult | null): [string, string, string] {
  if (!result) return ["·", "", "not tried"];
  if (result.fits) return ["✓", "fits", result.held_bytes === null ? "fits" : `fits, holding ${bytes(result.held_bytes)}`];
  const failed = result.failed;
  return ["×", "refuses", failed ? `refuses ${bytes(failed.request_bytes)} at event ${count(failed.event)}` : "does not fit"];
}

const small = ({ factor, is_given }: Cap): string => (is_given ? "the cap" : factor === null ? "" : `${factor.toFixed(2)} P`);

interface Unit {
  factor: number;
  name: string;
}

const amount = (size: number | null, unit: Unit): string => (size === null ? "no limit" : (size / unit.factor).toFixed(2));

function head(cap: Cap, unit: Unit, chosen: boolean, choose: () => void): HTMLElement {
  const label = el(
    "button",
    { class: "cap", attributes: { type: "button", "aria-pressed": chosen }, on: { click: choose } },
    el("b", { text: amount(cap.bytes, unit) }),
    el("small", { text: small(cap) }),
  );
  return el("th", { class: chosen ? "chosen" : "", attributes: { scope: "col" } }, label);
}

export function matrix({ caps, policies }: WhatIf, chosen: number, choose: (index: number) => void): HTMLElement {
  const unit = byteUnit(Math.max(...caps.map(({ bytes: size }) => size ?? 0)));
  const heads = caps.map((cap, index) => head(cap, unit, index === chosen, () => choose(index)));
  const rows = policies.map(({ name, results }) => {
    const cells = caps.map((_, index) => {
      const [mark, kind, meaning] = sign(results[index] ?? null);
      const shown = el("span", { class: kind, text: mark, attributes: { role: "img", "aria-label": meaning } });
      return el("td", { class: index === chosen ? "chosen" : "", title: meaning }, shown);
    });
    return el("tr", {}, el("th", { text: name, attributes: { scope: "row" } }), ...cells);
  });
  const corner = el("td", { class: "control-label", text: `may hold, ${unit.name}` });
  const label = "Which allocator goes through under which cap";
  return el(
    "table",
    { class: "matrix", attributes: { "aria-label": label } },
    el("thead", {}, el("tr", {}, corner, ...heads)),
    el("tbody", {}, ...rows),
  );
}
