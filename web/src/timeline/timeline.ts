// Memory over the history of one panel.

import type uPlot from "uplot";
import { announce } from "../announce";
import type { Panel, Timeline } from "../data";
import { el } from "../dom";
import { momentOf } from "../moment";
import type { Store } from "../store";
import { onTheme } from "../theme";
import { bytes } from "../units";
import { type Manner, makeChart } from "./chart";
import { makeOverview, type Overview } from "./overview";
import { makeReadout } from "./readout";
import { indexAt, positions, whenOf } from "./scale";
import { inside, panned, type Window, zoomed } from "./window";

const POINTS_LEAST = 8; // that a zoom leaves in sight

export class TimelineView {
  readonly element = el("div", "timeline");
  #place = el("div", {
    class: "timeline-chart",
    attributes: { tabindex: 0, role: "application", "aria-roledescription": "chart" },
  });
  #overviewPlace = el("div");
  #overview: Overview | null = null;
  #readout;
  #plot: uPlot | null = null;
  #manner: Manner;
  #cursor: number | null = null;
  #whole: Window = { from: 0, to: 1 };
  #window: Window = { from: 0, to: 1 };

  constructor(
    private readonly panel: Panel,
    private readonly timeline: Timeline,
    private readonly store: Store,
    manner: Manner,
  ) {
    this.#manner = manner;
    this.#readout = makeReadout(panel, timeline, store);
    this.#place.setAttribute(
      "aria-label",
      `Timeline of ${panel.file}: ${panel.head} Arrow keys move the cursor, plus and minus zoom, p goes to the peak, f to the failure.`,
    );
    this.element.append(el("div", "timeline-main", this.#place, this.#overviewPlace), this.#readout.element);
    this.#place.addEventListener("keydown", (event) => this.#key(event));
    this.#place.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    this.#place.addEventListener("dblclick", () => this.#move(this.#whole));
    new ResizeObserver(() => this.#fit()).observe(this.#place);
    onTheme(this.element, () => {
      this.#fit(); // paper has another width
      this.#plot?.redraw(false);
    });
  }

  /** Draws all anew: another stacking, axis or filter. */
  show(manner: Manner): void {
    const kept = this.#plot && manner.along === this.#manner.along ? this.#window : null;
    this.#manner = manner;
    const xs = positions(this.timeline, manner.along);
    this.#whole = { from: xs[0] ?? 0, to: Math.max(xs.at(-1) ?? 1, (xs[0] ?? 0) + 1) };
    this.#overview = makeOverview(xs, this.timeline, this.#whole, (window) => this.#move(window));
    this.#overviewPlace.replaceChildren(this.#overview.element);
    this.#plot?.destroy();
    this.#plot = makeChart(this.#place, this.panel, this.timeline, manner, {
      choice: () => this.store.choice,
      cursor: (index) => this.#readout.show(index ?? this.#atMoment()),
      zoomed: (from, to) => {
        this.#window = { from, to };
        this.#overview?.show(this.#window);
      },
    });
    this.#plot.over.addEventListener("mouseleave", () => this.#readout.show(this.#cursor ?? this.#atMoment()));
    this.#readout.rebuild(manner.stacking);
    this.#readout.show(this.#atMoment());
    this.#move(kept ?? this.#whole);
  }

  momentChanged(): void {
    this.#plot?.redraw(false);
    this.#readout.show(this.#atMoment());
  }

  #atMoment(): number {
    const moment = momentOf(this.panel, this.store.choice);
    return moment ? indexAt(this.timeline.event, moment.event) : this.timeline.event.length - 1;
  }

  #fit(): void {
    const width = this.#place.clientWidth;
    if (this.#plot && width > 0 && width !== this.#plot.width) this.#plot.setSize({ width, height: this.#plot.height });
  }

  #move(window: Window): void {
    const xs = positions(this.timeline, this.#manner.along);
    const least = ((this.#whole.to - this.#whole.from) / Math.max(1, xs.length)) * POINTS_LEAST;
    const { from, to } = inside(window, this.#whole, least);
    this.#plot?.setScale("x", { min: from, max: to });
  }

  #wheel(event: WheelEvent): void {
    const has = document.activeElement === this.#place || event.ctrlKey || event.metaKey;
    if (!has || !this.#plot) return;
    event.preventDefault();
    const { left, width } = this.#plot.over.getBoundingClientRect();
    const { from, to } = this.#window;
    const about = from + ((event.clientX - left) / width) * (to - from);
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.#move(panned(this.#window, event.deltaX / width));
    else this.#move(zoomed(this.#window, 1.0015 ** event.deltaY, about));
  }

  #key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = this.#actions()[event.key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act(event.shiftKey);
  }

  #actions(): Record<string, (fast: boolean) => void> {
    const middle = () => this.#x(this.#cursor ?? this.#atMoment());
    const { peak, failure } = this.panel.marks;
    return {
      ArrowLeft: (fast) => this.#step(-1, fast),
      ArrowRight: (fast) => this.#step(1, fast),
      Home: () => this.#point(0),
      End: () => this.#point(this.timeline.event.length - 1),
      "+": () => this.#move(zoomed(this.#window, 1 / 1.6, middle())),
      "=": () => this.#move(zoomed(this.#window, 1 / 1.6, middle())),
      "-": () => this.#move(zoomed(this.#window, 1.6, middle())),
      "[": () => this.#move(panned(this.#window, -0.25)),
      "]": () => this.#move(panned(this.#window, 0.25)),
      "0": () => this.#move(this.#whole),
      p: () => peak && this.#point(indexAt(this.timeline.event, peak.event)),
      f: () => failure && this.#point(indexAt(this.timeline.event, failure.event)),
    };
  }

  #x(index: number): number {
    return positions(this.timeline, this.#manner.along)[index] ?? 0;
  }

  #step(direction: number, fast: boolean): void {
    const from = this.#cursor ?? this.#atMoment();
    const tenth = Math.round((indexAt(positions(this.timeline, this.#manner.along), this.#window.to) - from) / 10);
    this.#point(from + direction * (fast ? Math.max(10, Math.abs(tenth)) : 1));
  }

  /** Puts the cursor on a point, into sight. */
  #point(index: number): void {
    const plot = this.#plot;
    if (!plot) return;
    this.#cursor = Math.min(Math.max(index, 0), this.timeline.event.length - 1);
    const x = this.#x(this.#cursor);
    const { from, to } = this.#window;
    if (x < from || x > to) this.#move({ from: x - (to - from) / 2, to: x + (to - from) / 2 });
    plot.setCursor({ left: plot.valToPos(x, "x"), top: 0 });
    this.#readout.show(this.#cursor);
    const { event, time_us, live_bytes, held_bytes } = this.timeline;
    const at = this.#cursor;
    const held = held_bytes ? `, held ${bytes(held_bytes[at]!)}` : "";
    announce(`${whenOf(event[at]!, time_us[at]!, this.panel.duration_us > 0)}: live ${bytes(live_bytes[at]!)}${held}`);
  }
}
