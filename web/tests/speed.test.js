// How fast the largest page is.  The figures are printed; the limits leave room for a machine that does other things too.

import assert from "node:assert/strict";
import { statSync } from "node:fs";
import { dirname, join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { findBrowser, openPage, startBrowser } from "./support/browser.js";
import { makeLargePanel } from "./support/large.js";
import { writePage } from "./support/page.js";
import { makeReport } from "./support/report.js";

const TEMPLATE = join(dirname(dirname(fileURLToPath(import.meta.url))), "dist/report.html");
const skip = findBrowser() ? false : "no Chromium is installed";
const PAINT_MS = 2000;
const FRAMES = 30;
const LOADED = 5; // times slower is forgiven

/**
 * Turns the wheel over an element once a frame, in and out, and counts frames.
 * @param {import("playwright-core").Page} page
 * @param {string} selector
 * @param {boolean} pan
 */
function framesPerSecond(page, selector, pan) {
  return page
    .locator(selector)
    .first()
    .evaluate(
      (element, sideways) =>
        new Promise((/** @type {(rate: number) => void} */ resolve) => {
          const { left, top, width } = element.getBoundingClientRect();
          const init = { bubbles: true, cancelable: true, ctrlKey: true, clientX: left + width / 2, clientY: top + 60 };
          let frames = 0;
          const begun = performance.now();
          const turn = () => {
            const delta = frames % 60 < 30 ? -40 : 40;
            element.dispatchEvent(new WheelEvent("wheel", { ...init, deltaX: sideways ? delta : 0, deltaY: sideways ? 0 : delta }));
            const spent = performance.now() - begun;
            if (spent > 1500) resolve((1000 * frames) / spent);
            else requestAnimationFrame(turn);
            frames++;
          };
          requestAnimationFrame(turn);
        }),
      pan,
    );
}

/** @param {import("playwright-core").Page} page @param {string} selector */
async function dragging(page, selector) {
  return page
    .locator(selector)
    .first()
    .evaluate(
      (element) =>
        new Promise((/** @type {(rate: number) => void} */ resolve) => {
          const { left, top } = element.getBoundingClientRect();
          const at = (/** @type {number} */ x) => ({
            bubbles: true,
            cancelable: true,
            view: window,
            clientX: left + 300 + x,
            clientY: top + 60,
          });
          element.dispatchEvent(new MouseEvent("mousedown", at(0)));
          let frames = 0;
          const begun = performance.now();
          const turn = () => {
            window.dispatchEvent(new MouseEvent("mousemove", at(100 * Math.sin(frames / 10))));
            const spent = performance.now() - begun;
            if (spent > 1500) {
              window.dispatchEvent(new MouseEvent("mouseup", at(0)));
              resolve((1000 * frames) / spent);
            } else requestAnimationFrame(turn);
            frames++;
          };
          requestAnimationFrame(turn);
        }),
    );
}

describe("speed", { skip }, () => {
  /** @type {Awaited<ReturnType<typeof startBrowser>>} */
  let started;
  let path = "";
  before(async () => {
    started = await startBrowser();
    path = writePage(TEMPLATE, makeReport([makeLargePanel()]), join(started.folder, "large.html"));
  });
  after(() => started.stop());

  test("the first paint of the largest page", async (t) => {
    const { page, done } = await openPage(started.browser, path);
    const { paint, drawn } = await page.evaluate(() => ({
      paint: performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? Number.NaN,
      drawn: performance.getEntriesByName("drawn")[0].startTime,
    }));
    t.diagnostic(
      `${(statSync(path).size / 1e6).toFixed(1)} MB: first paint after ${Math.round(paint)} ms, all drawn after ${Math.round(drawn)} ms`,
    );
    assert.ok(paint < PAINT_MS * LOADED, `${paint} ms`);
    assert.ok(drawn < PAINT_MS * LOADED, `${drawn} ms`);
    await done();
  });

  test("zoom and pan", async (t) => {
    const { page, done } = await openPage(started.browser, path);
    const rates = {
      "timeline zoom": await framesPerSecond(page, ".timeline-chart .u-over", false),
      "timeline pan": await framesPerSecond(page, ".timeline-chart .u-over", true),
      "map zoom": await framesPerSecond(page, ".map-place", false),
      "map pan": await dragging(page, ".map-place"),
    };
    for (const [what, rate] of Object.entries(rates)) {
      t.diagnostic(`${what}: ${rate.toFixed(0)} frames a second`);
      assert.ok(rate > FRAMES / LOADED, `${what}: ${rate}`);
    }
    await done();
  });
});
