// Keys that work everywhere on the page.

import type { Store } from "./store";
import { toggleTheme } from "./theme";

function isTyping(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement &&
    (target.matches("textarea, select") || (target instanceof HTMLInputElement && target.type !== "checkbox"))
  );
}

function goTo(sections: HTMLElement[], index: number): void {
  const section = sections[index];
  if (!section) return;
  section.scrollIntoView({ block: "start" });
  section.focus({ preventScroll: true });
}

export function listenToKeys(store: Store, sections: HTMLElement[], help: () => void): void {
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (/^[1-9]$/.test(event.key)) goTo(sections, Number(event.key) - 1);
    else if (event.key === "?") help();
    else if (event.key === "d") toggleTheme();
    else if (event.key === "x") store.clearFilters();
    else if (event.key === "/") document.getElementById("filter-text")?.focus();
    else return;
    event.preventDefault();
  });
}
