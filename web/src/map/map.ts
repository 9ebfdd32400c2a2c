// Section: what stands where in the memory, at the chosen moment of one panel.

import { select } from "d3-selection";
import { type D3ZoomEvent, type ZoomTransform, zoom, zoomIdentity } from "d3-zoom";
import { announce } from "../announce";
import type { Moment, Panel } from "../data";
import { el } from "../dom";
import { type Matcher, matcher } from "../match";
import type { Store } from "../store";
import { makeSurface, type Surface } from "../surface";
import { hideTooltip, showTooltip } from "../tooltip";
import { cellAtAddress, type Place, placeAt, rowOfCell } from "./cells";
import { CELL_HEIGHT, drawMap, type Look, lookNow } from "./draw";
import { type Layout, LINE_HEIGHT, layOut, type Strip, stripsBetween } from "./layout";
import { makeRequest } from "./request";
import { placeBox, placeSpoken } from "./words";

const ZOOM_MOST = 1 << 16;

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
  #surface: Surface;
  #look: Look | null = null;
  #layout: Layout;
  #matcher: Matcher;
  #transform: ZoomTransform = zoomIdentity;
  #selected: Place | null = null;
  #zoom = zoom<HTMLElement, unknown>();
  #request: ReturnType<typeof makeRequest>;

  constructor(
    private readonly panel: Panel,
    private readonly store: Store,
    private moment: Moment,
  ) {
    this.#layout = layOut(moment);
    this.#matcher = matcher(panel, store.choice);
    const place = el("div", "map-place");
    this.#scroller.append(place);
    this.#request = makeRequest(panel);
    this.element.append(this.#request.element, this.#scroller);
    this.#ofMoment();
    this.#surface = makeSurface(
      place,
      () => this.#layout.height + 4,
      (surface, resized) => this.#draw(surface, resized),
    );
    this.#scroller.addEventListener("scroll", () => this.#surface.redraw(), { passive: true });
    this.#scroller.addEventListener("keydown", (event) => this.#key(event));
    this.#scroller.addEventListener("blur", hideTooltip);
    this.#listen(place);
  }

  show(moment: Moment): void {
    this.moment = moment;
    this.#layout = layOut(moment);
    this.#selected = null;
    this.#ofMoment();
    this.#reset();
    this.#surface.redraw();
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
    if (cell < 0) return false;
    this.#select(cell);
    return true;
  }

  #ofMoment(): void {
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
    const bottom = resized ? this.#layout.height + 4 : top + this.#scroller.clientHeight;
    const bytesPerPixel = this.#bytesPerPixel();
    drawMap(surface.context, {
      panel: this.panel,
      moment: this.moment,
      layout: this.#layout,
      matcher: this.#matcher,
      look: this.#look,
      from: -this.#transform.x * bytesPerPixel,
      bytesPerPixel,
      width: surface.width,
      top: resized ? 0 : top,
      bottom,
      selected: this.#selected,
    });
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
      this.#selected = this.#placeAt(event);
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
    return select<HTMLElement, unknown>(this.#surface.element.parentElement!);
  }

  #reset(): void {
    this.#zoom.transform(this.#selection(), zoomIdentity);
  }

  #placeAt(event: MouseEvent): Place | null {
    const { left, top } = this.#surface.element.getBoundingClientRect();
    const y = event.clientY - top;
    const bytesPerPixel = this.#bytesPerPixel();
    const x = (event.clientX - left - this.#transform.x) * bytesPerPixel;
    const { strips } = this.#layout;
    const [first, end] = stripsBetween(strips, y, y + 1);
    for (let i = first; i < end; i++) {
      const strip = strips[i]!;
      const isIn = x >= strip.x && x < strip.x + Math.max(strip.bytes, bytesPerPixel);
      if (isIn && y < strip.y + CELL_HEIGHT + 4) {
        return placeAt(this.moment, strip.row, Math.min(strip.from + x - strip.x, strip.from + strip.bytes - 1));
      }
    }
    return null;
  }

  #hover(event: PointerEvent): void {
    const place = event.buttons ? null : this.#placeAt(event);
    if (place) showTooltip(event.clientX, event.clientY, ...placeBox(this.panel, this.moment, place));
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

  /** To the next block that the filters let through. */
  #step(direction: 1 | -1): void {
    const { cells, rows, arenas } = this.moment;
    const passes = (cell: number) =>
      this.#matcher.all ||
      (this.#matcher.category(cells.category[cell]!) &&
        this.#matcher.site(cells.site[cell]!) &&
        this.#matcher.stream(arenas[rows.arena[rowOfCell(this.moment, cell)]!]!.stream));
    const start = this.#selected?.cell ?? -1;
    let cell = start < 0 ? (direction > 0 ? 0 : cells.bytes.length - 1) : start + direction;
    while (cell >= 0 && cell < cells.bytes.length && !passes(cell)) cell += direction;
    if (cell >= 0 && cell < cells.bytes.length) this.#select(cell);
  }

  #line(direction: 1 | -1): void {
    const strip = this.#selected && this.#stripOf(this.#selected);
    if (!strip || !this.#selected) {
      this.#step(direction);
      return;
    }
    const x = strip.x + this.#selected.from - strip.from;
    const { strips } = this.#layout;
    let i = strips.indexOf(strip);
    while (strips[i] && strips[i]!.y === strip.y) i += direction;
    const y = strips[i]?.y;
    if (y === undefined) return;
    const [first, end] = stripsBetween(strips, y, y + 1);
    let nearest = strips[first]!;
    for (let j = first; j < end; j++) if (strips[j]!.x <= x) nearest = strips[j]!;
    const offset = nearest.from + Math.min(Math.max(0, x - nearest.x), nearest.bytes - 1);
    this.#choose(placeAt(this.moment, nearest.row, offset));
  }

  #select(cell: number): void {
    const { offset_bytes, bytes } = this.moment.cells;
    this.#choose({ row: rowOfCell(this.moment, cell), cell, from: offset_bytes[cell]!, bytes: bytes[cell]! });
  }

  #choose(place: Place): void {
    this.#selected = place;
    this.#intoSight(place);
    announce(placeSpoken(this.panel, this.moment, place));
    const strip = this.#stripOf(place);
    if (document.activeElement !== this.#scroller) return;
    const { left, top } = this.#surface.element.getBoundingClientRect();
    showTooltip(left + this.#selectedX(), top + strip.y + LINE_HEIGHT, ...placeBox(this.panel, this.moment, place));
  }

  #stripOf(place: Place): Strip {
    const { strips, firstOfRow } = this.#layout;
    let i = firstOfRow[place.row]!;
    while (strips[i + 1]?.row === place.row && strips[i + 1]!.from <= place.from) i++;
    return strips[i]!;
  }

  #selectedX(): number {
    if (!this.#selected) return this.#surface.width / 2;
    const strip = this.#stripOf(this.#selected);
    const middle = strip.x + this.#selected.from - strip.from + this.#selected.bytes / 2;
    return Math.min(this.#surface.width, Math.max(0, this.#transform.x + middle / this.#bytesPerPixel()));
  }

  #intoSight(place: Place): void {
    const strip = this.#stripOf(place);
    const top = this.#scroller.scrollTop;
    const low = strip.y + LINE_HEIGHT - this.#scroller.clientHeight;
    this.#scroller.scrollTop = Math.max(Math.min(top, strip.y - LINE_HEIGHT), low);
    const x = strip.x + place.from - strip.from;
    const from = -this.#transform.x * this.#bytesPerPixel();
    const to = from + this.#surface.width * this.#bytesPerPixel();
    if (x < from || x > to) {
      const unscaled = (x / this.#layout.lineBytes) * this.#surface.width;
      this.#zoom.translateTo(this.#selection(), unscaled, 0);
    }
    this.#surface.redraw();
  }
}
