// Numbers as people read them: binary units for bytes, thousands in groups, time in the unit that fits.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** 1.50 GiB, 64 MiB, 512 B: two digits after the point unless they would be zeros, as the command prints them. */
export function bytes(value: number): string {
  if (value < 0) return `−${bytes(-value)}`;
  let unit = 0;
  let scaled = value;
  while (scaled >= 1024 && unit < UNITS.length - 1) {
    scaled /= 1024;
    unit++;
  }
  const digits = Number.isInteger(scaled) ? 0 : 2;
  return `${scaled.toFixed(digits)} ${UNITS[unit]}`;
}

/** Two digits always, so that a column of them lines up. */
export function bytesAligned(value: number): string {
  if (value < 0) return `−${bytesAligned(-value)}`;
  let unit = 0;
  let scaled = value;
  while (scaled >= 1024 && unit < UNITS.length - 1) {
    scaled /= 1024;
    unit++;
  }
  return unit === 0 ? `${scaled} B` : `${scaled.toFixed(2)} ${UNITS[unit]}`;
}

/** +1.50 GiB, −64 MiB, 0 B. */
export function bytesDifference(value: number): string {
  return value > 0 ? `+${bytes(value)}` : bytes(value);
}

/** The largest power of 1024 that is not above the value, and its name: one unit for a whole axis. */
export function byteUnit(largest: number): { factor: number; name: string } {
  let unit = 0;
  let factor = 1;
  while (largest >= factor * 1024 && unit < UNITS.length - 1) {
    factor *= 1024;
    unit++;
  }
  return { factor, name: UNITS[unit]! };
}

const grouped = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

export const count = (value: number): string => grouped.format(value);

export const plural = (value: number, one: string, many = `${one}s`): string => `${count(value)} ${value === 1 ? one : many}`;

export function percent(part: number, whole: number): string {
  if (whole <= 0) return "–";
  if (part === 0) return "0 %";
  const share = (100 * part) / whole;
  if (Math.abs(share) < 0.1) return "< 0.1 %";
  return `${Math.abs(share) < 9.95 ? share.toFixed(1) : Math.round(share)} %`;
}

/** A length of time, given in microseconds. */
export function duration(us: number): string {
  if (us < 0) return `−${duration(-us)}`;
  if (us < 1000) return `${Math.round(us)} µs`;
  if (us < 1e6) return `${(us / 1e3).toFixed(us < 1e5 ? 1 : 0)} ms`;
  if (us < 6e7) return `${(us / 1e6).toFixed(2)} s`;
  const minutes = Math.floor(us / 6e7);
  if (minutes < 60) return `${minutes} min ${Math.round((us % 6e7) / 1e6)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export const address = (value: bigint): string => `0x${value.toString(16)}`;
