// A change that the core proposes, a merge patch (RFC 7386) on the job, as settings of the page.
import type { Patch } from '../wasm/advice';
import { FIELDS, type Field, type Setup } from './fields';
import { toJob } from './job';
import { at, isObject, keys } from './json';
import type { Model } from './model';
import { OPTIONS } from './options.generated';
import { packRun, runOf } from './runfile';

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
  const names = [...new Set([...Object.keys(x), ...Object.keys(y)])];
  // An object with other members is nearer than none at all.
  const none = isObject(a) === isObject(b) || names.length === 0 ? 0 : 1;
  return names.reduce((sum, key) => sum + differences(x[key], y[key]), none);
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

/** One's own configuration where there is one, as it then is. */
function ownRun({ runfile }: Setup, job: unknown): string[] {
  if (runfile === '') return [];
  const run = runOf(at(job, '/parallel/ds_config') ?? at(job, '/parallel/accelerate_config'));
  return [run ? packRun(run) : ''];
}

/** Whether one of them writes into what the other writes. */
const sharePlace = ({ pointers: a }: Field, { pointers: b }: Field): boolean =>
  a.some((one) => b.some((other) => `${one}/`.startsWith(`${other}/`) || `${other}/`.startsWith(`${one}/`)));

const nothingAt = (pointer: string): unknown =>
  keys(pointer).reduceRight<unknown>((value, key) => ({ [key]: value }), null);

export interface Nearest {
  setup: Setup;
  /** Where it is not as the change says, by pointers. */
  lacking: readonly string[];
}

type Distance = [lacks: number, differs: number];

/** Two fields that write into one place may say together what neither says alone: a strategy, and what it offloads. */
function together(
  setup: Setup,
  fields: readonly { field: Field; values: readonly string[] }[],
  says: (candidate: Setup) => boolean,
): Setup | undefined {
  for (const [i, one] of fields.entries())
    for (const other of fields.slice(i + 1).filter(({ field }) => sharePlace(one.field, field)))
      for (const value of one.values)
        for (const second of other.values) {
          const next = { ...setup, [one.field.key]: value, [other.field.key]: second };
          if (says(next)) return next;
        }
  return undefined;
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
  const distance = (candidate: Setup): Distance => {
    const job = jobOf(candidate);
    return [differences(job, merge(job, patch)), differences(job, wanted)];
  };
  let best = setup;
  let [lacks, differs] = distance(setup);
  const isNearer = ([nextLacks, nextDiffers]: Distance): boolean =>
    nextLacks < lacks || (nextLacks === lacks && nextDiffers < differs);
  const values = (field: Field): string[] =>
    field.key === 'runfile' ? ownRun(setup, wanted) : candidates(field, patch);
  const fields = FIELDS.map((field) => ({ field, values: values(field) }));
  for (let former: Setup | null = null; former !== best;) {
    former = best;
    for (const { field, values } of fields) {
      for (const value of values) {
        const next = { ...best, [field.key]: value };
        const there = distance(next);
        if (isNearer(there)) [best, lacks, differs] = [next, ...there];
      }
    }
  }
  if (lacks > 0) best = together(best, fields, (candidate) => distance(candidate).every((left) => left === 0)) ?? best;
  const job = jobOf(best);
  return { setup: best, lacking: differing(job, merge(job, patch)) };
}

/** Whether what the patch brings anew has more to it in a job than the patch says. */
function saysMore(before: unknown, patch: Patch, job: unknown): boolean {
  return Object.entries(patch).some(([key, value]) => {
    if (!isObject(value) || Object.keys(value).length === 0) return false;
    const [former, now] = [before, job].map((of) => (isObject(of) ? of[key] : undefined));
    return isObject(former) ? saysMore(former, value, now) : differences(now, merge(undefined, value)) > 0;
  });
}

/** The settings after the change; null where they cannot express it. */
export function applied(setup: Setup, model: Model, patch: Patch): Setup | null {
  const { setup: after, lacking } = nearest(setup, model, patch);
  if (lacking.length > 0 || saysMore(toJob(setup, model), patch, toJob(after, model))) return null;
  return after;
}
