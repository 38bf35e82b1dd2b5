// One step as areas over its time: a path a value, in a box of as many columns as there are stretches, and its phases.
import type { Lane } from '../wasm/time';

/** Of the box; its width is the number of stretches. */
export const HEIGHT = 100;

/** What is filled up to `value` of 1 in each stretch. */
export function area(lanes: readonly Lane[], value: (lane: Lane) => number): string {
  const columns = lanes.map((lane, i) => `V${(HEIGHT * (1 - value(lane))).toFixed(0)}H${i + 1}`);
  return `M0 ${HEIGHT}${columns.join('')}V${HEIGHT}Z`;
}

export interface Span {
  phase: string;
  /** In percent of the step. */
  from: number;
  to: number;
}

/** Stretches that follow one another in a phase. */
export function spans(lanes: readonly Lane[]): Span[] {
  const found: Span[] = [];
  lanes.forEach(({ phase }, i) => {
    const [from, to] = [(100 * i) / lanes.length, (100 * (i + 1)) / lanes.length];
    const last = found.at(-1);
    if (last?.phase === phase) last.to = to;
    else found.push({ phase, from, to });
  });
  return found;
}
