// The request that was refused, drawn to the scale of the map: it can be held against the idle pieces below.

import type { Moment, Panel } from "../data";
import { el, fill } from "../dom";
import { bytes } from "../units";

const LINES_MOST = 3; // beyond that the number says enough

export interface Request {
  element: HTMLElement;
  /** Draws it for so many bytes across the whole width. */
  scale(lineBytes: number): void;
}

export function makeRequest(panel: Panel): Request & { show(moment: Moment): void } {
  const words = el("span");
  const bars = el("div", "request-bars");
  const element = el("div", "request", words, bars);
  let size = 0;
  return {
    element,
    show(moment) {
      size = moment.name === "failure" ? (panel.marks.failure?.request_bytes ?? 0) : 0;
      element.hidden = size === 0;
    },
    scale(lineBytes) {
      const lines = size / lineBytes;
      words.textContent = `refused: ${bytes(size)}, ${lines > LINES_MOST ? `${Math.ceil(lines)} lines of what is shown` : "to scale"}`;
      fill(bars);
      for (let rest = lines > LINES_MOST ? 0 : size; rest > 0; rest -= lineBytes) {
        const bar = el("i");
        bar.style.width = `${100 * Math.min(1, rest / lineBytes)}%`;
        bars.append(bar);
      }
    },
  };
}
