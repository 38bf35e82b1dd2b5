// What each other choice of a setting would do to the peak, with everything else left as it is.
import type { Verdict } from '../wasm/report';
import { applies, choicesOf, FIELDS, type Field, type FieldKey, type Setup } from './fields';
import type { Traits } from './traits';

/** A peak: all of it, and what tensors take of it. */
export interface Peak {
  total: number;
  allocated: number;
}

export interface Effect extends Peak {
  verdict: Verdict;
}

/** By `effectKey`; null where the core refuses the choice. */
export type Effects = ReadonlyMap<string, Effect | null>;

export interface Alternative {
  key: FieldKey;
  value: string;
}

export const effectKey = (key: FieldKey, value: string): string => `${key}=${value}`;

/** The values beside a count's own that people try next. */
export function neighbours(value: string): { half: string | null; double: string | null } {
  const number = Number(value);
  if (!Number.isInteger(number) || number < 1 || number > 1 << 22) return { half: null, double: null };
  return { half: number > 1 ? String(Math.floor(number / 2)) : null, double: String(number * 2) };
}

function valuesOf(field: Field, model: Traits, setup: Setup): string[] {
  const { key, kind } = field;
  if (kind === 'choice') return [...choicesOf(field, model)];
  if (kind !== 'count') return [];
  const { half, double } = neighbours(setup[key]);
  // One GPU is another kind of job, to which some settings lead.
  const values = new Set([half, double, key === 'gpus' ? '1' : null]);
  return [...values].filter((value) => value !== null);
}

/** Every single change that the form offers, those of the settings in sight first. */
export function alternatives(setup: Setup, model: Traits): Alternative[] {
  return FIELDS.filter((field) => applies(field, model, setup)).flatMap((field) =>
    valuesOf(field, model, setup)
      .filter((value) => value !== setup[field.key])
      .map((value) => ({ key: field.key, value })),
  );
}

/** Less than this is not seen beside a choice. */
const SEEN = 0.05 * 1024 ** 3;

/** Whether the total moves against what tensors take: then it is the allocator's unused cache that differs. */
export function isByCache(effect: Peak, base: Peak): boolean {
  const total = effect.total - base.total;
  const allocated = effect.allocated - base.allocated;
  return Math.abs(total) > SEEN && Math.abs(allocated) > SEEN && total > 0 !== allocated > 0;
}
