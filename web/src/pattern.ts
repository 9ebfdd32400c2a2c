// Fills for canvases: a hue with a fine pattern of its own, so that two that look alike to somebody still differ.

export const PATTERNS = 8;

const SIZE = 8;

function tile(colour: string, scale: number): [HTMLCanvasElement, CanvasRenderingContext2D] {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = SIZE * scale;
  const context = canvas.getContext("2d")!;
  context.scale(scale, scale);
  context.fillStyle = colour;
  context.fillRect(0, 0, SIZE, SIZE);
  return [canvas, context];
}

function lines(context: CanvasRenderingContext2D, ...ends: [number, number, number, number][]): void {
  context.beginPath();
  for (const [x0, y0, x1, y1] of ends) {
    context.moveTo(x0, y0);
    context.lineTo(x1, y1);
  }
  context.stroke();
}

function dots(context: CanvasRenderingContext2D, ...centres: [number, number][]): void {
  for (const [x, y] of centres) {
    context.beginPath();
    context.arc(x, y, 1, 0, 7);
    context.fill();
  }
}

// Lines run over the tile's edges, so that the tiles join.
const DRAW: ((context: CanvasRenderingContext2D) => void)[] = [
  () => {},
  (c) => lines(c, [-2, 2, 2, -2], [-2, 10, 10, -2], [6, 10, 10, 6]),
  (c) => lines(c, [-2, 6, 2, 10], [-2, -2, 10, 10], [6, -2, 10, 2]),
  (c) => dots(c, [2, 2], [6, 6]),
  (c) => lines(c, [0, 2, 8, 2], [0, 6, 8, 6]),
  (c) => lines(c, [2, 0, 2, 8], [6, 0, 6, 8]),
  (c) => lines(c, [-2, -2, 10, 10], [-2, 10, 10, -2]),
  (c) => dots(c, [4, 4]),
];

export function patternTile(colour: string, ink: string, kind: number, scale: number): HTMLCanvasElement {
  const [canvas, context] = tile(colour, scale);
  context.strokeStyle = context.fillStyle = ink;
  context.lineWidth = 0.9;
  DRAW[kind % PATTERNS]!(context);
  return canvas;
}

/** A pattern in device pixels, also where the canvas is scaled: its lines stay fine on any screen. */
export function pattern(context: CanvasRenderingContext2D, colour: string, ink: string, kind: number): CanvasPattern {
  const tile = patternTile(colour, ink, kind, Math.max(1, Math.round(devicePixelRatio)));
  const made = context.createPattern(tile, "repeat")!;
  made.setTransform(new DOMMatrix().scale(1 / context.getTransform().a));
  return made;
}
