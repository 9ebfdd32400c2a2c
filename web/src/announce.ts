// What a screen reader says of charts, whose pixels tell it nothing.

import { el } from "./dom";

const region = el("div", { class: "unseen", attributes: { "aria-live": "polite", role: "status" } });
let timer = 0;

/** Only the last of a quick series is said. */
export function announce(text: string): void {
  if (!region.isConnected) document.body.append(region);
  clearTimeout(timer);
  timer = setTimeout(() => {
    region.textContent = text;
  }, 150);
}
