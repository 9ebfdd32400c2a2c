// The page in a real browser: it draws, zooms, filters, compares, obeys the keyboard, prints.

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { colours, findBrowser, openPage, pixels, startBrowser } from "./support/browser.js";
import { writePage } from "./support/page.js";
import { makeDiff, makePanel, makeReport } from "./support/report.js";

const TEMPLATE = join(dirname(dirname(fileURLToPath(import.meta.url))), "dist/report.html");
const SAMPLES = join(dirname(TEMPLATE), "../samples");
const skip = findBrowser() ? false : "no Chromium is installed";

describe("page", { skip }, () => {
  /** @type {Awaited<ReturnType<typeof startBrowser>>} */
  let started;
  let one = "";
  let two = "";
  const a = makePanel({ file: "before.pickle" });
  const b = makePanel({ file: "after.pickle", expandable: true, seed: 7, refused: false });

  before(async () => {
    started = await startBrowser();
    one = writePage(TEMPLATE, makeReport([a]), join(started.folder, "one.html"));
    two = writePage(TEMPLATE, makeReport([a, b], makeDiff(a, b)), join(started.folder, "two.html"));
  });
  after(() => started.stop());

  /** @param {string} path @param {(page: import("playwright-core").Page) => Promise<void>} body @param {object} options */
  async function onPage(path, body, options = {}) {
    const { page, done } = await openPage(started.browser, path, options);
    await body(page);
    await done();
  }

  test("draws every section", () =>
    onPage(one, async (page) => {
      const titles = await page.locator("main h2").allTextContents();
      assert.deepEqual(titles, ["What happened", "Timeline", "Address map", "Call sites", "Blocks", "What if"]);
      for (const canvas of ["#timeline .uplot canvas", "#map canvas", "#flame canvas", ".overview canvas"]) {
        assert.ok((await colours(page, canvas)) > 3, `${canvas} is empty`);
      }
      assert.match((await page.locator(".verdict").textContent()) ?? "", /fragmented.*1\.69 GiB/);
      assert.equal(await page.locator("#blocks tbody tr").count(), 20);
      assert.match(await page.title(), /before\.pickle/);
    }));

  test("the moment is that of the failure, and can be chosen", () =>
    onPage(one, async (page) => {
      assert.match((await page.locator("#map .note").first().textContent()) ?? "", /^failure/);
      const map = await pixels(page, "#map canvas");
      const size = await page.locator("#blocks td.number").first().textContent();
      await page.locator(".moment").getByRole("button", { name: "End" }).click();
      assert.match((await page.locator("#map .note").first().textContent()) ?? "", /^end/);
      assert.notEqual(await pixels(page, "#map canvas"), map);
      assert.notEqual(await page.locator("#blocks td.number").first().textContent(), size);
    }));

  test("the timeline zooms by dragging and comes back", () =>
    onPage(one, async (page) => {
      const chart = page.locator(".timeline-chart .u-over");
      await page.locator("#timeline").scrollIntoViewIfNeeded();
      const box = await chart.boundingBox();
      assert.ok(box);
      const whole = await pixels(page, "#timeline .uplot canvas");
      await page.mouse.move(box.x + 200, box.y + 60);
      await page.mouse.down();
      await page.mouse.move(box.x + 400, box.y + 60, { steps: 4 });
      await page.mouse.up();
      const part = await pixels(page, "#timeline .uplot canvas");
      assert.notEqual(part, whole);
      await page.mouse.move(box.x + 300, box.y + 60);
      await page.keyboard.down("Control");
      await page.mouse.wheel(0, 300);
      await page.keyboard.up("Control");
      assert.notEqual(await pixels(page, "#timeline .uplot canvas"), part);
      await chart.dblclick();
      await page.mouse.move(5, 5);
      assert.equal(await pixels(page, "#timeline .uplot canvas"), whole);
    }));

  test("the timeline is stacked by stream, and along time", () =>
    onPage(one, async (page) => {
      const first = await pixels(page, "#timeline .uplot canvas");
      await page.getByRole("button", { name: "By stream" }).click();
      assert.deepEqual(await page.locator(".readout .legend").allTextContents(), ["stream 1", "default stream"]);
      const second = await pixels(page, "#timeline .uplot canvas");
      assert.notEqual(second, first);
      await page.getByRole("button", { name: "Time", exact: true }).click();
      assert.notEqual(await pixels(page, "#timeline .uplot canvas"), second);
    }));

  test("the map tells of the block under the pointer, zooms and pans", () =>
    onPage(one, async (page) => {
      const canvas = page.locator("#map canvas");
      await canvas.scrollIntoViewIfNeeded();
      const box = await canvas.boundingBox();
      assert.ok(box);
      await page.mouse.move(box.x + 40, box.y + 32);
      const tooltip = (await page.locator(".tooltip").textContent()) ?? "";
      for (const part of ["MiB", "model.py", "age", "live", "default stream", "0x7f12", "weights"])
        assert.ok(tooltip.includes(part), `${part} in ${tooltip}`);
      const whole = await pixels(page, "#map canvas");
      await page.keyboard.down("Control");
      await page.mouse.wheel(0, -600);
      await page.keyboard.up("Control");
      const part = await pixels(page, "#map canvas");
      assert.notEqual(part, whole);
      await page.mouse.down();
      await page.mouse.move(box.x + 10, box.y + 32, { steps: 3 });
      await page.mouse.up();
      assert.notEqual(await pixels(page, "#map canvas"), part);
      await page.keyboard.press("Escape");
      await canvas.dblclick();
      await page.locator(".map-scroll").press("Escape");
      assert.equal(await pixels(page, "#map canvas"), whole);
    }));

  test("a map that is higher than its window scrolls, and is told apart there", async () => {
    const panel = structuredClone(a);
    panel.moments.forEach(manyArenas);
    const path = writePage(TEMPLATE, makeReport([panel]), join(started.folder, "high.html"));
    await onPage(path, async (page) => {
      const top = await pixels(page, "#map canvas");
      const scroller = page.locator(".map-scroll");
      const { canvas, whole } = await scroller.evaluate((element) => ({
        canvas: element.querySelector("canvas")?.clientHeight,
        whole: element.scrollHeight,
      }));
      assert.ok(canvas && canvas <= 640 && whole > 4000, `${canvas} of ${whole}`);
      await scroller.evaluate((element) => element.scrollTo(0, 4000));
      assert.notEqual(await pixels(page, "#map canvas"), top);
      await scroller.focus();
      await page.keyboard.press("ArrowLeft"); // the last block
      assert.ok((await scroller.evaluate((element) => element.scrollTop)) > 4000);
      assert.match((await page.locator(".tooltip").textContent()) ?? "", /MiB/);
    });
  });

  test("the wheel scrolls the page until a chart has the focus", () =>
    onPage(one, async (page) => {
      await page.locator("#map").scrollIntoViewIfNeeded();
      const box = await page.locator(".timeline-chart").boundingBox();
      assert.ok(box);
      await page.mouse.move(box.x + 300, Math.max(80, box.y + 150));
      const before = await page.evaluate(() => scrollY);
      await page.mouse.wheel(0, 100);
      await page.waitForFunction((y) => scrollY > y, before);
    }));

  test("the flame graph zooms to a call and back", () =>
    onPage(one, async (page) => {
      const canvas = page.locator("#flame canvas");
      await canvas.scrollIntoViewIfNeeded();
      const box = await canvas.boundingBox();
      assert.ok(box);
      const whole = await pixels(page, "#flame canvas");
      await page.mouse.move(box.x + 60, box.y + 70);
      assert.match((await page.locator(".tooltip").textContent()) ?? "", /forward.*\/srv\/train\/model\.py:120/);
      await page.mouse.click(box.x + 60, box.y + 70);
      assert.match((await page.locator(".flame-path").textContent()) ?? "", /Zoomed to model\.py:120 forward/);
      assert.notEqual(await pixels(page, "#flame canvas"), whole);
      await page.getByRole("button", { name: "Show all", exact: true }).click();
      assert.doesNotMatch((await page.locator(".flame-path").textContent()) ?? "", /Zoomed/);
    }));

  test("text filters blocks, map and flame graph", () =>
    onPage(one, async (page) => {
      const [map, flame] = [await pixels(page, "#map canvas"), await pixels(page, "#flame canvas")];
      await page.locator("#filter-text").fill("MLP.py");
      await page.waitForFunction(() => document.querySelector("#blocks .note")?.textContent?.includes(" of 100"));
      for (const site of await page.locator("#blocks tbody td.site").allTextContents()) assert.match(site, /mlp/);
      assert.match((await page.locator(".flame-path").textContent()) ?? "", /GiB \(\d+ %\) match/);
      assert.notEqual(await pixels(page, "#map canvas"), map);
      assert.notEqual(await pixels(page, "#flame canvas"), flame);
      await page.getByRole("button", { name: "Clear" }).click();
      await page.mouse.move(5, 5);
      assert.equal(await pixels(page, "#map canvas"), map);
      assert.equal(await page.locator("#filter-text").inputValue(), "");
    }));

  test("categories filter every chart and table", () =>
    onPage(one, async (page) => {
      const canvases = ["#timeline .uplot canvas", "#map canvas", "#flame canvas"];
      const before = [];
      for (const canvas of canvases) before.push(await pixels(page, canvas));
      await page.locator(".chips").getByRole("button", { name: "activations" }).click();
      for (const [i, canvas] of canvases.entries()) assert.notEqual(await pixels(page, canvas), before[i], canvas);
      assert.deepEqual([...new Set(await page.locator("#blocks td.category").allTextContents())], ["activations"]);
      assert.equal(await page.locator(".readout tr.off").count(), 5);
    }));

  test("streams filter, and the timeline then stacks them", () =>
    onPage(one, async (page) => {
      await page.locator(".streams summary").click();
      await page.getByRole("checkbox", { name: "stream 1" }).check();
      assert.deepEqual([...new Set(await page.locator("#blocks td.stream").allTextContents())], ["stream 1"]);
      assert.equal(await page.getByRole("button", { name: "By stream" }).getAttribute("aria-pressed"), "true");
      assert.equal(await page.locator(".readout tr.off").count(), 1);
    }));

  test("tables sort, unfold to the stack, and show the block in the map", () =>
    onPage(one, async (page) => {
      const sizes = async () => (await page.locator("#blocks tbody td.size").allTextContents()).map((text) => Number.parseFloat(text));
      const descending = await sizes();
      assert.deepEqual(
        descending,
        [...descending].sort((x, y) => y - x),
      );
      await page.getByRole("button", { name: "Size" }).click();
      await page.getByRole("button", { name: "Size" }).click();
      const ascending = await sizes();
      assert.ok(ascending[0] < descending[0]);
      assert.equal(await page.locator("#blocks th.size").getAttribute("aria-sort"), "ascending");
      const map = await pixels(page, "#map canvas");
      await page.locator(".unfold-button").first().click();
      assert.ok((await page.locator(".stack li").count()) >= 3);
      assert.notEqual(await pixels(page, "#map canvas"), map);
      await page.getByRole("button", { name: "Oldest" }).click();
      assert.match((await page.locator("#blocks td.category").first().textContent()) ?? "", /weights/);
    }));

  test("what if: another limit, another outcome", () =>
    onPage(one, async (page) => {
      const native = page.locator(".whatif-table tbody tr").first();
      assert.match((await native.textContent()) ?? "", /refuses 380 MiB/);
      assert.equal(await page.locator(".matrix .refuses").count(), 6);
      await page.getByRole("button", { name: "no limit" }).click();
      assert.match((await native.textContent()) ?? "", /fits/);
    }));

  test("two files stand side by side, with what changed", () =>
    onPage(two, async (page) => {
      assert.equal(await page.locator("#map canvas").count(), 2);
      assert.equal(await page.locator("#timeline .uplot").count(), 2);
      assert.match((await page.locator(".diff-summary").textContent()) ?? "", /less live/);
      const peak = await page.locator(".diff-figures tr", { hasText: "peak live" }).textContent();
      assert.match(peak ?? "", /GiB.*GiB.*[+−]\d/);
      await page.locator(".diff-parts").getByRole("button", { name: "Categories" }).click();
      assert.match((await page.locator(".diff-pairs").textContent()) ?? "", /optimiser states/);
      await page.getByLabel("Which file is shown").selectOption("1");
      assert.equal(await page.locator("#map canvas").count(), 1);
      assert.match((await page.locator(".verdict-name").textContent()) ?? "", /fits/);
    }));

  test("the ranks of a job: the one that limits it is shown, another when it is pressed", async () => {
    const ranks = [b, a, makePanel({ file: "third.pickle", seed: 3, refused: false })];
    const data = { ...makeReport(ranks), job: { limits: 1, text: "before.pickle limits the job." } };
    const path = writePage(TEMPLATE, data, join(started.folder, "job.html"));
    await onPage(path, async (page) => {
      assert.match((await page.locator(".job p").textContent()) ?? "", /limits the job/);
      assert.equal(await page.locator(".verdict-name").textContent(), "fragmented");
      await page.getByRole("button", { name: "third.pickle" }).click();
      assert.equal(await page.locator(".verdict-name").textContent(), "fits");
      assert.equal(await page.getByLabel("Which file is shown").inputValue(), "2");
      assert.equal(await page.locator("#map canvas").count(), 1);
    });
  });

  test("the keyboard reaches and drives everything", () =>
    onPage(one, async (page) => {
      await page.keyboard.press("?");
      assert.ok(await page.locator("dialog.help").isVisible());
      await page.keyboard.press("Escape");
      assert.ok(!(await page.locator("dialog.help").isVisible()));
      await page.keyboard.press("/");
      assert.equal(await page.evaluate(() => document.activeElement?.id), "filter-text");
      await page.keyboard.press("Escape");
      await page.keyboard.press("2");
      assert.equal(await page.evaluate(() => document.activeElement?.id), "timeline");

      await page.locator(".timeline-chart").focus();
      const when = await page.locator(".readout-when").textContent();
      await page.keyboard.press("Home");
      assert.notEqual(await page.locator(".readout-when").textContent(), when);
      const chart = await pixels(page, "#timeline .uplot canvas");
      await page.keyboard.press("+");
      assert.notEqual(await pixels(page, "#timeline .uplot canvas"), chart);
      await page.keyboard.press("p");
      assert.match((await page.locator(".readout-when").textContent()) ?? "", /event/);

      await page.locator(".map-scroll").focus();
      await page.keyboard.press("ArrowRight");
      const block = await page.locator(".tooltip").textContent();
      await page.keyboard.press("ArrowDown");
      assert.notEqual(await page.locator(".tooltip").textContent(), block);
      await page.waitForFunction(() => document.querySelector("[role=status]")?.textContent?.includes("MiB"));

      await page.locator(".flame-scroll").focus();
      for (const key of ["ArrowDown", "ArrowDown", "ArrowDown", "Enter"]) await page.keyboard.press(key);
      assert.match((await page.locator(".flame-path").textContent()) ?? "", /Zoomed to/);
    }));

  test("the focus is seen, and goes in the order of the page", () =>
    onPage(one, async (page) => {
      /** @type {number[]} */
      const tops = [];
      for (let i = 0; i < 24; i++) {
        await page.keyboard.press("Tab");
        const { top, outline } = await page.evaluate(() => {
          const element = /** @type {HTMLElement} */ (document.activeElement);
          const section = element.closest("section, .filters, .page-head");
          return {
            top: /** @type {HTMLElement} */ (section).offsetTop,
            outline: getComputedStyle(element).outlineStyle,
          };
        });
        tops.push(top);
        assert.notEqual(outline, "none", `stop ${i} shows no focus`);
      }
      assert.deepEqual(
        tops,
        [...tops].sort((x, y) => x - y),
      );
    }));

  test("every control and chart has a name", () =>
    onPage(two, async (page) => {
      const unnamed = await page.evaluate(() =>
        [...document.querySelectorAll("button, input, select, [role=application], [role=group], section, table, dialog")]
          .filter((element) => !element.closest("[hidden]"))
          .filter((element) => {
            const label =
              element.getAttribute("aria-label") ??
              element.getAttribute("aria-labelledby") ??
              element.closest("label")?.textContent ??
              element.textContent;
            return !label?.trim();
          })
          .map((element) => element.outerHTML.slice(0, 90)),
      );
      assert.deepEqual(unnamed, []);
    }));

  test("dark follows the system, and the switch turns it", () =>
    onPage(
      one,
      async (page) => {
        const background = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
        const dark = await background();
        const map = await pixels(page, "#map canvas");
        await page.getByRole("button", { name: "Switch to light colours" }).click();
        assert.notEqual(await background(), dark);
        assert.notEqual(await pixels(page, "#map canvas"), map);
        await page.keyboard.press("d");
        assert.equal(await background(), dark);
      },
      { colorScheme: "dark" },
    ));

  test("text is legible on its ground in both themes", async () => {
    for (const colorScheme of /** @type {const} */ (["light", "dark"])) {
      await onPage(
        two,
        async (page) => {
          const poor = await page.evaluate(contrastFaults);
          assert.deepEqual(poor, [], colorScheme);
        },
        { colorScheme },
      );
    }
  });

  test("prints light, without controls, with every section", () =>
    onPage(
      one,
      async (page) => {
        await page.emulateMedia({ media: "print" });
        await page.waitForFunction(() => document.documentElement.dataset.theme === "light");
        assert.ok(!(await page.locator(".filters").isVisible()));
        assert.ok(await page.locator("#map canvas").isVisible());
        const pdf = await page.pdf({ format: "A4" });
        assert.ok(pdf.length > 50_000, `${pdf.length} bytes`);
      },
      { colorScheme: "dark" },
    ));

  test("nothing sticks out of a narrow window", () =>
    onPage(
      two,
      async (page) => {
        const { wide, seen } = await page.evaluate(() => ({
          wide: document.documentElement.scrollWidth,
          seen: innerWidth,
        }));
        assert.ok(wide <= seen, `${wide} of ${seen}`);
      },
      { viewport: { width: 390, height: 800 } },
    ));

  test("names from strangers' files stay text", async () => {
    const evil = "<img src=x onerror=alert(1)></script><script>alert(2)</script>${alert(3)}&lt;b&gt;\u202e\"'`";
    const hostile = structuredClone(a);
    hostile.file = evil;
    hostile.conf = evil;
    hostile.head = evil;
    hostile.sites = hostile.sites.map((site) => evil + site);
    hostile.frames.name = hostile.frames.name.map((name) => evil + name);
    hostile.frames.file = hostile.frames.file.map(() => `/${evil}`);
    hostile.streams = hostile.streams.map(({ id, name }) => ({ id, name: evil + name }));
    hostile.explain.verdict_text = evil;
    hostile.explain.questions[0].answer = evil;
    const path = writePage(
      TEMPLATE,
      makeReport([hostile, b], { ...makeDiff(hostile, b), summary: evil }),
      join(started.folder, "hostile.html"),
    );
    await onPage(path, async (page) => {
      assert.equal(await page.locator("img").count(), 0);
      assert.equal(await page.locator("script").count(), 2);
      assert.equal(await page.locator(".verdict-text").first().textContent(), evil);
      const canvas = page.locator("#map canvas").first();
      await canvas.scrollIntoViewIfNeeded();
      await canvas.hover({ position: { x: 40, y: 32 } });
      assert.ok((await page.locator(".tooltip").textContent())?.includes("<img src=x"));
      await page.locator(".unfold-button").first().click();
    });
  });

  test("the policy stops what would run or leave", async () => {
    const { page, done } = await openPage(started.browser, one);
    const stopped = await page.evaluate(async () => {
      const script = document.createElement("script");
      script.textContent = "window.ran = true";
      document.body.append(script);
      const fetched = await fetch("https://example.invalid/").then(
        () => "left",
        () => "stopped",
      );
      return { ran: "ran" in window, fetched };
    });
    assert.deepEqual(stopped, { ran: false, fetched: "stopped" });
    await assert.rejects(done, /Content Security Policy/); // it says so in the console, which fails every other test
  });

  for (const sample of readdirSync(SAMPLES).filter((name) => name.endsWith(".json"))) {
    test(`draws what the command writes: ${sample}`, async () => {
      const data = JSON.parse(readFileSync(join(SAMPLES, sample), "utf8"));
      const path = writePage(TEMPLATE, data, join(started.folder, sample.replace("json", "html")));
      await onPage(path, async (page) => {
        const maps = data.diff ? 2 : 1;
        assert.equal(await page.locator("#map canvas").count(), maps);
        for (const canvas of ["#map canvas", "#flame canvas"]) assert.ok((await colours(page, canvas)) > 3, canvas);
        const text = `${await page.locator("main").textContent()} ${await page.locator(".page-head").textContent()}`;
        assert.doesNotMatch(text, /undefined|NaN|\[object|null/);
      });
    });
  }

  test("data that is missing, damaged or of another version is said to be so", async () => {
    const cases = /** @type {const} */ ([
      ["", /has no data/],
      ['{"format":"gapless-rep', /damaged/],
      ["{}", /not that of a gapless report/],
      ['{"format":"gapless-report","version":99}', /version 99/],
      ['{"format":"gapless-report","version":1,"panels":[]}', /no memory in it/],
    ]);
    for (const [text, words] of cases) {
      const path = writePage(TEMPLATE, text, join(started.folder, "bad.html"));
      await onPage(path, async (page) => assert.match((await page.getByRole("alert").textContent()) ?? "", words));
    }
  });

  /** @type {[string, (panel: import("../src/data.ts").Panel) => void][]} */
  const odd = [
    ["one event", (panel) => panel.timeline && shorten(panel.timeline, 1)],
    [
      "nothing live",
      (panel) => Object.assign(panel.flame, { parent: [-1], frame: [-1], label: ["all"], bytes: [0], blocks: [0], category: [5] }),
    ],
    ["no flame", (panel) => Object.assign(panel.flame, { parent: [], frame: [], label: [], bytes: [], blocks: [], category: [] })],
    ["no segments", (panel) => panel.moments.forEach(emptyMoment)],
    [
      "no memory at all",
      (panel) =>
        Object.assign(panel, { peak_live_bytes: 0, peak_held_bytes: 0, explain: { ...panel.explain, held_bytes: 0, live_bytes: 0 } }),
    ],
    ["held is not known", (panel) => panel.timeline && Object.assign(panel.timeline, { held_bytes: null })],
    ["no times", (panel) => Object.assign(panel, { duration_us: 0 })],
    ["a terabyte in a block", (panel) => Object.assign(panel.moments[0].largest[0], { bytes: 2 ** 40 })],
    ["forty streams", (panel) => manyStreams(panel, 40)],
    ["an arena for each segment", (panel) => panel.moments.forEach(manyArenas)],
    ["some results are missing", (panel) => Object.assign(panel.what_if, { policies: panel.what_if.policies.map(blank) })],
  ];
  for (const [what, change] of odd) {
    test(`odd data: ${what}`, async () => {
      const panel = structuredClone(a);
      change(panel);
      const path = writePage(TEMPLATE, makeReport([panel]), join(started.folder, "odd.html"));
      await onPage(path, async (page) => {
        assert.equal(await page.locator("main h2").count(), 6);
        for (const key of ["End", "ArrowLeft", "+", "[", "0"]) await page.locator(".timeline-chart").press(key);
        await page.locator(".chips button").first().click();
        assert.doesNotMatch((await page.locator("main").textContent()) ?? "", /undefined|NaN|Infinity/);
      });
    });
  }

  test("a snapshot without a history, stacks or replays", async () => {
    const bare = structuredClone(a);
    Object.assign(bare, { timeline: null, event_count: 0, duration_us: 0, peak_held_bytes: null, cap_bytes: null });
    bare.marks = { peak: null, failure: null, steps: [] };
    bare.moments = bare.moments.filter(({ name }) => name === "end");
    bare.flame = {
      moment: "end",
      by: "category",
      parent: [-1, 0],
      frame: [-1, -1],
      label: ["all", "weights"],
      bytes: [4096, 4096],
      blocks: [1, 1],
      category: [0, 0],
      merged: 0,
    };
    bare.what_if = { reason: "the file has no history", peak_live_bytes: 0, caps: [], policies: [], out_of_time: false };
    bare.explain.advice = null;
    const path = writePage(TEMPLATE, makeReport([bare]), join(started.folder, "bare.html"));
    await onPage(path, async (page) => {
      assert.match((await page.locator("#timeline").textContent()) ?? "", /no history/);
      assert.match((await page.locator("#what-if").textContent()) ?? "", /the file has no history/);
      assert.ok((await colours(page, "#map canvas")) > 3);
    });
  });
});

/** @param {import("../src/data.ts").Timeline} timeline @param {number} points */
function shorten(timeline, points) {
  for (const values of Object.values(timeline)) {
    if (Array.isArray(values)) for (const list of Array.isArray(values[0]) ? values : [values]) list.length = points;
  }
}

/** @param {import("../src/data.ts").Moment} moment */
function manyArenas(moment) {
  const { rows } = moment;
  moment.arenas = rows.bytes.map((bytes, i) => ({ ...moment.arenas[rows.arena[i]], segments: 1, bytes, live_bytes: rows.live_bytes[i] }));
  rows.arena = rows.bytes.map((_, i) => i);
}

/** @param {import("../src/data.ts").WhatIfPolicy} policy */
const blank = (policy) => ({ ...policy, results: policy.results.map(() => null) });

/** @param {import("../src/data.ts").Moment} moment */
function emptyMoment(moment) {
  for (const table of [moment.rows, moment.cells]) for (const column of Object.values(table)) column.length = 0;
  Object.assign(moment, { arenas: [], largest: [], oldest: [], segment_count: 0, block_count: 0, held_bytes: 0 });
}

/** @param {import("../src/data.ts").Panel} panel @param {number} count */
function manyStreams(panel, count) {
  panel.streams = Array.from({ length: count }, (_, i) => ({ id: `0x${i}`, name: `stream ${i}` }));
  const { timeline } = panel;
  if (timeline) timeline.by_stream = panel.streams.map((_, i) => (i ? timeline.live_bytes.map(() => 512) : timeline.live_bytes));
}

/** Runs in the page: text whose contrast with what is behind it is below that of WCAG AA. */
function contrastFaults() {
  const LEAST = 4.5;
  const parts = (/** @type {string} */ colour) => (colour.match(/[\d.]+/g) ?? []).map(Number);
  const light = (/** @type {number[]} */ rgb) => {
    const [r, g, b] = rgb.map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (/** @type {Element | null} */ element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parts(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] > 0.99) return colour.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const faults = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!element || !node.textContent?.trim() || element.closest(".off, script, style, noscript, .change")) continue;
    if (!element.getClientRects().length) continue;
    const [x, y] = [light(parts(getComputedStyle(element).color)), light(ground(element))];
    const ratio = (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
    if (ratio < LEAST) faults.add(`${element.className || element.tagName}: ${ratio.toFixed(2)} (${node.textContent.trim().slice(0, 30)})`);
  }
  return [...faults];
}
