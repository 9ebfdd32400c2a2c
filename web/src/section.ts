// The frame of a section: title, a line that says what is seen, controls, a body.

import { type Child, el } from "./dom";

export interface Section {
  element: HTMLElement;
  body: HTMLElement;
  note: HTMLElement;
  controls: HTMLElement;
}

export function makeSection(id: string, title: string, ...controls: Child[]): Section {
  const heading = el("h2", { id: `${id}-title`, text: title });
  const note = el("p", "section-note");
  const tools = el("div", "controls", ...controls);
  const body = el("div", "section-body");
  const element = el(
    "section",
    { id, class: "section", attributes: { "aria-labelledby": `${id}-title`, tabindex: -1 } },
    el("header", "section-head", heading, note, tools),
    body,
  );
  return { element, body, note, controls: tools };
}

/** Buttons of which one is pressed. */
export interface Choices<T extends string> {
  element: HTMLElement;
  set(value: T): void;
}

export function makeChoices<T extends string>(
  label: string,
  options: readonly (readonly [T, string])[],
  initial: T,
  choose: (value: T) => void,
): Choices<T> {
  const buttons = options.map(([value, text]) => {
    const made = el("button", { text, attributes: { type: "button", "data-value": value } });
    made.addEventListener("click", () => {
      set(value);
      choose(value);
    });
    return made;
  });
  const set = (value: T) => {
    for (const made of buttons) made.setAttribute("aria-pressed", String(made.dataset.value === value));
  };
  set(initial);
  return {
    element: el("div", { class: "choices", attributes: { role: "group", "aria-label": label } }, ...buttons),
    set,
  };
}

/** What stands where there is nothing to draw. */
export const nothing = (text: string): HTMLElement => el("p", { class: "note empty", text });
