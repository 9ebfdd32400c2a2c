// The peak, the failure and the borders of steps, drawn over the chart; and the moment that the other sections show.

import type uPlot from "uplot";
import type { Panel } from "../data";
import { momentOf } from "../moment";
import { token } from "../palette";
import type { Choice } from "../store";
import { bytes } from "../units";
import { type Along, positionOf } from "./scale";

const ROOM = 4;
const LABEL_HEIGHT = 15;
const BESIDE = 5;

interface Label {
  x: number;
  text: string;
  colour: string;
  dashed: boolean;
  /** On which side of its line the text stands, where there is room. */
  side: "left" | "right";
}

function labels(panel: Panel, along: Along): Label[] {
  const { peak, failure } = panel.marks;
  const found: Label[] = [];
  if (peak) {
    found.push({
      x: positionOf(peak, along),
      text: `peak ${bytes(peak.live_bytes)}`,
      colour: token("ink"),
      dashed: true,
      side: "left",
    });
  }
  if (failure) {
    const times = failure.count > 1 ? `, ${failure.count} times` : "";
    const text = `refused ${bytes(failure.request_bytes)}${times}`;
    found.push({ x: positionOf(failure, along), text, colour: token("bad"), dashed: false, side: "right" });
  }
  return found;
}

/** Labels stand above the plot; one that would run into another goes a line higher. */
function drawLabels(plot: uPlot, found: Label[], scale: number): void {
  const { ctx, bbox } = plot;
  const taken: [number, number][][] = [[], []];
  ctx.font = `600 ${11 * scale}px ${token("sans")}`;
  ctx.textBaseline = "alphabetic";
  for (const { x, text, colour, dashed, side } of found) {
    const at = plot.valToPos(x, "x", true);
    if (at < bbox.left - 1 || at > bbox.left + bbox.width + 1) continue;
    const width = ctx.measureText(text).width;
    const beside = side === "left" ? at - width - BESIDE * scale : at + BESIDE * scale;
    const left = Math.max(bbox.left, Math.min(beside, bbox.left + bbox.width - width));
    const line = taken[0]!.some(([from, to]) => left < to + 8 * scale && left + width > from - 8 * scale) ? 1 : 0;
    taken[line]!.push([left, left + width]);
    const base = bbox.top - (ROOM + line * LABEL_HEIGHT) * scale;
    ctx.fillStyle = ctx.strokeStyle = colour;
    ctx.lineWidth = scale;
    ctx.setLineDash(dashed ? [3 * scale, 3 * scale] : []);
    ctx.beginPath();
    ctx.moveTo(at, base - 9 * scale);
    ctx.lineTo(at, bbox.top + bbox.height);
    ctx.stroke();
    ctx.fillText(text, left, base);
  }
  ctx.setLineDash([]);
}

function drawSteps(plot: uPlot, panel: Panel, along: Along, scale: number): void {
  const timeline = panel.timeline;
  if (along !== "event" || !timeline) return; // of steps only the events are known
  const { ctx, bbox } = plot;
  const bottom = bbox.top + bbox.height;
  ctx.strokeStyle = token("ink-3");
  ctx.lineWidth = scale;
  ctx.beginPath();
  let last = -Infinity;
  for (const step of panel.marks.steps) {
    const at = Math.round(plot.valToPos(step.first, "x", true));
    if (at < bbox.left || at > bbox.left + bbox.width || at - last < 6 * scale) continue;
    ctx.moveTo(at, bottom);
    ctx.lineTo(at, bottom - 6 * scale);
    last = at;
  }
  ctx.stroke();
}

function drawMoment(plot: uPlot, x: number, scale: number): void {
  const { ctx, bbox } = plot;
  const at = plot.valToPos(x, "x", true);
  if (at < bbox.left - 1 || at > bbox.left + bbox.width + 1) return;
  const bottom = bbox.top + bbox.height;
  ctx.fillStyle = token("accent");
  ctx.beginPath();
  ctx.moveTo(at, bottom - 1 * scale);
  ctx.lineTo(at - 5 * scale, bottom + 8 * scale);
  ctx.lineTo(at + 5 * scale, bottom + 8 * scale);
  ctx.fill();
}

function drawCap(plot: uPlot, cap: number, scale: number): void {
  const { ctx, bbox } = plot;
  const at = plot.valToPos(cap, "y", true);
  if (at < bbox.top || at > bbox.top + bbox.height) return;
  ctx.strokeStyle = ctx.fillStyle = token("bad");
  ctx.lineWidth = scale;
  ctx.setLineDash([1 * scale, 3 * scale]);
  ctx.beginPath();
  ctx.moveTo(bbox.left, at);
  ctx.lineTo(bbox.left + bbox.width, at);
  ctx.stroke();
  ctx.setLineDash([]);
  ctx.font = `${10.5 * scale}px ${token("sans")}`;
  ctx.fillText(`cap ${bytes(cap)}`, bbox.left + 4 * scale, at - 4 * scale);
}

export function drawMarks(plot: uPlot, panel: Panel, along: Along, choice: Choice): void {
  const scale = devicePixelRatio || 1;
  const { ctx } = plot;
  ctx.save();
  ctx.textAlign = "left";
  drawSteps(plot, panel, along, scale);
  if (panel.cap_bytes) drawCap(plot, panel.cap_bytes, scale);
  drawLabels(plot, labels(panel, along), scale);
  const at = momentOf(panel, choice);
  if (at) drawMoment(plot, positionOf(at, along), scale);
  ctx.restore();
}
