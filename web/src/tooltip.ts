// The box beside the pointer, or beside what the keyboard has selected.  One for the page.

import { type Child, el, fill } from "./dom";

const GAP = 14;
const box = el("div", { class: "tooltip", attributes: { role: "tooltip", hidden: "" } });

export function showTooltip(x: number, y: number, ...content: Child[]): void {
  if (!box.isConnected) document.body.append(box);
  fill(box, ...content);
  box.hidden = false;
  const { width, height } = box.getBoundingClientRect();
  const left = x + GAP + width > innerWidth ? Math.max(8, x - GAP - width) : x + GAP;
  const top = y + GAP + height > innerHeight ? Math.max(8, y - GAP - height) : y + GAP;
  box.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
}

export function hideTooltip(): void {
  box.hidden = true;
}

/** Rows of a name and a value; those without a value are left out. */
export function facts(...rows: [string, string | null | undefined][]): HTMLElement {
  const list = el("dl", "facts");
  for (const [name, value] of rows) {
    if (value) list.append(el("dt", { text: name }), el("dd", { text: value }));
  }
  return list;
}
