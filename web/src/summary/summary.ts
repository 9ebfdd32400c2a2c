// What `gapless explain` says, and the figures behind it.

import type { Explain, Panel } from "../data";
import { breakable, type Child, el } from "../dom";
import { bytes, plural } from "../units";
import { heldBar } from "./bar";

const GOOD = new Set(["fits"]);
const NEUTRAL = new Set(["unknown"]);

function verdict({ verdict: name, verdict_text }: Explain): HTMLElement {
  const tone = GOOD.has(name) ? "good" : NEUTRAL.has(name) ? "neutral" : "bad";
  return el(
    "div",
    "verdict",
    el("p", { class: `verdict-name ${tone}`, text: name }),
    el("p", { class: "verdict-text", text: verdict_text }),
  );
}

function figure(name: string, value: number | null | undefined, note = ""): HTMLElement | null {
  if (value === null || value === undefined) return null;
  const shown = bytes(value).split(" ");
  return el(
    "div",
    "figure",
    el("dt", { text: name }),
    el("dd", {}, el("b", { text: shown[0]! }), ` ${shown[1] ?? ""}`, note ? el("small", { text: note }) : null),
  );
}

/** Those of the moment that the words are about, then those of the whole history. */
function figures({ explain, marks, peak_live_bytes, peak_held_bytes }: Panel): HTMLElement {
  const refused = marks.failure;
  const held = explain.held_bytes > 0;
  return el(
    "div",
    {},
    el("p", { class: "figures-when", text: refused ? "At the refusal" : "At the end" }),
    el(
      "dl",
      "figures",
      figure("asked for", refused?.request_bytes, refused && refused.count > 1 ? `the last of ${refused.count}` : ""),
      figure("held", held ? explain.held_bytes : null),
      figure("live", explain.live_bytes),
      figure("idle", held ? explain.idle_bytes : null),
      figure("largest piece", held ? explain.largest_idle_piece_bytes : null),
    ),
    heldBar(explain),
    el("p", { class: "figures-when", text: "In all" }),
    el(
      "dl",
      "figures",
      figure("peak of live", peak_live_bytes),
      figure("peak of held", peak_held_bytes),
      figure("limit", explain.limit_bytes),
      figure("card", explain.card_bytes),
    ),
  );
}

function sign(works: boolean | null): [string, string] {
  if (works === null) return ["?", "not tried"];
  return works ? ["✓", "works, by replay"] : ["×", "does not help, by replay"];
}

function advice({ advice: found }: Explain, refused: boolean): Child {
  if (!found?.length) return null;
  const items = found.map(({ change, text, works }) => {
    const [mark, meaning] = sign(works);
    const kind = works === null ? "unsure" : works ? "yes" : "no";
    return el(
      "li",
      kind,
      el("span", { class: "mark", text: mark, attributes: { role: "img", "aria-label": meaning }, title: meaning }),
      el("div", {}, el("strong", {}, breakable(change)), el("p", { text })),
    );
  });
  return el(
    "div",
    "advice",
    el("h3", { text: `What would ${refused ? "have let it through" : "take less"}, smallest change first` }),
    el("ol", {}, ...items),
  );
}

function questions({ questions: asked }: Explain): Child {
  if (!asked?.length) return null;
  const list = el(
    "dl",
    "questions",
    ...asked.flatMap(({ question, answer }) => [el("dt", { text: question }), el("dd", { text: answer })]),
  );
  return el("details", "more", el("summary", { text: `${plural(asked.length, "question")} and answers` }), list);
}

function warnings({ completeness: c }: Explain): Child {
  const found = [
    c.wrapped && "The recording wrapped around: its beginning is missing.",
    c.torn && "The file is torn: its end is missing.",
    c.lost_events > 0 && `${plural(c.lost_events, "event")} were lost.`,
    c.contradictions > 0 && `The file contradicts itself ${plural(c.contradictions, "time")}: ${c.first_contradiction ?? ""}`,
    !c.has_history && "The file has no history, only a state: there is no timeline.",
  ].filter((text) => text !== false);
  return found.length ? el("ul", "warnings", ...found.map((text) => el("li", { text }))) : null;
}

export function summary(panel: Panel): HTMLElement {
  const { explain } = panel;
  const conf = panel.conf ? el("p", "conf", el("span", { text: "settings " }), el("code", {}, breakable(panel.conf))) : null;
  return el(
    "div",
    "summary",
    el("div", "summary-words", verdict(explain), warnings(explain), el("p", { class: "note", text: panel.head }), conf),
    el("div", "summary-figures", figures(panel)),
    advice(explain, panel.marks.failure !== null),
    questions(explain),
  );
}
