// The path of a series whose values hold until the next one.  Where several points share a column of pixels it goes through the first,
// the least, the most and the last of them: the same picture, at a cost that the screen's width bounds.

import type uPlot from "uplot";

interface Column {
  x: number;
  first: number;
  least: number;
  most: number;
  last: number;
}

/** To pixels, by a factor and an offset. */
interface Linear {
  factor: number;
  offset: number;
}

function across({ scales, bbox }: uPlot): Linear {
  const { min = 0, max = 1 } = scales.x ?? {};
  const factor = bbox.width / (max! - min! || 1);
  return { factor, offset: bbox.left - min! * factor };
}

function upwards({ scales, bbox }: uPlot): Linear {
  const { min = 0, max = 1 } = scales.y ?? {};
  const factor = -bbox.height / (max! - min! || 1);
  return { factor, offset: bbox.top + bbox.height - min! * factor };
}

function draw(path: Path2D, column: Column): void {
  const { x, first, least, most, last } = column;
  path.lineTo(x, first);
  if (least !== most) {
    path.lineTo(x, least);
    path.lineTo(x, most);
    path.lineTo(x, last);
  }
}

export const steps: uPlot.Series.PathBuilder = (plot, series, from, to) => {
  const xs = plot.data[0];
  const ys = plot.data[series] as number[];
  const toX = across(plot);
  const toY = upwards(plot);
  const stroke = new Path2D();
  const begin = Math.max(0, from - 1); // its value reaches into sight
  const end = Math.min(xs.length - 1, to + 1);
  let column: Column | undefined;
  for (let i = begin; i <= end; i++) {
    const x = Math.round(xs[i]! * toX.factor + toX.offset);
    const y = Math.round(ys[i]! * toY.factor + toY.offset);
    if (column !== undefined && column.x === x) {
      if (y < column.least) column.least = y;
      if (y > column.most) column.most = y;
      column.last = y;
      continue;
    }
    if (column) {
      draw(stroke, column);
      stroke.lineTo(x, column.last);
    }
    column = { x, first: y, least: y, most: y, last: y };
  }
  if (column) draw(stroke, column);
  const fill = new Path2D(stroke);
  fill.lineTo(column?.x ?? 0, toY.offset);
  fill.lineTo(Math.round(xs[begin]! * toX.factor + toX.offset), toY.offset);
  fill.closePath();
  return { stroke, fill, flags: 0 };
};
