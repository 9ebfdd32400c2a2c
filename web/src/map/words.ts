// What the map says of a place: in the box beside the pointer, and aloud.

import { ageAtLength } from "../age";
import type { Arena, Moment, Panel } from "../data";
import { type Child, el } from "../dom";
import { categoryName } from "../palette";
import { facts } from "../tooltip";
import { bytes, count, percent, plural } from "../units";
import { addressOf, type Place } from "./cells";

export function arenaName(panel: Panel, arena: Arena): string {
  const stream = panel.streams[arena.stream]?.name ?? "unknown stream";
  const pool = arena.pool > 0 ? ` · ${panel.pools[arena.pool]?.name ?? "private pool"}` : "";
  const kind = arena.kind === "paged" ? "pages" : `${arena.kind} blocks`;
  return `${stream}${pool} · ${kind}${arena.expandable ? " · expandable" : ""}`;
}

export const arenaFigures = (arena: Arena): string =>
  `${bytes(arena.bytes)} in ${plural(arena.segments, "segment")}, ${percent(arena.live_bytes, arena.bytes)} live`;

const STATES = ["live", "pending: let go, another stream still uses it", "several blocks, drawn as one"];

function chunkOf(moment: Moment, place: Place): string | null {
  const page = moment.rows.page_bytes[place.row]!;
  if (!page) return `one piece of ${bytes(moment.rows.bytes[place.row]!)}`;
  const first = Math.floor(place.from / page) + 1;
  const last = Math.ceil((place.from + place.bytes) / page);
  const which = last > first ? `${count(first)}–${count(last)}` : count(first);
  return `${which} of ${count(Math.ceil(moment.rows.bytes[place.row]! / page))}, ${bytes(page)} each`;
}

export function placeTitle(moment: Moment, place: Place): string {
  if (place.cell < 0) return `${bytes(place.bytes)} idle`;
  const blocks = moment.cells.blocks[place.cell]!;
  return blocks > 1 ? `${bytes(place.bytes)}, ${plural(blocks, "block")}` : bytes(place.bytes);
}

export function placeBox(panel: Panel, moment: Moment, place: Place): Child[] {
  const { cells, rows } = moment;
  const { cell } = place;
  const where: [string, string | null][] = [
    ["arena", arenaName(panel, moment.arenas[rows.arena[place.row]!]!)],
    ["segment", `${bytes(rows.bytes[place.row]!)}, ${percent(rows.live_bytes[place.row]!, rows.bytes[place.row]!)} live`],
    ["chunks", chunkOf(moment, place)],
    ["address", addressOf(moment, place.row, place.from)],
  ];
  const title = el("p", { class: "tooltip-title", text: placeTitle(moment, place) });
  if (cell < 0) return [title, facts(["state", "idle: held, in no block"], ...where)];
  const merged = cells.blocks[cell]! > 1;
  const born = { event: cells.born_event[cell]!, us: cells.born_us[cell]! };
  const age = merged ? null : ageAtLength(moment, born, panel.duration_us > 0);
  const state = STATES[cells.state[cell]!] ?? null;
  return [
    title,
    el("p", { class: "tooltip-site", text: panel.sites[cells.site[cell]!] ?? "" }),
    facts(
      ["state", state],
      ["live", merged ? bytes(cells.live_bytes[cell]!) : null],
      ["age", age],
      ["for", categoryName(cells.category[cell]!)],
      ...where,
    ),
  ];
}

export function placeSpoken(panel: Panel, moment: Moment, place: Place): string {
  const { cells } = moment;
  if (place.cell < 0) return placeTitle(moment, place);
  const site = panel.sites[cells.site[place.cell]!] ?? "";
  return `${placeTitle(moment, place)}, ${categoryName(cells.category[place.cell]!)}, ${site}`;
}
