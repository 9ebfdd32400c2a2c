// Where the nodes of the flame graph stand: callers above callees, as wide as their bytes.

import type { Flame } from "../data";

export interface FlameLayout {
  /** Parts of the root's width. */
  x0: Float64Array;
  x1: Float64Array;
  depth: Uint16Array;
  /** The first index behind the node and all below it. */
  end: Uint32Array;
  deepest: number;
}

export function layOutFlame(flame: Flame): FlameLayout {
  const { parent, bytes } = flame;
  const count = parent.length;
  const x0 = new Float64Array(count);
  const x1 = new Float64Array(count);
  const depth = new Uint16Array(count);
  const end = new Uint32Array(count);
  const next = new Float64Array(count); // where the next child begins
  const whole = bytes[0] || 1;
  let deepest = 0;
  for (let i = 0; i < count; i++) {
    const up = parent[i]!;
    x0[i] = up < 0 ? 0 : next[up]!;
    x1[i] = x0[i]! + bytes[i]! / whole;
    next[i] = x0[i]!;
    if (up >= 0) {
      next[up] = x1[i]!;
      depth[i] = depth[up]! + 1;
      deepest = Math.max(deepest, depth[i]!);
    }
  }
  // Preorder: what is below a node follows it, so the last one decides where it ends.
  for (let i = count - 1; i >= 0; i--) {
    end[i] = Math.max(end[i]!, i + 1);
    const up = parent[i]!;
    if (up >= 0) end[up] = Math.max(end[up]!, end[i]!);
  }
  return { x0, x1, depth, end, deepest };
}

export function childrenOf(layout: FlameLayout, node: number): number[] {
  const found: number[] = [];
  for (let i = node + 1; i < layout.end[node]!; i = layout.end[i]!) found.push(i);
  return found;
}

export function isAbove(layout: FlameLayout, above: number, node: number): boolean {
  return above <= node && node < layout.end[above]!;
}
