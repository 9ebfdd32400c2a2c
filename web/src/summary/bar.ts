// What is held, as one bar: live, pending, idle that can go back, idle that cannot.

import type { Explain } from "../data";
import { el } from "../dom";
import { bytes, percent } from "../units";

interface Part {
  kind: string;
  name: string;
  bytes: number;
}

export function heldBar(explain: Explain): HTMLElement | null {
  const { held_bytes, live_bytes, pending_bytes, idle_returnable_bytes, idle_stuck_bytes } = explain;
  if (!held_bytes) return null;
  const parts: Part[] = [
    { kind: "live", name: "live", bytes: live_bytes - pending_bytes },
    { kind: "pending", name: "pending", bytes: pending_bytes },
    { kind: "stuck", name: "idle, stuck between live blocks", bytes: idle_stuck_bytes },
    { kind: "returnable", name: "idle, can go back", bytes: idle_returnable_bytes },
  ].filter((part) => part.bytes > 0);
  const bar = el("div", { class: "held-bar", attributes: { "aria-hidden": "true" } });
  const legend = el("ul", { class: "held-legend", attributes: { "aria-label": "What is held" } });
  for (const { kind, name, bytes: size } of parts) {
    const piece = el("span", `part ${kind}`);
    piece.style.flexGrow = String(size);
    bar.append(piece);
    legend.append(
      el(
        "li",
        {},
        el("i", { class: `key ${kind}`, attributes: { "aria-hidden": "true" } }),
        el("span", { class: "name", text: name }),
        el("span", { class: "value", text: bytes(size) }),
        el("span", { class: "share", text: percent(size, held_bytes) }),
      ),
    );
  }
  return el("div", "held-parts", bar, legend);
}
