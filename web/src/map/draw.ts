// Draws the address map: headings, segments, blocks as cells, chunks as a strip under them.  Of cells that are narrower than a pixel
// one a pixel is drawn, so a frame costs what the screen shows, not what the file has.

import type { Moment, Panel } from "../data";
import type { Matcher } from "../match";
import { categorySwatches, legible, token } from "../palette";
import { pattern } from "../pattern";
import { bytes } from "../units";
import { cellsBetween, type Place } from "./cells";
import { HEADING_HEIGHT, type Layout, type Strip, stripsBetween } from "./layout";
import { arenaFigures, arenaName } from "./words";

export const CELL_HEIGHT = 13;
const CHUNK_TOP = CELL_HEIGHT + 1;
const CHUNK_HEIGHT = 2;
const PATTERN_FROM = 7; // pixels: narrower cells are plain
const LABEL_FROM = 68;

/** What the theme gives, asked for once a theme. */
export interface Look {
  plain: string[];
  patterns: CanvasPattern[];
  idle: string;
  ink: string;
  ink2: string;
  ink3: string;
  panel: string;
  chunk: string;
  accent: string;
  /** Of the text on each of plain. */
  labels: string[];
  sans: string;
}

export function lookNow(context: CanvasRenderingContext2D): Look {
  const swatches = categorySwatches();
  return {
    plain: swatches.map(({ colour }) => colour),
    patterns: swatches.map(({ colour, ink, pattern: kind }) => pattern(context, colour, ink, kind)),
    idle: token("idle"),
    ink: token("ink"),
    ink2: token("ink-2"),
    ink3: token("ink-3"),
    panel: token("panel"),
    chunk: token("line-2"),
    accent: token("accent"),
    labels: swatches.map(({ colour }) => legible(colour)),
    sans: token("sans"),
  };
}

export interface Scene {
  panel: Panel;
  moment: Moment;
  layout: Layout;
  matcher: Matcher;
  look: Look;
  /** Bytes of a line at the left edge, and bytes a pixel. */
  from: number;
  bytesPerPixel: number;
  width: number;
  /** The part that is in sight. */
  top: number;
  bottom: number;
  selected: Place | null;
}

function drawHeadings(context: CanvasRenderingContext2D, scene: Scene): void {
  const { look, panel, moment } = scene;
  context.textBaseline = "alphabetic";
  for (const { arena, y } of scene.layout.headings) {
    if (y + HEADING_HEIGHT < scene.top || y > scene.bottom) continue;
    const of = moment.arenas[arena]!;
    context.font = `600 11.5px ${look.sans}`;
    context.fillStyle = look.ink2;
    const name = arenaName(panel, of);
    context.fillText(name, 0, y + 18);
    const after = context.measureText(name).width + 10;
    context.font = `11.5px ${look.sans}`;
    context.fillStyle = look.ink3;
    context.fillText(arenaFigures(of), after, y + 18);
  }
}

interface Seen {
  x0: number;
  x1: number;
  /** Pixels to bytes of the segment, by x = (offset - origin) / bytesPerPixel. */
  origin: number;
}

function seen(scene: Scene, strip: Strip): Seen | null {
  const x0 = (strip.x - scene.from) / scene.bytesPerPixel;
  const x1 = x0 + strip.bytes / scene.bytesPerPixel;
  if (x1 < 0 || x0 > scene.width) return null;
  return { x0: Math.max(0, x0), x1: Math.min(scene.width, x1), origin: strip.from - strip.x + scene.from };
}

function drawChunks(context: CanvasRenderingContext2D, scene: Scene, strip: Strip, { x0, x1, origin }: Seen): void {
  const page = scene.moment.rows.page_bytes[strip.row]! / scene.bytesPerPixel;
  context.fillStyle = scene.look.chunk;
  if (page < 3) {
    context.fillRect(x0, strip.y + CHUNK_TOP, Math.max(1, x1 - x0 - 0.5), CHUNK_HEIGHT);
    return;
  }
  const zero = -origin / scene.bytesPerPixel; // where the segment begins, perhaps far to the left
  for (let i = Math.floor((x0 - zero) / page); zero + i * page < x1; i++) {
    const from = Math.max(x0, zero + i * page);
    const to = Math.min(x1, zero + (i + 1) * page - 1);
    if (to > from) context.fillRect(from, strip.y + CHUNK_TOP, to - from, CHUNK_HEIGHT);
  }
}

function cellFill(scene: Scene, cell: number, width: number): string | CanvasPattern {
  const category = scene.moment.cells.category[cell]!;
  return width >= PATTERN_FROM ? scene.look.patterns[category]! : scene.look.plain[category]!;
}

function drawLabel(context: CanvasRenderingContext2D, scene: Scene, cell: number, x: number, y: number, width: number): void {
  const text = bytes(scene.moment.cells.bytes[cell]!);
  context.font = `10px ${scene.look.sans}`;
  const wide = context.measureText(text).width;
  if (wide + 8 > width) return;
  context.fillStyle = scene.look.plain[scene.moment.cells.category[cell]!]!;
  context.fillRect(x + 2, y + 2, wide + 4, CELL_HEIGHT - 4);
  context.fillStyle = scene.look.labels[scene.moment.cells.category[cell]!]!;
  context.fillText(text, x + 4, y + 10);
}

function drawCell(context: CanvasRenderingContext2D, scene: Scene, cell: number, x: number, y: number, width: number): void {
  const { cells } = scene.moment;
  const state = cells.state[cell]!;
  context.fillStyle = cellFill(scene, cell, width);
  if (state === 2) {
    // Merged: as high as its share of live bytes.
    const high = Math.max(2, Math.round((CELL_HEIGHT * cells.live_bytes[cell]!) / cells.bytes[cell]!));
    context.fillRect(x, y + CELL_HEIGHT - high, width, high);
    return;
  }
  context.fillRect(x, y, width, CELL_HEIGHT);
  if (state === 1) {
    context.fillStyle = scene.look.panel;
    context.fillRect(x, y + 3, width, CELL_HEIGHT - 6);
  } else if (width > LABEL_FROM && context.globalAlpha === 1) {
    drawLabel(context, scene, cell, x, y, width);
  }
}

function drawStrip(context: CanvasRenderingContext2D, scene: Scene, strip: Strip): void {
  const at = seen(scene, strip);
  if (!at) return;
  const { x0, x1, origin } = at;
  const { bytesPerPixel, moment, matcher } = scene;
  const { offset_bytes, bytes: length, category, site } = moment.cells;
  context.fillStyle = scene.look.idle;
  context.fillRect(x0, strip.y, Math.max(1, x1 - x0 - 0.5), CELL_HEIGHT);
  drawChunks(context, scene, strip, at);
  const streamMatches = matcher.stream(moment.arenas[moment.rows.arena[strip.row]!]!.stream);
  const [begin, end] = cellsBetween(moment, strip.row, origin + x0 * bytesPerPixel, origin + x1 * bytesPerPixel);
  let drawn = -1; // right edge of what is drawn
  let alpha = 1;
  for (let i = begin; i < end; i++) {
    const left = Math.max(x0, (offset_bytes[i]! - origin) / bytesPerPixel);
    const right = Math.min(x1, (offset_bytes[i]! + length[i]! - origin) / bytesPerPixel);
    if (right - drawn < 0.7 && drawn >= 0) continue;
    const passes = matcher.all || (streamMatches && matcher.category(category[i]!) && matcher.site(site[i]!));
    if (alpha !== (passes ? 1 : 0.14)) {
      alpha = passes ? 1 : 0.14;
      context.globalAlpha = alpha;
    }
    const from = Math.max(left, drawn);
    const width = Math.max(1, right - from - (right - from > 3 ? 1 : 0));
    drawCell(context, scene, i, from, strip.y, width);
    drawn = Math.max(right, from + width);
  }
  if (alpha !== 1) context.globalAlpha = 1;
}

function drawSelected(context: CanvasRenderingContext2D, scene: Scene, strip: Strip, place: Place): void {
  const at = seen(scene, strip);
  if (strip.row !== place.row || !at) return;
  const from = Math.max(at.x0, (place.from - at.origin) / scene.bytesPerPixel);
  const to = Math.min(at.x1, (place.from + place.bytes - at.origin) / scene.bytesPerPixel);
  if (to < from) return;
  context.lineWidth = 2;
  context.strokeStyle = scene.look.panel;
  context.strokeRect(from - 2.5, strip.y - 2.5, Math.max(3, to - from) + 5, CELL_HEIGHT + 5);
  context.strokeStyle = scene.look.ink;
  context.strokeRect(from - 1, strip.y - 1, Math.max(3, to - from) + 2, CELL_HEIGHT + 2);
}

export function drawMap(context: CanvasRenderingContext2D, scene: Scene): void {
  drawHeadings(context, scene);
  const { strips } = scene.layout;
  const [first, end] = stripsBetween(strips, scene.top, scene.bottom);
  for (let i = first; i < end; i++) drawStrip(context, scene, strips[i]!);
  if (scene.selected) for (let i = first; i < end; i++) drawSelected(context, scene, strips[i]!, scene.selected);
}
