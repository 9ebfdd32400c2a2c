// The system's Chromium, and pages that fail a test by what they print.

import assert from "node:assert/strict";
import { accessSync, constants, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { chromium } from "playwright-core";

const NAMES = ["chromium", "chromium-browser", "google-chrome"];

/** @returns {string} the program; "" where there is none */
export function findBrowser() {
  const folders = (process.env.PATH ?? "").split(delimiter);
  const paths = process.env.GAP_CHROMIUM
    ? [process.env.GAP_CHROMIUM]
    : folders.flatMap((folder) => NAMES.map((name) => join(folder, name)));
  return paths.find(isProgram) ?? "";
}

/** @param {string} path */
function isProgram(path) {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

export async function startBrowser() {
  const browser = await chromium.launch({ executablePath: findBrowser(), args: ["--no-sandbox", "--disable-gpu"] });
  const folder = mkdtempSync(join(tmpdir(), "gapless-web-"));
  const stop = async () => {
    await browser.close();
    rmSync(folder, { recursive: true });
  };
  return { browser, folder, stop };
}

/**
 * Opens a page; `done` closes it and fails when it printed an error, threw, or asked for anything but itself.
 * @param {import("playwright-core").Browser} browser
 * @param {string} path
 * @param {import("playwright-core").BrowserContextOptions} options
 */
export async function openPage(browser, path, options = {}) {
  const context = await browser.newContext({
    viewport: { width: 1360, height: 900 },
    colorScheme: "light",
    ...options,
  });
  const page = await context.newPage();
  /** @type {string[]} */
  const faults = [];
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && faults.push(message.text()));
  page.on("pageerror", (error) => faults.push(String(error.stack)));
  page.on("request", (request) => request.url() !== `file://${path}` && faults.push(`asks for ${request.url()}`));
  page.on("dialog", (dialog) => {
    faults.push(`a dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  await page.goto(`file://${path}`);
  await page.waitForFunction(() => performance.getEntriesByName("drawn").length > 0);
  const done = async () => {
    await context.close();
    assert.deepEqual(faults, []);
  };
  return { page, done };
}

/**
 * What a canvas shows: a number that changes with it, and how many colours there are.  A copy is read, for a canvas that is read
 * itself is from then on drawn in another way.
 * @param {import("playwright-core").Page} page
 * @param {string} selector
 */
function look(page, selector) {
  return page
    .locator(selector)
    .first()
    .evaluate(async (element) => {
      await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
      const canvas = /** @type {HTMLCanvasElement} */ (element);
      const copy = new OffscreenCanvas(canvas.width, canvas.height);
      const context = /** @type {OffscreenCanvasRenderingContext2D} */ (copy.getContext("2d", { willReadFrequently: true }));
      context.drawImage(canvas, 0, 0);
      const pixels = new Uint32Array(context.getImageData(0, 0, canvas.width, canvas.height).data.buffer);
      let sum = 0;
      for (const pixel of pixels) sum = (Math.imul(sum, 31) + pixel) | 0;
      return { sum, colours: new Set(pixels).size };
    });
}

/** @param {import("playwright-core").Page} page @param {string} selector */
export const pixels = async (page, selector) => (await look(page, selector)).sum;

/** @param {import("playwright-core").Page} page @param {string} selector */
export const colours = async (page, selector) => (await look(page, selector)).colours;
