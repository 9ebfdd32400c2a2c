// What the command writes, opened as a reader would: the page that it embeds is the one that is committed.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { colours, findBrowser, openPage, startBrowser } from "./support/browser.js";

const ROOT = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
const COMMAND = process.env.GAP_COMMAND ?? join(ROOT, "build/gapless");
const skip = !existsSync(COMMAND) ? "build/gapless is not built" : findBrowser() ? false : "no Chromium is installed";

describe("command", { skip }, () => {
  /** @type {Awaited<ReturnType<typeof startBrowser>>} */
  let started;
  before(async () => {
    started = await startBrowser();
  });
  after(() => started.stop());

  /** @param {string[]} files of tests/data @param {string} name */
  function report(files, name) {
    const out = join(started.folder, name);
    const paths = files.map((file) => join(ROOT, "tests/data", file));
    const done = spawnSync(COMMAND, ["report", "--quiet", "--seconds", "1", ...paths, "-o", out], { encoding: "utf8" });
    assert.equal(done.status, 0, done.stderr);
    return out;
  }

  test("one file", async () => {
    const path = report(["oom.pickle.xz"], "one.html");
    const [head] = readFileSync(join(ROOT, "web/dist/report.html"), "utf8").split('<script type="application/json"');
    assert.ok(readFileSync(path, "utf8").startsWith(head), "the command has another page in it: build it again");
    const { page, done } = await openPage(started.browser, path);
    assert.match((await page.locator(".verdict").textContent()) ?? "", /1\.69 GiB/);
    for (const canvas of ["#timeline .uplot canvas", "#map canvas", "#flame canvas"]) assert.ok((await colours(page, canvas)) > 3, canvas);
    await done();
  });

  test("two files", async () => {
    const path = report(["streams.pickle.xz", "streams.expandable.pickle.xz"], "two.html");
    const { page, done } = await openPage(started.browser, path);
    assert.equal(await page.locator("#map canvas").count(), 2);
    assert.match((await page.locator(".diff-summary").textContent()) ?? "", /B has/);
    await done();
  });
});
