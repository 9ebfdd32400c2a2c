// The part of an axis that is seen: zooming about a place, panning, never outside the whole.

export interface Window {
  from: number;
  to: number;
}

export function inside({ from, to }: Window, whole: Window, least: number): Window {
  const all = whole.to - whole.from;
  const length = Math.min(all, Math.max(Math.min(least, all), to - from));
  const start = Math.min(Math.max(from, whole.from), whole.to - length);
  return { from: start, to: start + length };
}

/** A factor below 1 shows less; what is at `about` stays where it is. */
export function zoomed({ from, to }: Window, factor: number, about: number): Window {
  return { from: about - (about - from) * factor, to: about + (to - about) * factor };
}

export function panned({ from, to }: Window, by: number): Window {
  const distance = (to - from) * by;
  return { from: from + distance, to: to + distance };
}
