// Draws the flame graph: a box for each call that is at least a pixel wide.

import { CATEGORIES, type Panel } from "../data";
import { frameName } from "../frames";
import { categoryName, categorySwatches, token } from "../palette";
import { bytes, percent } from "../units";
import type { FlameLayout } from "./layout";
import type { Matches } from "./match";

export const BOX_HEIGHT = 20;

export interface FlameLook {
  hues: string[];
  ink: string;
  ink3: string;
  panel: string;
  root: string;
  dim: string;
  sans: string;
}

export function flameLook(): FlameLook {
  return {
    hues: categorySwatches().map(({ colour }) => colour),
    ink: token("ink"),
    ink3: token("ink-3"),
    panel: token("panel"),
    root: token("idle"),
    dim: token("hole"),
    sans: token("sans"),
  };
}

export interface FlameScene {
  panel: Panel;
  layout: FlameLayout;
  look: FlameLook;
  matches: Matches | null;
  /** The node that is as wide as the screen. */
  focus: number;
  selected: number;
  width: number;
}

export function nodeName(panel: Panel, node: number): string {
  const frame = panel.flame.frame[node]!;
  if (frame >= 0) return frameName(panel.frames, frame);
  const label = panel.flame.label[node] || "all";
  const category = (CATEGORIES as readonly string[]).indexOf(label);
  return category >= 0 ? categoryName(category) : label;
}

/** The pixels from and to which a node reaches; what is above the focus reaches over everything. */
export function extent(scene: FlameScene, node: number): [number, number] {
  const { layout, focus, width } = scene;
  const scale = width / (layout.x1[focus]! - layout.x0[focus]! || 1);
  const from = (layout.x0[node]! - layout.x0[focus]!) * scale;
  const to = (layout.x1[node]! - layout.x0[focus]!) * scale;
  return [Math.max(0, from), Math.min(width, to)];
}

/** As much of the text as fits, cut with an ellipsis. */
function fitted(context: CanvasRenderingContext2D, text: string, width: number): string {
  if (context.measureText(text).width <= width) return text;
  let low = 0;
  let high = text.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(`${text.slice(0, middle)}…`).width <= width) low = middle;
    else high = middle - 1;
  }
  return low > 1 ? `${text.slice(0, low)}…` : "";
}

function drawText(context: CanvasRenderingContext2D, scene: FlameScene, node: number, x: number, y: number, width: number): void {
  const { flame } = scene.panel;
  const size = width > 220 ? `${bytes(flame.bytes[node]!)}  ${percent(flame.bytes[node]!, flame.bytes[0]!)}` : "";
  const taken = size ? context.measureText(size).width + 14 : 0;
  context.fillStyle = scene.look.ink;
  context.fillText(fitted(context, nodeName(scene.panel, node), width - taken - 9), x + 5, y + 14);
  if (size) context.fillText(size, x + width - taken + 8, y + 14);
}

function drawBox(context: CanvasRenderingContext2D, scene: FlameScene, node: number, x: number, y: number, width: number): void {
  const { look, matches, panel } = scene;
  const match = matches ? matches.of[node]! : 2;
  const isAll = node === 0;
  context.fillStyle = isAll ? look.root : match ? look.hues[panel.flame.category[node]!]! : look.dim;
  context.globalAlpha = isAll ? 1 : match === 2 ? 0.46 : match === 1 ? 0.16 : 1;
  context.fillRect(x, y, width, BOX_HEIGHT - 1);
  context.globalAlpha = 1;
  if (width > 28) drawText(context, scene, node, x, y, width);
}

export function drawFlame(context: CanvasRenderingContext2D, scene: FlameScene, height: number): void {
  const { layout, focus, width } = scene;
  context.clearRect(0, 0, width, height);
  context.font = `11.5px ${scene.look.sans}`;
  context.textBaseline = "alphabetic";
  const { parent } = scene.panel.flame;
  for (let up = parent[focus]!; up >= 0; up = parent[up]!) drawBox(context, scene, up, 0, layout.depth[up]! * BOX_HEIGHT, width);
  for (let i = focus; i < layout.end[focus]!; ) {
    const [from, to] = extent(scene, i);
    if (to - from < 0.6) {
      i = layout.end[i]!;
      continue;
    }
    drawBox(context, scene, i, from, layout.depth[i]! * BOX_HEIGHT, Math.max(0.6, to - from - (to - from > 3 ? 1 : 0)));
    i++;
  }
  drawSelected(context, scene);
}

function drawSelected(context: CanvasRenderingContext2D, scene: FlameScene): void {
  if (scene.selected < 0) return;
  const [from, to] = extent(scene, scene.selected);
  if (to < from) return;
  context.strokeStyle = scene.look.ink;
  context.lineWidth = 2;
  const y = scene.layout.depth[scene.selected]! * BOX_HEIGHT;
  context.strokeRect(from + 1, y + 1, Math.max(2, to - from - 2), BOX_HEIGHT - 3);
}
