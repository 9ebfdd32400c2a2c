// How the timelines are drawn, to be chosen over them.

import type { Panel } from "../data";
import { makeChoices } from "../section";
import type { Manner } from "./chart";
import type { Along } from "./scale";
import type { Stacking } from "./stack";

const STACKINGS: [Stacking, string][] = [
  ["category", "By category"],
  ["stream", "By stream"],
];
const ALONG: [Along, string][] = [
  ["event", "Events"],
  ["time", "Time"],
];
const HEIGHTS: ["same" | "own", string][] = [
  ["same", "Same height"],
  ["own", "Own"],
];

export interface Controls {
  elements: HTMLElement[];
  /** Hides what makes no difference for these panels. */
  suit(panels: readonly Panel[]): void;
  setStacking(stacking: Stacking): void;
}

export function makeControls(start: Manner, change: (part: Partial<Manner>) => void): Controls {
  const heights = makeChoices("Height", HEIGHTS, "same", (value) => change({ ownTop: value === "own" }));
  const stacking = makeChoices("Stacked by", STACKINGS, start.stacking, (value) => change({ stacking: value }));
  const along = makeChoices("Along", ALONG, start.along, (value) => change({ along: value }));
  return {
    elements: [heights.element, stacking.element, along.element],
    suit(panels) {
      heights.element.hidden = panels.length < 2;
      stacking.element.hidden = panels.every(({ timeline }) => !timeline);
      along.element.hidden = panels.every(({ duration_us, timeline }) => duration_us === 0 || !timeline);
    },
    setStacking: stacking.set,
  };
}
