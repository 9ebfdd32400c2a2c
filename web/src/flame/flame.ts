// The flame graph of one panel: who allocated what is live at the peak, by call site.

import { announce } from "../announce";
import type { Panel } from "../data";
import { button, el } from "../dom";
import { framePath } from "../frames";
import { matcher } from "../match";
import { categoryName } from "../palette";
import type { Store } from "../store";
import { makeSurface, type Surface } from "../surface";
import { facts, hideTooltip, showTooltip } from "../tooltip";
import { bytes, percent, plural } from "../units";
import { BOX_HEIGHT, drawFlame, extent, type FlameLook, type FlameScene, flameLook, nodeName } from "./draw";
import { childrenOf, type FlameLayout, layOutFlame } from "./layout";
import { type Matches, matchFlame } from "./match";

export class FlameView {
  readonly element = el("div", "flame");
  #scroller = el("div", {
    class: "flame-scroll",
    attributes: { tabindex: 0, role: "application", "aria-roledescription": "flame graph" },
  });
  #path = el("p", "flame-path");
  #surface: Surface;
  #layout: FlameLayout;
  #look: FlameLook | null = null;
  #matches: Matches | null = null;
  #focus = 0;
  #selected = -1;

  constructor(
    private readonly panel: Panel,
    private readonly store: Store,
  ) {
    this.#layout = layOutFlame(panel.flame);
    const place = el("div", "flame-place");
    this.#scroller.append(place);
    this.element.append(this.#scroller, this.#path);
    this.#surface = makeSurface(
      place,
      () => (this.#layout.deepest + 1) * BOX_HEIGHT,
      (surface, resized) => {
        if (resized || !this.#look) this.#look = flameLook();
        drawFlame(surface.context, this.#scene(), surface.height);
      },
    );
    this.#scroller.setAttribute(
      "aria-label",
      `Flame graph of ${panel.file}: ${bytes(panel.flame.bytes[0] ?? 0)}. Arrow keys go to callers, callees and neighbours, Enter zooms.`,
    );
    place.addEventListener("pointermove", (event) => this.#hover(event));
    place.addEventListener("pointerleave", hideTooltip);
    place.addEventListener("click", (event) => this.#click(event));
    this.#scroller.addEventListener("keydown", (event) => this.#key(event));
    this.#scroller.addEventListener("blur", hideTooltip);
    this.filtersChanged();
  }

  filtersChanged(): void {
    const { choice } = this.store;
    const filtered = choice.text !== "" || choice.categories.size > 0;
    this.#matches = filtered ? matchFlame(this.panel, this.#layout, matcher(this.panel, choice), choice.text !== "") : null;
    this.#describe();
    this.#surface.redraw();
  }

  #scene(): FlameScene {
    return {
      panel: this.panel,
      layout: this.#layout,
      look: this.#look ?? flameLook(),
      matches: this.#matches,
      focus: this.#focus,
      selected: this.#selected,
      width: this.#surface.width,
    };
  }

  #describe(): void {
    const { flame } = this.panel;
    const whole = flame.bytes[0] ?? 0;
    const matched = this.#matches ? `${bytes(this.#matches.bytes)} (${percent(this.#matches.bytes, whole)}) match. ` : "";
    const merged = flame.merged ? `${plural(flame.merged, "small node")} stand together as “other”. ` : "";
    const where = this.#focus ? `Zoomed to ${nodeName(this.panel, this.#focus)}, ${bytes(flame.bytes[this.#focus]!)}. ` : "";
    const streams = this.store.choice.streams.size ? "It cannot tell by streams. " : "";
    this.#path.replaceChildren(`${matched}${where}${merged}${streams}`);
    if (this.#focus) this.#path.append(button("Show all", () => this.#zoom(0), { class: "quiet" }));
  }

  #zoom(node: number): void {
    this.#focus = node;
    hideTooltip();
    this.#describe();
    this.#surface.redraw();
    announce(node ? `Zoomed to ${nodeName(this.panel, node)}` : "All calls");
  }

  #nodeAt(event: MouseEvent): number {
    const { left, top } = this.#surface.element.getBoundingClientRect();
    const depth = Math.floor((event.clientY - top) / BOX_HEIGHT);
    const x = event.clientX - left;
    const { parent } = this.panel.flame;
    const scene = this.#scene();
    for (let up = this.#focus; up >= 0; up = parent[up]!) if (this.#layout.depth[up] === depth) return up;
    for (let i = this.#focus; i < this.#layout.end[this.#focus]!; ) {
      const [from, to] = extent(scene, i);
      if (x < from || x >= to) i = this.#layout.end[i]!;
      else if (this.#layout.depth[i] === depth) return i;
      else i++;
    }
    return -1;
  }

  #hover(event: PointerEvent): void {
    const node = this.#nodeAt(event);
    if (node < 0) hideTooltip();
    else this.#box(node, event.clientX, event.clientY);
  }

  #box(node: number, x: number, y: number): void {
    const { flame, frames } = this.panel;
    const frame = flame.frame[node]!;
    showTooltip(
      x,
      y,
      el("p", {
        class: "tooltip-title",
        text: `${bytes(flame.bytes[node]!)}, ${percent(flame.bytes[node]!, flame.bytes[0]!)}`,
      }),
      el("p", { class: "tooltip-site", text: nodeName(this.panel, node) }),
      facts(
        ["file", frame >= 0 ? framePath(frames, frame) : null],
        ["blocks", plural(flame.blocks[node]!, "block")],
        ["mostly", categoryName(flame.category[node]!)],
      ),
    );
  }

  #click(event: MouseEvent): void {
    const node = this.#nodeAt(event);
    if (node < 0) return;
    this.#selected = node;
    this.#zoom(node);
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
    const { parent } = this.panel.flame;
    const at = Math.max(0, this.#selected);
    return {
      ArrowUp: () => this.#select(this.#selected < 0 ? 0 : Math.max(0, parent[at]!)),
      ArrowDown: () => this.#select(this.#selected < 0 ? 0 : (childrenOf(this.#layout, at)[0] ?? at)),
      ArrowRight: () => this.#neighbour(1),
      ArrowLeft: () => this.#neighbour(-1),
      Enter: () => this.#selected >= 0 && this.#zoom(this.#selected),
      Escape: () => this.#zoom(0),
      "0": () => this.#zoom(0),
    };
  }

  #neighbour(direction: number): void {
    const up = this.panel.flame.parent[this.#selected] ?? -1;
    if (up < 0) return;
    const siblings = childrenOf(this.#layout, up);
    const next = siblings[siblings.indexOf(this.#selected) + direction];
    if (next !== undefined) this.#select(next);
  }

  #select(node: number): void {
    this.#selected = node;
    const { flame } = this.panel;
    const y = this.#layout.depth[node]! * BOX_HEIGHT;
    const low = y + BOX_HEIGHT - this.#scroller.clientHeight;
    this.#scroller.scrollTop = Math.max(Math.min(this.#scroller.scrollTop, y), low);
    const { left, top } = this.#surface.element.getBoundingClientRect();
    const [from, to] = extent(this.#scene(), node);
    this.#box(node, left + (from + to) / 2, top + y + BOX_HEIGHT);
    announce(`${nodeName(this.panel, node)}, ${bytes(flame.bytes[node]!)}, ${percent(flame.bytes[node]!, flame.bytes[0]!)}`);
    this.#surface.redraw();
  }
}
