// The bands of the timeline: arrays that stand on each other, bottom first.

import { CATEGORIES, type Panel, type Timeline } from "../data";
import { categoryName, categorySwatches, type Swatch, streamSwatches } from "../palette";
import type { Choice } from "../store";

export type Stacking = "category" | "stream";

export interface Band {
  /** Index into CATEGORIES or Panel.streams. */
  index: number;
  name: string;
  values: number[];
  shown: boolean;
}

export function bandsOf(panel: Panel, timeline: Timeline, stacking: Stacking, choice: Choice): Band[] {
  if (stacking === "category") {
    return CATEGORIES.map((_, index) => ({
      index,
      name: categoryName(index),
      values: timeline.by_category[index] ?? [],
      shown: choice.categories.size === 0 || choice.categories.has(index),
    }));
  }
  return panel.streams.map((stream, index) => ({
    index,
    name: stream.name,
    values: timeline.by_stream[index] ?? [],
    shown: choice.streams.size === 0 || choice.streams.has(stream.name),
  }));
}

export const swatchesOf = (panel: Panel, stacking: Stacking): Swatch[] =>
  stacking === "category" ? categorySwatches() : streamSwatches(panel.streams.length);

/** Running sums, one array for each band. */
export function cumulated(bands: Band[], length: number): number[][] {
  let below: number[] | null = null;
  return bands.map(({ values }) => {
    const under: number[] | null = below;
    const sum = new Array<number>(length);
    for (let i = 0; i < length; i++) sum[i] = (under ? under[i]! : 0) + (values[i] ?? 0);
    below = sum;
    return sum;
  });
}
