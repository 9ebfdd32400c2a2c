// Writes a report into the built page, as the command does.

import { readFileSync, writeFileSync } from "node:fs";

const SLOT = '<script type="application/json" id="gapless-data"></script>';

/** @param {string} template @param {unknown} data @param {string} path */
export function writePage(template, data, path) {
  const html = readFileSync(template, "utf8");
  if (html.split(SLOT).length !== 2) throw new Error("the page has no one place for its data");
  const text = typeof data === "string" ? data : JSON.stringify(data).replaceAll("<", "\\u003c");
  writeFileSync(
    path,
    html.replace(SLOT, () => SLOT.replace("></", () => `>${text}</`)),
  );
  return path;
}
