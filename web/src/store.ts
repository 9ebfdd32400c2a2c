// What the reader has chosen: filters, the moment, the files that are shown.  Views subscribe and draw again.

export type MomentName = "peak" | "failure" | "end";

export interface Choice {
  /** Shown only if its call site, function or file has this in it; lower case, "" for all. */
  text: string;
  /** Indices into CATEGORIES that are shown; empty: all. */
  categories: ReadonlySet<number>;
  /** Names of streams that are shown; empty: all.  Names, because two files number theirs differently. */
  streams: ReadonlySet<string>;
  moment: MomentName;
  /** Indices into ReportData.panels: one, or two side by side. */
  shown: readonly number[];
}

type Listener = (choice: Choice, changed: ReadonlySet<keyof Choice>) => void;

export class Store {
  #choice: Choice;
  #listeners: Listener[] = [];

  constructor(choice: Choice) {
    this.#choice = choice;
  }

  get choice(): Choice {
    return this.#choice;
  }

  set(change: Partial<Choice>): void {
    this.#choice = { ...this.#choice, ...change };
    const changed = new Set(Object.keys(change) as (keyof Choice)[]);
    for (const listener of [...this.#listeners]) listener(this.#choice, changed);
  }

  /** Returns what ends the subscription. */
  subscribe(listener: Listener): () => void {
    this.#listeners.push(listener);
    return () => {
      this.#listeners = this.#listeners.filter((other) => other !== listener);
    };
  }

  clearFilters(): void {
    this.set({ text: "", categories: new Set(), streams: new Set() });
  }

  get isFiltered(): boolean {
    const { text, categories, streams } = this.#choice;
    return text !== "" || categories.size > 0 || streams.size > 0;
  }

  toggleCategory(category: number): void {
    this.set({ categories: toggled(this.#choice.categories, category) });
  }

  toggleStream(name: string): void {
    this.set({ streams: toggled(this.#choice.streams, name) });
  }
}

function toggled<T>(set: ReadonlySet<T>, member: T): ReadonlySet<T> {
  const copy = new Set(set);
  if (!copy.delete(member)) copy.add(member);
  return copy;
}
