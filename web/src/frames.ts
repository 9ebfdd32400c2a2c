// A line of a program, in the short form that the command prints too: "modeling_llama.py:175 forward".

import type { Frames } from "./data";

const baseName = (path: string): string => path.slice(Math.max(path.lastIndexOf("/"), path.lastIndexOf("\\")) + 1);

export function frameName(frames: Frames, index: number): string {
  const file = baseName(frames.file[index] ?? "");
  const line = frames.line[index] ?? 0;
  const place = file && line > 0 ? `${file}:${line}` : file;
  return `${place} ${frames.name[index] ?? ""}`.trim() || "?";
}

export function framePath(frames: Frames, index: number): string {
  const line = frames.line[index] ?? 0;
  return `${frames.file[index] ?? ""}${line > 0 ? `:${line}` : ""}`;
}
