// Which moment of a panel the reader has chosen.

import type { Moment, Panel } from "./data";
import type { Choice } from "./store";

/** The chosen moment; of a file without failure, which may stand beside one that has one, the peak. */
export const momentOf = (panel: Panel, choice: Choice): Moment | undefined =>
  panel.moments.find(({ name }) => name === choice.moment) ?? panel.moments.find(({ name }) => name === "peak") ?? panel.moments.at(-1);
