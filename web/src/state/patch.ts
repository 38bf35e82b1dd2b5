// A change that the core proposes, a merge patch on the job, as settings of the page.
import type { Patch } from '../wasm/advice';
import { FIELDS, toJob, type Field, type Setup } from './fields';
import type { Model } from './model';

function isObject(value: unknown): value is Patch {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

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

function at(job: unknown, pointer: string): unknown {
  return pointer
    .split('/')
    .slice(1)
    .reduce((value, key) => (isObject(value) ? value[key] : undefined), job);
}

/** What a field would hold so that `toJob` wrote this job; null where it would hold what it does not offer. */
function valueIn(job: unknown, { key, kind, choices, pointers }: Field): string | null {
  const found = at(job, pointers[0] ?? '');
  const part = isObject(found) ? found : {};
  const text = ((): unknown => {
    switch (key) {
      case 'gpu':
        return part.name;
      case 'optimizer':
        return part.name === 'sgd' && part.momentum !== undefined ? 'sgd-momentum' : part.name;
      case 'parallel':
        return part.strategy === 'deepspeed' ? `zero${String(part.zero_stage)}` : part.strategy;
      case 'segments':
        return found === true ? 'on' : 'off';
      case 'clip':
        return found ?? 'off';
      default:
        return found;
    }
  })();
  if (typeof text !== 'string' && typeof text !== 'number') return null;
  const value = String(text);
  return kind === 'choice' && !choices?.some((choice) => choice.value === value) ? null : value;
}

/** Whether the patch would leave the job as it is. */
function holds(job: unknown, patch: unknown): boolean {
  if (!isObject(patch)) return patch === null ? job === undefined : JSON.stringify(job) === JSON.stringify(patch);
  return isObject(job) && Object.entries(patch).every(([key, value]) => holds(job[key], value));
}

/** The settings after the change; null where they cannot express it. */
export function applied(setup: Setup, model: Model, patch: Patch): Setup | null {
  const before = toJob(setup, model);
  const after = merge(before, patch);
  const next = { ...setup };
  for (const field of FIELDS) {
    if (field.key === 'model' || field.key === 'config') continue;
    const value = valueIn(after, field);
    // What the job does not name, such as an unused library's version, stays as it was.
    if (value !== null && value !== valueIn(before, field)) next[field.key] = value;
  }
  return holds(toJob(next, model), patch) ? next : null;
}
