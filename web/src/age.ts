// How long ago a block was made.

import type { Moment } from "./data";
import { duration, plural } from "./units";

export interface Birth {
  /** -1: before the first event. */
  event: number;
  us: number;
}

/** In time where the file has times, else in events. */
export function age(moment: Moment, born: Birth, hasTimes: boolean): string {
  if (born.event < 0) return "not known";
  return hasTimes ? duration(moment.time_us - born.us) : plural(moment.event - born.event, "event");
}

/** For the box beside the pointer, which has room. */
export function ageAtLength(moment: Moment, born: Birth, hasTimes: boolean): string {
  if (born.event < 0) return "from before the first event";
  return hasTimes ? `${age(moment, born, true)} (${age(moment, born, false)})` : age(moment, born, false);
}
