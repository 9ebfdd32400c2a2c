// The built page that is committed: that it is what the sources make, small, and closed.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));
const BYTES_MOST = 400_000;
const built = readFileSync(join(ROOT, "dist/report.html"), "utf8");

/** @param {string} name @param {string[]} args @param {NodeJS.ProcessEnv} env */
function tool(name, args, env = {}) {
  const done = spawnSync(join(ROOT, "node_modules/.bin", name), args, {
    cwd: ROOT,
    env: { ...process.env, ...env },
    encoding: "utf8",
  });
  assert.equal(done.status, 0, `${name}: ${done.stdout}${done.stderr}`);
}

test("a build gives the committed page, byte for byte", () => {
  const folder = mkdtempSync(join(tmpdir(), "gapless-build-"));
  try {
    tool("vite", ["build", "--logLevel", "error"], { GAP_WEB_OUT: folder });
    assert.ok(
      readFileSync(join(folder, "report.html"), "utf8") === built,
      "web/dist/report.html is not what the sources make: run npm run build in web/ and commit it",
    );
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("types are right", () => {
  tool("tsc", ["--noEmit"]);
  tool("tsc", ["--noEmit", "-p", "tests"]);
});

test("lint and layout", () => tool("biome", ["check", "."]));

test("the page is small", () => assert.ok(built.length < BYTES_MOST, `${built.length} bytes`));

test("the policy names the script and the style, and nothing else", () => {
  const policy = /<meta http-equiv="Content-Security-Policy" content="([^"]*)"/.exec(built)?.[1] ?? "";
  const hash = (/** @type {string} */ text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
  const script = /<script>([\s\S]*?)<\/script>/.exec(built)?.[1] ?? "";
  const style = /<style>([\s\S]*?)<\/style>/.exec(built)?.[1] ?? "";
  assert.equal(policy, `default-src 'none'; script-src ${hash(script)}; style-src ${hash(style)}; base-uri 'none'; form-action 'none'`);
});

test("nothing is fetched: no element names an address", () => {
  const outside = built.match(/<(?:script|link|img|iframe|object)[^>]*(?:src|href)=/g);
  assert.equal(outside, null);
});

test("packages come from the public registry only", () => {
  const { packages } = JSON.parse(readFileSync(join(ROOT, "package-lock.json"), "utf8"));
  for (const [name, { resolved = "" }] of Object.entries(packages)) {
    assert.ok(resolved === "" || resolved.startsWith("https://registry.npmjs.org/"), `${name}: ${resolved}`);
  }
});
