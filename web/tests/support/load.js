// Modules of the page that need no browser, for tests in Node.

import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "vite";

const ROOT = dirname(dirname(dirname(fileURLToPath(import.meta.url))));

/**
 * @param {string} name of a module in src, without its ending
 * @returns {Promise<any>} what it exports
 */
export async function load(name) {
  const made = await build({
    configFile: false,
    logLevel: "error",
    build: { write: false, minify: false, lib: { entry: join(ROOT, "src", `${name}.ts`), formats: ["es"], fileName: "module" } },
  });
  const [{ output }] = /** @type {import("vite").Rollup.RollupOutput[]} */ (made);
  return import(`data:text/javascript;base64,${Buffer.from(output[0].code).toString("base64")}`);
}
