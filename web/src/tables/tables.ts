// The largest and the oldest blocks of a moment, as tables that sort, filter, and unfold to the stack.

import type { Block, Moment, Panel } from "../data";
import { button, el, fill } from "../dom";
import { frameName, framePath } from "../frames";
import { type Matcher, matcher } from "../match";
import { categorySwatches, type Swatch, swatchElement } from "../palette";
import type { Store } from "../store";
import { onTheme } from "../theme";
import { plural } from "../units";
import { type Column, columnsOf } from "./columns";

export type Which = "largest" | "oldest";

const ROWS_FIRST = 20;

export class TableView {
  readonly element = el("div", "blocks");
  #which: Which = "largest";
  #sort: { key: string; down: boolean } | null = null;
  #all = false;
  #open = new Set<string>();
  #swatches: Swatch[] = [];

  constructor(
    private readonly panel: Panel,
    private readonly store: Store,
    private moment: Moment,
    private readonly reveal: (address: string) => void,
  ) {
    this.draw();
    onTheme(this.element, () => this.draw());
  }

  /** Another moment, or other filters. */
  show(moment: Moment | undefined): void {
    this.moment = moment ?? this.moment;
    this.draw();
  }

  choose(which: Which): void {
    this.#which = which;
    this.#sort = null;
    this.draw();
  }

  draw(): void {
    const columns = columnsOf(this.panel, this.moment);
    this.#swatches = categorySwatches();
    const pass = this.#filter(matcher(this.panel, this.store.choice));
    const found = this.moment[this.#which].filter(pass);
    this.#order(found, columns);
    const seen = this.#all ? found : found.slice(0, ROWS_FIRST);
    const table = el(
      "table",
      this.panel.sites.length > 1 ? "grid" : "grid compact",
      this.#head(columns),
      el("tbody", {}, ...seen.flatMap((block) => this.#rows(block, columns))),
    );
    const total = this.moment[this.#which].length;
    const text = found.length === total ? plural(total, "block") : `${plural(found.length, "block")} of ${total}`;
    const more = found.length > seen.length && button(`Show all ${found.length}`, () => this.#showAll(), { class: "quiet" });
    fill(this.element, el("div", "grid-scroll", table), el("p", "note", `${text} listed. `, more));
  }

  #filter(match: Matcher): (block: Block) => boolean {
    return ({ category, stream, site, stack }) =>
      match.category(category) && match.stream(stream) && (match.site(site) || stack.some((frame) => match.frame(frame)));
  }

  #order(blocks: Block[], columns: Column[]): void {
    const column = columns.find(({ key }) => key === this.#sort?.key);
    if (!column || !this.#sort) return; // as the command gives them
    const sign = this.#sort.down ? -1 : 1;
    blocks.sort((a, b) => {
      const [x, y] = [column.order(a), column.order(b)];
      return sign * (x < y ? -1 : x > y ? 1 : 0);
    });
  }

  #showAll(): void {
    this.#all = true;
    this.draw();
  }

  #head(columns: Column[]): HTMLElement {
    const cells = columns.map((column) => {
      const sorted = this.#sort?.key === column.key ? (this.#sort.down ? "descending" : "ascending") : "none";
      const press = () => {
        this.#sort = { key: column.key, down: this.#sort?.key === column.key ? !this.#sort.down : column.isNumber };
        this.draw();
        this.element.querySelector<HTMLElement>(`[data-key="${column.key}"]`)?.focus();
      };
      const label = button(column.title, press, { class: "sort", attributes: { "data-key": column.key } });
      return el(
        "th",
        {
          class: `${column.isNumber ? "number" : ""} ${column.key}`,
          attributes: { scope: "col", "aria-sort": sorted },
        },
        label,
      );
    });
    return el("thead", {}, el("tr", {}, el("td", "unfold"), ...cells));
  }

  #rows(block: Block, columns: Column[]): HTMLElement[] {
    const open = this.#open.has(block.address);
    const unfold = button("", () => this.#unfold(block), {
      class: "unfold-button",
      attributes: {
        "aria-expanded": open,
        "aria-label": `${open ? "Hide" : "Show"} the stack, and show the block in the map`,
        "data-address": block.address,
      },
    });
    const cells = columns.map((column) => this.#cell(block, column));
    const row = el("tr", {}, el("td", "unfold", unfold), ...cells);
    return open ? [row, this.#stack(block, columns.length + 1)] : [row];
  }

  #cell(block: Block, column: Column): HTMLElement {
    const text = column.text(block);
    const cell = el("td", { class: `${column.isNumber ? "number" : ""} ${column.key}` });
    if (column.key === "category") cell.append(swatchElement(this.#swatches[block.category]!));
    cell.append(text);
    if (column.key === "site") cell.title = text;
    return cell;
  }

  #unfold(block: Block): void {
    if (!this.#open.delete(block.address)) {
      this.#open.add(block.address);
      this.reveal(block.address);
    }
    this.draw();
    this.element.querySelector<HTMLElement>(`[data-address="${CSS.escape(block.address)}"]`)?.focus({ preventScroll: true });
  }

  #stack(block: Block, columns: number): HTMLElement {
    const { frames } = this.panel;
    const lines = block.stack.map((frame) => el("li", { title: framePath(frames, frame), text: frameName(frames, frame) }));
    const list = lines.length ? el("ol", "stack", ...lines) : el("p", { class: "note", text: "No stack was recorded." });
    return el(
      "tr",
      "stack-row",
      el("td", { attributes: { colspan: columns } }, el("p", { class: "note", text: `address ${block.address}` }), list),
    );
  }
}
