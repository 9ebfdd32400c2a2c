// The strip under the chart: all of the history, and over it the window that the chart shows, to be dragged.

import type { Timeline } from "../data";
import { el } from "../dom";
import { token } from "../palette";
import { makeSurface, type Surface } from "../surface";
import type { Window } from "./window";

const HEIGHT = 30;

export interface Overview {
  element: HTMLElement;
  show(window: Window): void;
}

function silhouette(surface: Surface, xs: number[], values: number[], whole: Window): void {
  const { context, width, height } = surface;
  const top = values.reduce((most, value) => Math.max(most, value), 1);
  const x = (value: number) => ((value - whole.from) / (whole.to - whole.from || 1)) * width;
  const y = (value: number) => height - (value / top) * (height - 3);
  context.beginPath();
  context.moveTo(0, height);
  for (let i = 0; i < xs.length; i++) {
    context.lineTo(x(xs[i]!), i ? y(values[i - 1]!) : height);
    context.lineTo(x(xs[i]!), y(values[i]!));
  }
  context.lineTo(width, height);
  context.fillStyle = token("line-2");
  context.fill();
}

function shade(surface: Surface, window: Window, whole: Window): void {
  const { context, width, height } = surface;
  const scale = width / (whole.to - whole.from || 1);
  const from = (window.from - whole.from) * scale;
  const to = Math.max(from + 2, (window.to - whole.from) * scale);
  context.globalAlpha = 0.72;
  context.fillStyle = token("panel");
  context.fillRect(0, 0, from, height);
  context.fillRect(to, 0, width - to, height);
  context.globalAlpha = 1;
  if (from < 0.5 && to > width - 0.5) return;
  context.strokeStyle = token("accent");
  context.strokeRect(from + 0.5, 0.5, to - from - 1, height - 1);
}

/** Dragging moves the window; pressing outside it first brings its middle there. */
function follow(element: HTMLElement, whole: Window, current: () => Window, move: (window: Window) => void): void {
  let grip: number | null = null;
  const at = (event: PointerEvent) => {
    const { left, width } = element.getBoundingClientRect();
    return whole.from + ((event.clientX - left) / width) * (whole.to - whole.from);
  };
  const drag = (event: PointerEvent) => {
    if (grip === null) return;
    const { from, to } = current();
    const start = at(event) - grip;
    move({ from: start, to: start + to - from });
  };
  element.addEventListener("pointerdown", (event) => {
    const { from, to } = current();
    const x = at(event);
    grip = x >= from && x <= to ? x - from : (to - from) / 2;
    element.setPointerCapture(event.pointerId);
    drag(event);
  });
  element.addEventListener("pointermove", drag);
  element.addEventListener("pointerup", () => {
    grip = null;
  });
}

export function makeOverview(xs: number[], timeline: Timeline, whole: Window, move: (window: Window) => void): Overview {
  const element = el("div", { class: "overview", attributes: { "aria-hidden": "true" } });
  let shown = whole;
  const surface = makeSurface(
    element,
    () => HEIGHT,
    (drawn) => {
      drawn.context.clearRect(0, 0, drawn.width, drawn.height);
      silhouette(drawn, xs, timeline.live_bytes, whole);
      shade(drawn, shown, whole);
    },
  );
  follow(element, whole, () => shown, move);
  return {
    element,
    show(window) {
      shown = window;
      surface.redraw();
    },
  };
}
