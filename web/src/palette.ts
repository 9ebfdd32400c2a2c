// Which colour and pattern stand for what.  Colours come from the style sheet, so that both themes are kept in one place.

import { CATEGORIES, type Category } from "./data";
import { patternTile } from "./pattern";
import { themed } from "./theme";

const CATEGORY_HUES: Record<Category, string> = {
  weights: "blue",
  gradients: "vermillion",
  activations: "green",
  optimiser_states: "purple",
  temporary_buffers: "orange",
  unknown: "grey",
};

const CATEGORY_NAMES: Record<Category, string> = {
  weights: "weights",
  gradients: "gradients",
  activations: "activations",
  optimiser_states: "optimiser states",
  temporary_buffers: "temporary buffers",
  unknown: "unknown",
};

const CATEGORY_PATTERNS = [0, 6, 1, 4, 3, 2];
const STREAM_HUES = ["sky", "orange", "green", "purple", "blue", "vermillion", "yellow", "grey"];

export interface Swatch {
  colour: string;
  /** Of the pattern's lines. */
  ink: string;
  pattern: number;
}

export const categoryName = (index: number): string => CATEGORY_NAMES[CATEGORIES[index] ?? "unknown"];

const tokens = themed(() => new Map<string, string>());

/** A value of the style sheet. */
export function token(name: string): string {
  const known = tokens(null).get(name);
  if (known !== undefined) return known;
  const value = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  tokens(null).set(name, value);
  return value;
}

const ink = (): string => (document.documentElement.dataset.theme === "dark" ? "rgb(0 0 0 / 26%)" : "rgb(255 255 255 / 42%)");

export const categorySwatches = (): Swatch[] =>
  CATEGORIES.map((name, index) => ({
    colour: token(`hue-${CATEGORY_HUES[name]}`),
    ink: ink(),
    pattern: CATEGORY_PATTERNS[index]!,
  }));

export const streamSwatches = (count: number): Swatch[] =>
  Array.from({ length: count }, (_, index) => ({
    colour: token(`hue-${STREAM_HUES[index % STREAM_HUES.length]}`),
    ink: ink(),
    pattern: (index + Math.floor(index / STREAM_HUES.length)) % 7,
  }));

/** A small square for legends. */
export function swatchElement(swatch: Swatch): HTMLCanvasElement {
  const canvas = patternTile(swatch.colour, swatch.ink, swatch.pattern, 2);
  canvas.className = "swatch";
  canvas.setAttribute("aria-hidden", "true");
  return canvas;
}

/** Black or white, whichever can be read on a colour of the form #rrggbb. */
export function legible(ground: string): string {
  const [red, green, blue] = [1, 3, 5].map((at) => (Number.parseInt(ground.slice(at, at + 2), 16) / 255) ** 2.2) as [
    number,
    number,
    number,
  ];
  const light = 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  return light > 0.179 ? "#101214" : "#ffffff";
}
