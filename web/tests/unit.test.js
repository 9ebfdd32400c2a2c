// What can be told without a browser: numbers in words, where things stand in the charts.

import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./support/load.js";
import { makePanel } from "./support/report.js";

const panel = makePanel({ streams: 3 });
const MIB = 1 << 20;

test("bytes, times and parts read well", async () => {
  const { bytes, bytesAligned, bytesDifference, byteUnit, duration, percent, plural } = await load("units");
  assert.deepEqual([0, 512, 1024, 1536, 64 * MIB, 1.5 * 2 ** 40].map(bytes), ["0 B", "512 B", "1 KiB", "1.50 KiB", "64 MiB", "1.50 TiB"]);
  assert.deepEqual([64 * MIB, 100].map(bytesAligned), ["64.00 MiB", "100 B"]);
  assert.deepEqual([MIB, -MIB, 0].map(bytesDifference), ["+1 MiB", "−1 MiB", "0 B"]);
  assert.deepEqual(byteUnit(3 * 2 ** 30), { factor: 2 ** 30, name: "GiB" });
  assert.deepEqual([7, 1500, 250000, 2660000, 61000000, 3720000000].map(duration), [
    "7 µs",
    "1.5 ms",
    "250 ms",
    "2.66 s",
    "1 min 1 s",
    "1 h 2 min",
  ]);
  assert.deepEqual(
    [percent(0, 9), percent(1, 9999), percent(1, 3), percent(1, 20), percent(1, 0)],
    ["0 %", "< 0.1 %", "33 %", "5.0 %", "–"],
  );
  assert.deepEqual([plural(1, "block"), plural(2000, "block")], ["1 block", "2,000 blocks"]);
});

test("the address map holds every byte of every segment once", async () => {
  const { layOut, LINE_HEIGHT } = await load("map/layout");
  for (const moment of panel.moments) {
    const { strips, lineBytes, height, firstOfRow } = layOut(moment);
    const rows = moment.rows.bytes.map(() => 0);
    for (const [i, strip] of strips.entries()) {
      assert.equal(strip.from, rows[strip.row], "pieces follow each other");
      rows[strip.row] += strip.bytes;
      assert.ok(strip.x >= 0 && strip.x + strip.bytes <= lineBytes && strip.y + LINE_HEIGHT <= height);
      const next = strips[i + 1];
      if (next) assert.ok(next.y > strip.y || (next.y === strip.y && next.x >= strip.x + strip.bytes), "nothing overlaps");
    }
    assert.deepEqual(rows, moment.rows.bytes);
    assert.ok(
      firstOfRow.every((/** @type {number} */ first, /** @type {number} */ row) => strips[first].row === row && strips[first].from === 0),
    );
  }
});

test("each place of a segment is in a block or idle, as the cells say", async () => {
  const { placeAt, rowOfCell, cellAtAddress, addressOf } = await load("map/cells");
  const moment = panel.moments[0];
  const { rows, cells } = moment;
  for (let row = 0; row < rows.bytes.length; row++) {
    let at = 0;
    while (at < rows.bytes[row]) {
      const place = placeAt(moment, row, at);
      assert.ok(place.from === at && place.bytes > 0, `${row}: ${at}`);
      if (place.cell >= 0) {
        assert.equal(cells.offset_bytes[place.cell], at);
        assert.equal(rowOfCell(moment, place.cell), row);
        assert.equal(cellAtAddress(moment, addressOf(moment, row, at)), place.cell);
      }
      at += place.bytes;
    }
    assert.equal(at, rows.bytes[row]);
  }
  assert.equal(cellAtAddress(moment, "0x10"), -1);
});

test("walking with the arrows reaches every block that the filters let through", async () => {
  const { nextBlock, nextLine } = await load("map/walk");
  const { matcher } = await load("match");
  const { layOut } = await load("map/layout");
  const moment = panel.moments[0];
  const layout = layOut(moment);
  const all = { text: "", categories: new Set(), streams: new Set() };
  for (const choice of [all, { ...all, categories: new Set([2]) }, { ...all, streams: new Set(["stream 1", "stream 2"]) }]) {
    const match = matcher(panel, choice);
    let seen = 0;
    for (let at = nextBlock(moment, layout, match, -1, 1); at; at = nextBlock(moment, layout, match, at.place.cell, 1)) seen++;
    const stream = (/** @type {number} */ i) =>
      moment.arenas[moment.rows.arena[moment.rows.cell_first.findLastIndex((first) => first <= i)]].stream;
    const expected = moment.cells.category.filter((category, i) => match.category(category) && match.stream(stream(i))).length;
    assert.equal(seen, expected);
    assert.ok(seen > 0);
  }
  let spot = nextBlock(moment, layout, matcher(panel, all), -1, 1);
  let lines = 1;
  for (let next = nextLine(moment, layout, spot, 1); next; next = nextLine(moment, layout, spot, 1)) {
    assert.ok(next.strip.y > spot.strip.y);
    spot = next;
    lines++;
  }
  assert.equal(lines, new Set(layout.strips.map((/** @type {{ y: number }} */ { y }) => y)).size);
});

test("the flame graph: children lie within their caller and beside each other; matches count once", async () => {
  const { layOutFlame, childrenOf } = await load("flame/layout");
  const { matchFlame } = await load("flame/match");
  const { matcher } = await load("match");
  const { flame } = panel;
  const layout = layOutFlame(flame);
  for (let node = 0; node < flame.parent.length; node++) {
    let x = layout.x0[node];
    for (const child of childrenOf(layout, node)) {
      assert.equal(flame.parent[child], node);
      assert.ok(Math.abs(layout.x0[child] - x) < 1e-12);
      x = layout.x1[child];
    }
    assert.ok(x <= layout.x1[node] + 1e-12);
  }
  const none = { text: "", categories: new Set(), streams: new Set() };
  const bytesOf = (/** @type {object} */ choice, /** @type {boolean} */ byText) =>
    matchFlame(panel, layout, matcher(panel, { ...none, ...choice }), byText).bytes;
  assert.equal(bytesOf({ text: "main" }, true), flame.bytes[0], "a caller of all matches all, once");
  assert.equal(bytesOf({ text: "no such call" }, true), 0);
  const { bytes, site } = panel.moments[0].cells; // of this program only innermost calls are in mlp.py
  const mlp = bytes.reduce((sum, size, i) => sum + (panel.sites[site[i]].includes("mlp") ? size : 0), 0);
  assert.ok(mlp > 0 && bytesOf({ text: "mlp" }, true) === mlp);
});

test("a window stays inside the whole, and a zoom keeps its place", async () => {
  const { inside, panned, zoomed } = await load("timeline/window");
  const whole = { from: 0, to: 1000 };
  assert.deepEqual(inside({ from: -50, to: 150 }, whole, 10), { from: 0, to: 200 });
  assert.deepEqual(inside({ from: 950, to: 1150 }, whole, 10), { from: 800, to: 1000 });
  assert.deepEqual(inside({ from: 500, to: 501 }, whole, 10), { from: 500, to: 510 });
  assert.deepEqual(inside({ from: -9e9, to: 9e9 }, whole, 10), whole);
  assert.deepEqual(zoomed({ from: 0, to: 100 }, 0.5, 20), { from: 10, to: 60 });
  assert.deepEqual(panned({ from: 0, to: 100 }, 0.25), { from: 25, to: 125 });
});

test("a value holds until the next point", async () => {
  const { indexAt, tickLabels } = await load("timeline/scale");
  assert.deepEqual(
    [-5, 0, 1, 9, 10, 99].map((x) => indexAt([0, 5, 10], x)),
    [0, 0, 0, 1, 2, 2],
  );
  assert.deepEqual(tickLabels("time", [0, 500000, 1000000]), ["0", "500 ms", "1000 ms"]);
  assert.deepEqual(tickLabels("time", [0, 2e6]), ["0", "2 s"]);
  assert.deepEqual(tickLabels("event", [0, 1500]), ["0", "1,500"]);
});
