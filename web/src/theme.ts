// Dark and light: what the system prefers until the reader chooses; paper is always light.

import { isPrinting, onPrint, startPrint } from "./print";

export type Theme = "dark" | "light";

const KEY = "gapless-theme";
const dark = matchMedia("(prefers-color-scheme: dark)");
let listeners: { owner: Element; listener: () => void }[] = [];

function stored(): Theme | null {
  try {
    const value = localStorage.getItem(KEY);
    return value === "dark" || value === "light" ? value : null;
  } catch {
    return null; // a file from disk may have no storage
  }
}

let chosen = stored();

export const theme = (): Theme => (isPrinting() ? "light" : (chosen ?? (dark.matches ? "dark" : "light")));

function show(): void {
  document.documentElement.dataset.theme = theme();
  listeners = listeners.filter(({ owner }) => owner.isConnected); // views come and go
  for (const { listener } of listeners) listener();
}

export function toggleTheme(): void {
  chosen = theme() === "dark" ? "light" : "dark";
  try {
    localStorage.setItem(KEY, chosen);
  } catch {
    // it holds for this visit
  }
  show();
}

/** Calls back after each change of theme, as long as the owner is in the page: what draws on a canvas draws again. */
export const onTheme = (owner: Element, listener: () => void): void => void listeners.push({ owner, listener });

export function startTheme(): void {
  startPrint();
  onPrint(show);
  dark.addEventListener("change", show);
  show();
}

/** A value that depends on the theme, made once for each. */
export function themed<A, T>(make: (from: A) => T): (from: A) => T {
  let made: { theme: Theme; value: T } | null = null;
  return (from) => {
    if (made?.theme !== theme()) made = { theme: theme(), value: make(from) };
    return made.value;
  };
}
