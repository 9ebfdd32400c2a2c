// The address map of one panel at one moment: zooming, panning, pointing, walking.

import { select } from "d3-selection";
import { type D3ZoomEvent, type ZoomTransform, zoom, zoomIdentity } from "d3-zoom";
import { announce } from "../announce";
import type { Moment, Panel } from "../data";
import { el } from "../dom";
import { type Matcher, matcher } from "../match";
import type { Store } from "../store";
import { makeSurface, type Surface } from "../surface";
import { hideTooltip, showTooltip } from "../tooltip";
import { cellAtAddress, placeAt } from "./cells";
import { CELL_HEIGHT, drawMap, type Look, lookNow } from "./draw";
import { type Layout, LINE_HEIGHT, layOut, stripsBetween } from "./layout";
import { makeRequest } from "./request";
import { type Direction, middleOf, nextBlock, nextLine, type Spot, spotOf } from "./walk";
import { placeBox, placeSpoken } from "./words";

const ZOOM_MOST = 1 << 16;
const HEIGHT_MOST = 640; // as in the style sheet

/** Powers of two.  A pinch comes as a wheel with Ctrl and small steps; a real wheel with Ctrl has large ones. */
function wheelDelta({ deltaY, deltaMode, ctrlKey }: WheelEvent): number {
  const unit = deltaMode === WheelEvent.DOM_DELTA_LINE ? 0.05 : deltaMode ? 1 : 0.002;
  return -deltaY * unit * (ctrlKey && Math.abs(deltaY) < 20 ? 8 : 1);
}

export class MapView {
  readonly element = el("div", "map");
  #scroller = el("div", {
    class: "map-scroll",
    attributes: { tabindex: 0, role: "application", "aria-roledescription": "address map" },
  });
  /** As high as the whole map; the canvas in its window is only as high as what is in sight. */
  #place = el("div", "map-place");
  #window = el("div", "map-window");
  #surface: Surface;
  #look: Look | null = null;
  #layout: Layout;
  #matcher: Matcher;
  #transform: ZoomTransform = zoomIdentity;
  #selected: Spot | null = null;
  #zoom = zoom<HTMLElement, unknown>();
  #request: ReturnType<typeof makeRequest>;

  constructor(
    private readonly panel: Panel,
    private readonly store: Store,
    private readonly moment: Moment,
  ) {
    this.#layout = layOut(moment);
    this.#matcher = matcher(panel, store.choice);
    this.#place.append(this.#window);
    this.#scroller.append(this.#place);
    this.#request = makeRequest(panel);
    this.element.append(this.#request.element, this.#scroller);
    this.#ofMoment();
    this.#surface = makeSurface(
      this.#window,
      () => Math.min(HEIGHT_MOST, this.#height),
      (surface, resized) => this.#draw(surface, resized),
    );
    this.#scroller.addEventListener("scroll", () => this.#surface.redraw(), { passive: true });
    this.#scroller.addEventListener("keydown", (event) => this.#key(event));
    this.#scroller.addEventListener("blur", hideTooltip);
    this.#listen(this.#place);
  }

  filtersChanged(): void {
    this.#matcher = matcher(this.panel, this.store.choice);
    this.#surface.redraw();
  }

  get lineBytes(): number {
    return this.#layout.lineBytes;
  }

  /** Selects the block at an address and brings it into sight; false: it is in no row. */
  reveal(address: string): boolean {
    const cell = cellAtAddress(this.moment, address);
    if (cell >= 0) this.#choose(spotOf(this.moment, this.#layout, cell));
    return cell >= 0;
  }

  get #height(): number {
    return this.#layout.height + 4;
  }

  #ofMoment(): void {
    this.#place.style.height = `${this.#height}px`;
    this.#request.show(this.moment);
    this.#request.scale(this.#layout.lineBytes / this.#transform.k);
    const { name, segment_count, block_count } = this.moment;
    this.#scroller.setAttribute(
      "aria-label",
      `Address map of ${this.panel.file}, ${name}: ${block_count} blocks in ${segment_count} segments. Arrow keys go from block to block, plus and minus zoom.`,
    );
  }

  #bytesPerPixel(): number {
    return this.#layout.lineBytes / Math.max(1, this.#surface.width) / this.#transform.k;
  }

  #draw(surface: Surface, resized: boolean): void {
    if (resized || !this.#look) {
      this.#look = lookNow(surface.context);
      this.#zoom
        .extent([
          [0, 0],
          [surface.width, 1],
        ])
        .translateExtent([
          [0, -Infinity],
          [surface.width, Infinity],
        ]);
    }
    const top = this.#scroller.scrollTop;
    const { context, width, height } = surface;
    const bytesPerPixel = this.#bytesPerPixel();
    context.clearRect(0, 0, width, height);
    context.save();
    context.translate(0, -top);
    drawMap(context, {
      panel: this.panel,
      moment: this.moment,
      layout: this.#layout,
      matcher: this.#matcher,
      look: this.#look,
      from: -this.#transform.x * bytesPerPixel,
      bytesPerPixel,
      width,
      top,
      bottom: top + height,
      selected: this.#selected?.place ?? null,
    });
    context.restore();
  }

  #listen(place: HTMLElement): void {
    this.#zoom
      .scaleExtent([1, ZOOM_MOST])
      .wheelDelta(wheelDelta)
      .filter((event: MouseEvent) => {
        if (event.type === "wheel") return event.ctrlKey || event.metaKey || document.activeElement === this.#scroller;
        return !event.button;
      })
      .on("zoom", (event: D3ZoomEvent<HTMLElement, unknown>) => this.#zoomed(event));
    select<HTMLElement, unknown>(place).call(this.#zoom).on("dblclick.zoom", null);
    place.addEventListener("dblclick", () => this.#reset());
    place.addEventListener("pointermove", (event) => this.#hover(event));
    place.addEventListener("pointerleave", hideTooltip);
    place.addEventListener("click", (event) => {
      this.#selected = this.#spotAt(event);
      this.#surface.redraw();
    });
  }

  /** Across, the transform moves the map; up and down, dragging scrolls. */
  #zoomed({ transform, sourceEvent }: D3ZoomEvent<HTMLElement, unknown>): void {
    const moved = transform.y - this.#transform.y;
    if (sourceEvent && transform.k === this.#transform.k) this.#scroller.scrollTop -= moved;
    if (transform.k !== this.#transform.k) this.#request.scale(this.#layout.lineBytes / transform.k);
    this.#transform = transform;
    hideTooltip();
    this.#surface.redraw();
  }

  #selection() {
    return select<HTMLElement, unknown>(this.#place);
  }

  #reset(): void {
    this.#zoom.transform(this.#selection(), zoomIdentity);
  }

  #spotAt(event: MouseEvent): Spot | null {
    const { left, top } = this.#surface.element.getBoundingClientRect();
    const y = event.clientY - top + this.#scroller.scrollTop;
    const bytesPerPixel = this.#bytesPerPixel();
    const x = (event.clientX - left - this.#transform.x) * bytesPerPixel;
    const { strips } = this.#layout;
    const [first, end] = stripsBetween(strips, y, y + 1);
    for (let i = first; i < end; i++) {
      const strip = strips[i]!;
      const isIn = x >= strip.x && x < strip.x + Math.max(strip.bytes, bytesPerPixel);
      if (isIn && y < strip.y + CELL_HEIGHT + 4) {
        const offset = Math.min(strip.from + x - strip.x, strip.from + strip.bytes - 1);
        return { place: placeAt(this.moment, strip.row, offset), strip };
      }
    }
    return null;
  }

  #hover(event: PointerEvent): void {
    const spot = event.buttons ? null : this.#spotAt(event);
    if (spot) showTooltip(event.clientX, event.clientY, ...placeBox(this.panel, this.moment, spot.place));
    else hideTooltip();
  }

  #key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = this.#actions()[event.key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }

  #actions(): Record<string, () => void> {
    const scale = (by: number) => () => this.#zoom.scaleBy(this.#selection(), by, [this.#selectedX(), 0]);
    const pan = (by: number) => () => this.#zoom.translateBy(this.#selection(), (by * this.#surface.width) / this.#transform.k, 0);
    return {
      ArrowRight: () => this.#step(1),
      ArrowLeft: () => this.#step(-1),
      ArrowDown: () => this.#line(1),
      ArrowUp: () => this.#line(-1),
      "+": scale(1.7),
      "=": scale(1.7),
      "-": scale(1 / 1.7),
      "[": pan(0.3),
      "]": pan(-0.3),
      "0": () => this.#reset(),
      Escape: () => {
        this.#selected = null;
        hideTooltip();
        this.#surface.redraw();
      },
    };
  }

  #step(direction: Direction): void {
    this.#choose(nextBlock(this.moment, this.#layout, this.#matcher, this.#selected?.place.cell ?? -1, direction));
  }

  #line(direction: Direction): void {
    if (this.#selected) this.#choose(nextLine(this.moment, this.#layout, this.#selected, direction));
    else this.#step(direction);
  }

  #choose(spot: Spot | null): void {
    if (!spot) return;
    this.#selected = spot;
    this.#intoSight(spot);
    announce(placeSpoken(this.panel, this.moment, spot.place));
    if (document.activeElement !== this.#scroller) return;
    const { left, top } = this.#surface.element.getBoundingClientRect();
    const below = spot.strip.y - this.#scroller.scrollTop + LINE_HEIGHT;
    showTooltip(left + this.#selectedX(), top + below, ...placeBox(this.panel, this.moment, spot.place));
  }

  /** In pixels, within the window; its middle without a selection. */
  #selectedX(): number {
    const { width } = this.#surface;
    if (!this.#selected) return width / 2;
    return Math.min(width, Math.max(0, this.#transform.x + middleOf(this.#selected) / this.#bytesPerPixel()));
  }

  #intoSight(spot: Spot): void {
    const { y } = spot.strip;
    const low = y + LINE_HEIGHT - this.#scroller.clientHeight;
    this.#scroller.scrollTop = Math.max(Math.min(this.#scroller.scrollTop, y - LINE_HEIGHT), low);
    const x = middleOf(spot);
    const from = -this.#transform.x * this.#bytesPerPixel();
    const to = from + this.#surface.width * this.#bytesPerPixel();
    if (x < from || x > to) this.#zoom.translateTo(this.#selection(), (x / this.#layout.lineBytes) * this.#surface.width, 0);
    this.#surface.redraw();
  }
}
