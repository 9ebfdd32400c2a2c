// Where on the horizontal axis: by events or by time.

import type { Mark, Timeline } from "../data";
import { count, duration } from "../units";

export type Along = "event" | "time";

export const positions = (timeline: Timeline, along: Along): number[] => (along === "event" ? timeline.event : timeline.time_us);

export const positionOf = (mark: Pick<Mark, "event" | "time_us">, along: Along): number => (along === "event" ? mark.event : mark.time_us);

/** Of the last point at or before x: values hold until the next one. */
export function indexAt(xs: readonly number[], x: number): number {
  let low = 0;
  let high = xs.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (xs[middle]! <= x) low = middle;
    else high = middle - 1;
  }
  return low;
}

export function tickLabels(along: Along, ticks: number[]): string[] {
  if (along === "event") return ticks.map(count);
  const step = (ticks[1] ?? 0) - (ticks[0] ?? 0);
  const [factor, unit] = step >= 1e6 ? [1e6, "s"] : step >= 1e3 ? [1e3, "ms"] : [1, "µs"];
  const digits = Math.max(0, Math.ceil(-Math.log10((step || 1) / factor) - 1e-9));
  return ticks.map((tick) => (tick === 0 ? "0" : `${(tick / factor).toFixed(Math.min(3, digits))} ${unit}`));
}

export const whenOf = (event: number, timeUs: number, hasTimes: boolean): string =>
  hasTimes ? `event ${count(event)} · ${duration(timeUs)}` : `event ${count(event)}`;
