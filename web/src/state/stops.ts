// The stops of a slider over counts: the powers of two and a few between them.

/** Stops between a number and its double. */
const FINE = 4;
const MOST = 2 ** 17;

export const LAST_STOP = FINE * Math.log2(MOST);

/** 0 → 1, 4 → 2, 8 → 4, …, 45 → 2560: whole, and round where numbers are large. */
export function stop(position: number): number {
  const exact = 2 ** (position / FINE);
  const step = Math.max(1, 2 ** (Math.floor(Math.log2(exact)) - 3));
  return Math.round(exact / step) * step;
}

/** Where a count stands, or as near as the slider reaches. */
export function positionOf(count: string): number {
  const number = Math.min(MOST, Math.max(1, Number(count) || 1));
  return Math.round(FINE * Math.log2(number));
}
