// The overlay that lists the keys, on "?".

import { button, el } from "./dom";

const KEYS: [string, [string, string][]][] = [
  [
    "Page",
    [
      ["?", "this list"],
      ["/", "filter by text"],
      ["Tab, Shift+Tab", "next, previous control or chart"],
      ["1 … 7", "jump to a section"],
      ["d", "dark or light"],
      ["x", "clear the filters"],
    ],
  ],
  [
    "Timeline",
    [
      ["← →", "move the cursor; with Shift by a tenth"],
      ["Home, End", "first, last event"],
      ["p  f", "go to the peak, the failure"],
      ["+ −", "zoom in, out"],
      ["[ ]", "pan"],
      ["0", "all of it"],
    ],
  ],
  [
    "Address map",
    [
      ["← →", "previous, next block"],
      ["↑ ↓", "row above, below"],
      ["+ −", "zoom in, out"],
      ["[ ]", "pan"],
      ["0", "all of it"],
    ],
  ],
  [
    "Flame graph",
    [
      ["↑ ↓", "caller, largest callee"],
      ["← →", "neighbours"],
      ["Enter", "zoom to the selected call"],
      ["Esc", "back to all of it"],
    ],
  ],
];

function group([title, keys]: [string, [string, string][]]): HTMLElement {
  const list = el("dl", "keys");
  for (const [key, what] of keys) list.append(el("dt", {}, el("kbd", { text: key })), el("dd", { text: what }));
  return el("section", {}, el("h3", { text: title }), list);
}

export interface Help {
  element: HTMLDialogElement;
  toggle(): void;
}

export function makeHelp(): Help {
  const element = el("dialog", { class: "help", attributes: { "aria-label": "Keys" } });
  element.append(
    el(
      "header",
      {},
      el("h2", { text: "Keys" }),
      button("Close", () => element.close(), { class: "quiet" }),
    ),
    el("div", "help-groups", ...KEYS.map(group)),
    el("p", {
      class: "note",
      text: "With the mouse: drag in the timeline to zoom, in the strip below it or in the map to pan; the wheel zooms a chart that has the focus, or any with Ctrl. Double-click shows all again.",
    }),
  );
  element.addEventListener("click", (event) => event.target === element && element.close());
  return { element, toggle: () => (element.open ? element.close() : element.showModal()) };
}
