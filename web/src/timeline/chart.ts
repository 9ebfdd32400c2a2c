// The chart itself: bands, lines, axes.  uPlot draws; this says what.

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import type { Panel, Timeline } from "../data";
import { token } from "../palette";
import { pattern } from "../pattern";
import type { Choice } from "../store";
import { themed } from "../theme";
import { bytes } from "../units";
import { drawMarks } from "./marks";
import { type Along, positions, tickLabels } from "./scale";
import { bandsOf, cumulated, type Stacking, swatchesOf } from "./stack";
import { steps } from "./steps";

const HEIGHT = 300;
const RIGHT = 22; // half of the last label; the overview has the same in the style sheet
const POWERS = Array.from({ length: 52 }, (_, power) => 2 ** power);

export interface Manner {
  stacking: Stacking;
  along: Along;
  /** Of the vertical axis, so that two files are drawn to one scale. */
  top: number;
  /** Each to a scale of its own instead. */
  ownTop: boolean;
}

export interface ChartHooks {
  choice(): Choice;
  cursor(index: number | null): void;
  zoomed(from: number, to: number): void;
}

/** The top of the vertical axis that shows all of these panels. */
export function topOf(panels: readonly Panel[]): number {
  return panels.reduce((most, { peak_held_bytes, peak_live_bytes }) => Math.max(most, peak_held_bytes ?? 0, peak_live_bytes), 1);
}

/** The bands come top first: each is filled to the bottom, and the next one covers what is not its own. */
function seriesOf(panel: Panel, timeline: Timeline, manner: Manner, choice: Choice) {
  const bands = bandsOf(panel, timeline, manner.stacking, choice).filter(({ shown }) => shown);
  const sums = cumulated(bands, timeline.event.length);
  const data: (number[] | null)[] = [];
  const series: uPlot.Series[] = [];
  const fills = themed((context: CanvasRenderingContext2D) =>
    swatchesOf(panel, manner.stacking).map(({ colour, ink, pattern: kind }) => pattern(context, colour, ink, kind)),
  );
  for (let i = bands.length - 1; i >= 0; i--) {
    const { index, name } = bands[i]!;
    data.push(sums[i]!);
    series.push({
      label: name,
      paths: steps,
      width: 0,
      points: { show: false },
      fill: ({ ctx }) => fills(ctx)[index] as unknown as string,
    });
  }
  return { data, series };
}

function line(label: string, colour: string, dash: number[] = []): uPlot.Series {
  return { label, paths: steps, width: 1.25, dash, stroke: () => token(colour), points: { show: false } };
}

function axes(along: Along): uPlot.Axis[] {
  const shared: uPlot.Axis = {
    stroke: () => token("ink-3"),
    grid: { stroke: () => token("line"), width: 1 },
    ticks: { stroke: () => token("line-2"), width: 1, size: 5 },
    font: `11px ${token("sans")}`,
  };
  const across: uPlot.Axis = {
    ...shared,
    grid: { show: false },
    gap: 5,
    size: 32,
    space: 84,
    values: (_, ticks) => tickLabels(along, ticks),
  };
  const up: uPlot.Axis = {
    ...shared,
    scale: "y",
    size: 66,
    gap: 6,
    space: 36,
    incrs: POWERS,
    values: (_, ticks) => ticks.map((tick) => (tick === 0 ? "0" : bytes(tick))),
  };
  return [across, up];
}

export function makeChart(place: HTMLElement, panel: Panel, timeline: Timeline, manner: Manner, hooks: ChartHooks): uPlot {
  const { data, series } = seriesOf(panel, timeline, manner, hooks.choice());
  const lines = [line("needed", "ideal-line", [4, 3])];
  const values: number[][] = [timeline.needed_bytes];
  if (timeline.held_bytes) {
    lines.push(line("held", "held-line"));
    values.push(timeline.held_bytes);
  }
  const options: uPlot.Options = {
    width: Math.max(200, place.clientWidth),
    height: HEIGHT,
    padding: [34, RIGHT, 0, 0],
    legend: { show: false },
    scales: { x: { time: false }, y: { range: [0, (manner.ownTop ? topOf([panel]) : manner.top) * 1.04] } },
    axes: axes(manner.along),
    series: [{}, ...series, ...lines],
    cursor: { y: false, points: { show: false }, drag: { x: true, y: false, setScale: true, dist: 4 } },
    hooks: {
      draw: [(plot) => drawMarks(plot, panel, manner.along, hooks.choice())],
      setCursor: [(plot) => hooks.cursor(plot.cursor.idx ?? null)],
      setScale: [
        (plot, key) => {
          if (key === "x") hooks.zoomed(plot.scales.x!.min ?? 0, plot.scales.x!.max ?? 0);
        },
      ],
    },
  };
  const table = [positions(timeline, manner.along), ...data, ...values] as uPlot.AlignedData;
  return new uPlot(options, table, place);
}
