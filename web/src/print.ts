// Whether the page is being printed: paper is light, narrow, and shows what is folded on the screen.

const paper = matchMedia("print");
const listeners: ((on: boolean) => void)[] = [];
let on = paper.matches;

export const isPrinting = (): boolean => on;

/** Calls back before and after printing, when the page is already as wide as the paper. */
export const onPrint = (listener: (on: boolean) => void): void => void listeners.push(listener);

function set(now: boolean): void {
  if (now === on) return;
  on = now;
  document.documentElement.toggleAttribute("data-printing", on);
  unfold();
  for (const listener of listeners) listener(on);
}

function unfold(): void {
  for (const fold of document.querySelectorAll<HTMLDetailsElement>("details.more")) {
    if (on && !fold.open) fold.dataset.folded = "";
    if (on || "folded" in fold.dataset) fold.open = on;
    if (!on) delete fold.dataset.folded;
  }
}

export function startPrint(): void {
  paper.addEventListener("change", () => set(paper.matches));
  addEventListener("beforeprint", () => set(true));
  addEventListener("afterprint", () => set(false));
}
