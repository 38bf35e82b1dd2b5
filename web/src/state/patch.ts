// A change that the core proposes, a merge patch (RFC 7386) on the job, as settings of the page.
import type { Patch } from '../wasm/advice';
import { FIELDS, type Field, type Setup } from './fields';
import { toJob } from './job';
import { at, isObject, keys } from './json';
import type { Model } from './model';
import { OPTIONS } from './options.generated';

/** RFC 7386: members replace members, null removes one. */
export function merge(target: unknown, patch: unknown): unknown {
  if (!isObject(patch)) return patch;
  const merged: Patch = isObject(target) ? { ...target } : {};
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) Reflect.deleteProperty(merged, key);
    else merged[key] = merge(merged[key], value);
  }
  return merged;
}

/** In how many values two jobs differ. */
export function differences(a: unknown, b: unknown): number {
  if (!isObject(a) && !isObject(b)) return Number(JSON.stringify(a) !== JSON.stringify(b));
  const [x, y] = [isObject(a) ? a : {}, isObject(b) ? b : {}];
  return [...new Set([...Object.keys(x), ...Object.keys(y)])].reduce(
    (sum, key) => sum + differences(x[key], y[key]),
    0,
  );
}

/** Where two jobs differ, by pointers. */
function differing(a: unknown, b: unknown, pointer = ''): string[] {
  if (!isObject(a) || !isObject(b)) return JSON.stringify(a) === JSON.stringify(b) ? [] : [pointer];
  const names = new Set([...Object.keys(a), ...Object.keys(b)]);
  return [...names].flatMap((name) => differing(a[name], b[name], `${pointer}/${name}`));
}

/** What a field may hold to meet the patch. */
function candidates({ kind, choices, pointers }: Field, patch: Patch): string[] {
  const named = pointers.map((pointer) => at(patch, pointer)).filter((value) => value !== undefined);
  if (named.length === 0) return [];
  if (kind === 'choice') return [...(choices ?? [])];
  return named
    .map((value) => (isObject(value) ? value.name : value))
    .filter((value) => typeof value === 'number' || typeof value === 'string')
    .map(String);
}

const nothingAt = (pointer: string): unknown =>
  keys(pointer).reduceRight<unknown>((value, key) => ({ [key]: value }), null);

export interface Nearest {
  setup: Setup;
  /** Where it is not as the change says, by pointers. */
  lacking: readonly string[];
}

/** The settings that come nearest to those after the change. */
export function nearest(setup: Setup, model: Model, patch: Patch): Nearest {
  const removed = OPTIONS.filter(([pointer, , usual]) => usual !== null && at(patch, pointer) === null);
  /** Without what the patch removes, where it is as its absence means. */
  const jobOf = (candidate: Setup): unknown =>
    removed.reduce<unknown>(
      (job, [pointer, , usual]) => (at(job, pointer) === usual ? merge(job, nothingAt(pointer)) : job),
      toJob(candidate, model),
    );
  const wanted = merge(jobOf(setup), patch);
  const distance = (candidate: Setup): [lacks: number, differs: number] => {
    const job = jobOf(candidate);
    return [differences(job, merge(job, patch)), differences(job, wanted)];
  };
  let best = setup;
  let [lacks, differs] = distance(setup);
  for (const field of FIELDS) {
    for (const value of candidates(field, patch)) {
      const next = { ...best, [field.key]: value };
      const [nextLacks, nextDiffers] = distance(next);
      if (nextLacks > lacks || (nextLacks === lacks && nextDiffers >= differs)) continue;
      [best, lacks, differs] = [next, nextLacks, nextDiffers];
    }
  }
  const job = jobOf(best);
  return { setup: best, lacking: lacks === 0 ? [] : differing(job, merge(job, patch)) };
}

/** The settings after the change; null where they cannot express it. */
export function applied(setup: Setup, model: Model, patch: Patch): Setup | null {
  const { setup: after, lacking } = nearest(setup, model, patch);
  return lacking.length === 0 ? after : null;
}
