// Which blocks the filters let through.

import type { Panel } from "./data";
import type { Choice } from "./store";

export interface Matcher {
  /** Everything passes: views need not dim anything. */
  all: boolean;
  category(category: number): boolean;
  stream(stream: number): boolean;
  site(site: number): boolean;
  frame(frame: number): boolean;
  text(text: string): boolean;
}

function lookup(size: number, test: (index: number) => boolean): (index: number) => boolean {
  const table = new Uint8Array(size);
  for (let i = 0; i < size; i++) table[i] = test(i) ? 1 : 0;
  return (index) => table[index] === 1;
}

export function matcher(panel: Panel, choice: Choice): Matcher {
  const { text, categories, streams } = choice;
  const has = (value: string) => value.toLowerCase().includes(text);
  const always = () => true;
  const { name, file } = panel.frames;
  return {
    all: !text && !categories.size && !streams.size,
    category: categories.size ? (index) => categories.has(index) : always,
    stream: streams.size ? lookup(panel.streams.length, (i) => streams.has(panel.streams[i]!.name)) : always,
    site: text ? lookup(panel.sites.length, (i) => has(panel.sites[i]!)) : always,
    frame: text ? lookup(name.length, (i) => has(name[i]!) || has(file[i]!)) : always,
    text: text ? has : always,
  };
}
