// Puts the page together.

import { makeFilters } from "./bar/filters";
import { makeHead } from "./bar/head";
import type { ReportData } from "./data";
import { diffSection } from "./diff/section";
import { el, fill } from "./dom";
import { flameSection } from "./flame/section";
import { makeHelp } from "./help";
import { listenToKeys } from "./keys";
import { mapSection } from "./map/section";
import { readData, Unreadable } from "./read";
import { Store } from "./store";
import { summarySection } from "./summary/section";
import { blocksSection } from "./tables/section";
import { startTheme } from "./theme";
import { timelineSection } from "./timeline/section";
import { whatIfSection } from "./whatif/section";
import "./style/index.css";

/** The failure, where there is one, is what the reader came for. */
function startChoice(data: ReportData): Store {
  const shown = data.diff ? [data.diff.panel_a, data.diff.panel_b] : [data.job?.limits ?? 0];
  const names = new Set(shown.flatMap((index) => data.panels[index]!.moments.map(({ name }) => name)));
  const moment = names.has("failure") ? "failure" : names.has("peak") ? "peak" : "end";
  return new Store({ text: "", categories: new Set(), streams: new Set(), moment, shown });
}

function build(page: HTMLElement, data: ReportData): void {
  const store = startChoice(data);
  const help = makeHelp();
  const map = mapSection(data, store);
  const sections = [
    summarySection(data, store),
    diffSection(data, store),
    timelineSection(data, store),
    map.element,
    flameSection(data, store),
    blocksSection(data, store, map.reveal),
    whatIfSection(data, store),
  ].filter((section) => section !== null);
  document.title = `${data.panels.map(({ file }) => file).join(", ")} · gapless report`;
  fill(
    page,
    makeHead(data, store, help.toggle),
    makeFilters(data, store),
    el("main", {}, ...sections),
    el("footer", { class: "page-foot", text: `${data.tool}. This page is one file: it asks no network for anything.` }),
    help.element,
  );
  listenToKeys(store, sections, help.toggle);
}

function start(): void {
  const page = document.getElementById("page")!;
  startTheme();
  try {
    build(page, readData());
  } catch (error) {
    if (!(error instanceof Unreadable)) throw error;
    fill(page, el("p", { class: "unreadable", text: error.message, attributes: { role: "alert" } }));
  }
}

start();
// For whoever measures: the second frame after this one has everything in it.
requestAnimationFrame(() => requestAnimationFrame(() => requestAnimationFrame(() => performance.mark("drawn"))));
