// Takes the data out of the page.  It comes from the command, but may have been cut or be of another version: that is said, not drawn.

import { FORMAT_VERSION, type ReportData } from "./data";

export class Unreadable extends Error {}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Unreadable(`The data in this page is damaged: ${(error as Error).message}`);
  }
}

export function readData(): ReportData {
  const element = document.getElementById("gapless-data");
  const text = element?.textContent?.trim() ?? "";
  if (!text) throw new Unreadable("This page has no data in it. “gapless report FILE -o report.html” makes one that has.");
  const data = parse(text) as Partial<ReportData> | null;
  if (data?.format !== "gapless-report") throw new Unreadable("The data in this page is not that of a gapless report.");
  if (data.version !== FORMAT_VERSION) {
    throw new Unreadable(`The data in this page has version ${data.version}; this page reads version ${FORMAT_VERSION}.`);
  }
  if (!data.panels?.length) throw new Unreadable("The report has no memory in it: no device held any.");
  element!.textContent = ""; // the text is the larger half of what the page would hold
  return data as ReportData;
}
