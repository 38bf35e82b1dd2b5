// What is in sight of a picture that one may zoom, in percent of the whole.

export interface Window {
  from: number;
  to: number;
}

export const WHOLE: Window = { from: 0, to: 100 };
/** Closer, a stretch of the run would fill the picture. */
const SMALLEST = 0.1;

/** Zooms by the factor (below 1: closer) about a place that stays where it is seen. */
export function zoomed({ from, to }: Window, factor: number, about: number): Window {
  const width = Math.min(100, Math.max(SMALLEST, (to - from) * factor));
  const share = (about - from) / (to - from);
  return placed(about - share * width, width);
}

/** Moves by a share of what is in sight. */
export function moved({ from, to }: Window, share: number): Window {
  return placed(from + share * (to - from), to - from);
}

/** As wide as it is, its middle there. */
export function centred({ from, to }: Window, middle: number): Window {
  return placed(middle - (to - from) / 2, to - from);
}

function placed(from: number, width: number): Window {
  if (width >= 100) return WHOLE;
  const start = Math.max(0, Math.min(100 - width, from));
  return { from: start, to: start + width };
}
