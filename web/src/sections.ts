// The sections of the page: each makes its views for the panels that are shown, and hands on what the reader changes.

import type { Moment, Panel, ReportData } from "./data";
import { makeDiff } from "./diff/diff";
import { el } from "./dom";
import { FlameView } from "./flame/flame";
import { MapView } from "./map/map";
import { momentOf } from "./moment";
import { sideBySide } from "./pair";
import { type Choices, makeChoices, makeSection, type Section } from "./section";
import type { Choice, Store } from "./store";
import { makeRanks } from "./summary/ranks";
import { summary } from "./summary/summary";
import { TableView, type Which } from "./tables/tables";
import { topOf } from "./timeline/chart";
import { whenOf } from "./timeline/scale";
import { startManner, TimelineView } from "./timeline/timeline";
import { bytes, count, plural } from "./units";
import { whatIf } from "./whatif/whatif";

const nothing = (text: string): HTMLElement => el("p", { class: "note empty", text });

const shownPanels = (data: ReportData, store: Store): Panel[] => store.choice.shown.map((index) => data.panels[index]!);

export function summarySection(data: ReportData, store: Store): HTMLElement {
  const section = makeSection("summary", "What happened");
  const show = () => sideBySide(section.body, data, store.choice.shown, summary);
  store.subscribe((_, changed) => changed.has("shown") && show());
  show();
  if (data.job) section.body.before(makeRanks(data, store));
  return section.element;
}

export function diffSection(data: ReportData, store: Store): HTMLElement | null {
  if (!data.diff) return null;
  const section = makeSection("changes", "What changed");
  section.body.append(makeDiff(data, data.diff, store));
  return section.element;
}

function timelineNote(section: Section, panels: Panel[], choice: Choice, stacking: string): void {
  const apart = stacking === "category" ? "streams" : "categories";
  const unused = [choice.text && "text", choice[apart].size > 0 && apart].filter(Boolean);
  const reduced = panels.some(({ timeline }) => (timeline?.events_per_stretch ?? 1) > 1);
  const note = [
    reduced ? "Every stretch shows its least and its most." : "",
    unused.length ? `Stacked by ${stacking}, it cannot tell by ${unused.join(" or ")}.` : "",
  ];
  section.note.textContent = note.filter(Boolean).join(" ");
}

export function timelineSection(data: ReportData, store: Store): HTMLElement {
  let views: TimelineView[] = [];
  let manner = startManner(shownPanels(data, store));
  const change = (part: Partial<typeof manner>) => {
    manner = { ...manner, ...part };
    for (const view of views) view.show(manner);
    note();
  };
  const stacking = makeChoices(
    "Stacked by",
    [
      ["category", "By category"],
      ["stream", "By stream"],
    ] as const,
    manner.stacking,
    (value) => change({ stacking: value }),
  );
  const along = makeChoices(
    "Along",
    [
      ["event", "Events"],
      ["time", "Time"],
    ] as const,
    manner.along,
    (value) => change({ along: value }),
  );
  const heights = makeChoices(
    "Height",
    [
      ["same", "Same height"],
      ["own", "Own"],
    ] as const,
    "same",
    (value) => change({ ownTop: value === "own" }),
  );
  const section = makeSection("timeline", "Timeline", heights.element, stacking.element, along.element);
  const note = () => timelineNote(section, shownPanels(data, store), store.choice, manner.stacking);

  function build(): void {
    views = [];
    const panels = shownPanels(data, store);
    manner = { ...manner, top: topOf(panels) };
    along.element.hidden = panels.every(({ duration_us, timeline }) => duration_us === 0 || !timeline);
    stacking.element.hidden = panels.every(({ timeline }) => !timeline);
    heights.element.hidden = panels.length < 2;
    sideBySide(section.body, data, store.choice.shown, (panel) => {
      if (!panel.timeline) return nothing("The file has no history, so there is no timeline.");
      const view = new TimelineView(panel, panel.timeline, store, manner);
      views.push(view);
      return view.element;
    });
    for (const view of views) view.show(manner); // after it stands in the page, which gives it its width
    note();
  }
  store.subscribe((choice, changed) => {
    if (changed.has("shown")) return build();
    if (changed.has("moment")) for (const view of views) view.momentChanged();
    // Streams can only be told apart where they are stacked: choosing one shows them.
    if (changed.has("streams") && choice.streams.size && manner.stacking === "category") {
      stacking.set("stream");
      return change({ stacking: "stream" });
    }
    if (changed.has("categories") || changed.has("streams")) for (const view of views) view.filtersChanged();
    note();
  });
  queueMicrotask(build); // once the section stands in the page, which gives the chart its width
  return section.element;
}

function mapLegend(): HTMLElement {
  const item = (kind: string, text: string) => el("li", {}, el("i", { class: `key ${kind}`, attributes: { "aria-hidden": "true" } }), text);
  return el(
    "ul",
    "legend-line",
    item("cell", "block, in the colour of its category"),
    item("pending", "pending"),
    item("merged", "several, as high as they are full"),
    item("idle", "idle"),
    item("chunk", "chunks behind"),
  );
}

function mapNote(panel: Panel, moment: Moment, lineBytes: number): string {
  const { segments, bytes: size } = moment.left_out;
  const left = segments ? ` ${plural(segments, "small segment")} (${bytes(size)}) are left out.` : "";
  const when = whenOf(moment.event, moment.time_us, panel.duration_us > 0);
  const at = panel.timeline ? `${moment.name}, ${when}` : moment.name;
  return `${at}: ${count(moment.block_count)} blocks in ${plural(moment.segment_count, "segment")}; a line is ${bytes(lineBytes)}.${left}`;
}

/** A view of a moment, with a line above it that says which. */
interface MomentView {
  panel: Panel;
  note: HTMLElement;
  view: MapView;
}

export type Reveal = (panel: Panel, address: string) => void;

export function mapSection(data: ReportData, store: Store): { element: HTMLElement; reveal: Reveal } {
  const section = makeSection("map", "Address map");
  let views: MomentView[] = [];
  const tell = ({ panel, note, view }: MomentView) => {
    const moment = momentOf(panel, store.choice);
    if (moment) note.textContent = mapNote(panel, moment, view.lineBytes);
  };
  function build(): void {
    views = [];
    sideBySide(section.body, data, store.choice.shown, (panel) => {
      const moment = momentOf(panel, store.choice);
      if (!moment?.rows.bytes.length) return nothing("The file does not say where blocks lie.");
      const made = { panel, note: el("p", "note"), view: new MapView(panel, store, moment) };
      views.push(made);
      tell(made);
      return el("div", {}, made.note, made.view.element);
    });
    section.body.append(mapLegend());
  }
  store.subscribe((choice, changed) => {
    if (changed.has("shown")) return build();
    for (const made of views) {
      const moment = momentOf(made.panel, choice);
      if (changed.has("moment") && moment) made.view.show(moment);
      else made.view.filtersChanged();
      tell(made);
    }
  });
  build();
  return {
    element: section.element,
    reveal: (panel, address) => views.find((made) => made.panel === panel)?.view.reveal(address),
  };
}

export function flameSection(data: ReportData, store: Store): HTMLElement {
  const section = makeSection("flame", "Call sites");
  let views: FlameView[] = [];
  function build(): void {
    views = [];
    const panels = shownPanels(data, store);
    const atPeak = panels.every(({ flame }) => flame.moment === "peak");
    const bySite = panels.every(({ flame }) => flame.by === "call_site");
    section.note.textContent = `Who allocated what is live at the ${atPeak ? "peak" : "end"}; callers stand above callees. ${bySite ? "" : "Without stacks: by category and size."}`;
    sideBySide(section.body, data, store.choice.shown, (panel) => {
      if (!panel.flame.parent.length || !panel.flame.bytes[0]) return nothing("Nothing is live then.");
      const view = new FlameView(panel, store);
      views.push(view);
      return view.element;
    });
  }
  store.subscribe((_, changed) => {
    if (changed.has("shown")) build();
    else if (!changed.has("moment")) for (const view of views) view.filtersChanged();
  });
  build();
  return section.element;
}

export function blocksSection(data: ReportData, store: Store, reveal: Reveal): HTMLElement {
  let views: { panel: Panel; view: TableView }[] = [];
  let which: Which = "largest";
  const choices: Choices<Which> = makeChoices(
    "Which blocks",
    [
      ["largest", "Largest"],
      ["oldest", "Oldest"],
    ] as const,
    which,
    (value) => {
      which = value;
      for (const { view } of views) view.choose(which);
    },
  );
  const section = makeSection("blocks", "Blocks", choices.element);
  function build(): void {
    views = [];
    sideBySide(section.body, data, store.choice.shown, (panel) => {
      const moment = momentOf(panel, store.choice);
      if (!moment) return nothing("No blocks are known.");
      const view = new TableView(panel, store, moment, (address) => reveal(panel, address));
      view.choose(which);
      views.push({ panel, view });
      return view.element;
    });
  }
  store.subscribe((choice, changed) => {
    if (changed.has("shown")) return build();
    for (const { panel, view } of views) {
      const moment = momentOf(panel, choice);
      if (changed.has("moment") && moment) view.show(moment);
      else view.draw();
    }
  });
  build();
  return section.element;
}

export function whatIfSection(data: ReportData, store: Store): HTMLElement {
  const section = makeSection("what-if", "What if");
  section.note.textContent = "The same requests, replayed with other allocators.";
  const show = () => sideBySide(section.body, data, store.choice.shown, whatIf);
  store.subscribe((_, changed) => changed.has("shown") && show());
  show();
  return section.element;
}
