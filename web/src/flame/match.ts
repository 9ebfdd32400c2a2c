// Which nodes of the flame graph the filters single out, and how many bytes they are.

import type { Flame, Panel } from "../data";
import type { Matcher } from "../match";
import type { FlameLayout } from "./layout";

/** 0 no; 1 on the way to one that matches; 2 itself, or below one that does. */
export type Match = 0 | 1 | 2;

export interface Matches {
  of: Uint8Array;
  bytes: number;
}

function own(flame: Flame, matcher: Matcher, node: number): boolean {
  const frame = flame.frame[node]!;
  return frame >= 0 ? matcher.frame(frame) : node > 0 && matcher.text(flame.label[node]!);
}

export function matchFlame(panel: Panel, layout: FlameLayout, matcher: Matcher, byText: boolean): Matches {
  const { flame } = panel;
  const of = new Uint8Array(flame.parent.length);
  let bytes = 0;
  for (let i = 0; i < of.length; i++) {
    const up = flame.parent[i]!;
    const inText = !byText || own(flame, matcher, i) || (up >= 0 && of[up] === 2);
    if (!inText) continue;
    of[i] = 2;
  }
  for (let i = 0; i < of.length; i++) {
    const isLeaf = layout.end[i] === i + 1;
    if (of[i] === 2 && !matcher.category(flame.category[i]!)) of[i] = isLeaf ? 0 : 1;
  }
  for (let i = of.length - 1; i > 0; i--) {
    const up = flame.parent[i]!;
    if (of[i]! > 0 && of[up] === 0) of[up] = 1;
  }
  for (let i = 0; i < of.length; ) {
    if (of[i] === 2) {
      bytes += flame.bytes[i]!;
      i = layout.end[i]!;
    } else i++;
  }
  return { of, bytes };
}
