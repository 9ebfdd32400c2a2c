// A canvas that fits its place: sharp on every screen, drawn at most once a frame, again when its size or the theme changes.

import { el } from "./dom";
import { onTheme } from "./theme";

export interface Surface {
  element: HTMLCanvasElement;
  context: CanvasRenderingContext2D;
  width: number;
  height: number;
  redraw(): void;
}

export function makeSurface(
  place: HTMLElement,
  height: (width: number) => number,
  draw: (surface: Surface, resized: boolean) => void,
): Surface {
  const element = el("canvas", { attributes: { "aria-hidden": "true" } });
  place.append(element);
  let asked = 0;
  let resized = true;
  const surface: Surface = { element, context: element.getContext("2d")!, width: 0, height: 0, redraw };

  function fit(): void {
    const width = place.clientWidth;
    const tall = height(width);
    const scale = devicePixelRatio || 1;
    if (element.width !== Math.round(width * scale) || element.height !== Math.round(tall * scale)) {
      element.width = Math.round(width * scale);
      element.height = Math.round(tall * scale);
      element.style.width = `${width}px`;
      element.style.height = `${tall}px`;
      resized = true;
    }
    surface.width = width;
    surface.height = tall;
    surface.context.setTransform(scale, 0, 0, scale, 0, 0);
  }
  function paint(): void {
    asked = 0;
    fit();
    if (surface.width > 0) draw(surface, resized);
    resized = false;
  }
  function paintNow(): void {
    if (asked) cancelAnimationFrame(asked);
    paint();
  }
  function redraw(): void {
    asked ||= requestAnimationFrame(paint);
  }
  new ResizeObserver(paintNow).observe(place); // before the frame in which the size is another
  onTheme(element, () => {
    resized = true;
    paintNow(); // paper does not wait for a frame
  });
  return surface;
}
