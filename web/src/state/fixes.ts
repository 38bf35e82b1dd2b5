// What would give refused settings an answer: what the core says, and what trying every other choice has found.
import type { Result, Trouble } from '../wasm/ask';
import { change } from './adopt';
import { effectKey, type Alternative, type Effects } from './effects';
import { applies, field, FIELDS, START, type FieldKey, type Setup } from './fields';
import { choiceLabel } from './labels';
import { toJob } from './job';
import type { Model } from './model';
import { applied, differences } from './patch';

export interface Fix {
  words: string;
  setup: Setup;
  /** The field that it changes first. */
  key: FieldKey;
}

/** More would be a list to study. */
const MOST = 3;

/** What somebody set, which a fix must not take away: what has changed since the last answer, or differs from the start. */
function wantedOf(setup: Setup, last: Result | null): FieldKey[] {
  const before = last?.setup ?? START;
  return FIELDS.filter(({ key }) => setup[key] !== before[key]).map(({ key }) => key);
}

const wordsOf = ({ key, value }: Pick<Alternative, 'key' | 'value'>): string => {
  const choice = choiceLabel({ key }, value);
  return `${key === 'parallel' ? `Switch to ${choice}` : `Set ${key === 'gpus' ? 'GPUs' : field(key).label} to ${choice}`} and continue`;
};

/**
 * `last`: the last answer; `effects`: of the refused settings' alternatives, those known so far; `strategy`: as `change` takes
 * it.
 */
export function fixesOf(
  trouble: Trouble,
  setup: Setup,
  model: Model,
  last: Result | null,
  effects: Effects,
  strategy: string,
): Fix[] {
  const wanted = wantedOf(setup, last);
  /** What was just changed stays as it is; a link's settings stay in force, or take another value. */
  const keeps = (fixed: Setup): boolean =>
    wanted.every((key) => applies(field(key), model, fixed) && (last === null || fixed[key] === setup[key]));
  const said = (trouble.error?.fixes ?? []).flatMap(({ label, change: patch }): Fix[] => {
    const fixed = applied(setup, model, patch);
    if (!fixed || !keeps(fixed)) return [];
    const changed = FIELDS.filter(({ key }) => fixed[key] !== setup[key]);
    // In the page's own words where they say all of it.
    return changed.slice(0, 1).map(({ key, kind }) => ({
      words: changed.length === 1 && kind !== 'config' ? wordsOf({ key, value: fixed[key] }) : `${label} and continue`,
      setup: fixed,
      key,
    }));
  });
  if (said.length > 0) return said.slice(0, MOST);
  const job = toJob(setup, model);
  const found = FIELDS.flatMap(({ key }): (Fix & { far: number })[] => {
    for (const [name, effect] of effects) {
      if (effect === null || !name.startsWith(`${key}=`)) continue;
      const value = name.slice(effectKey(key, '').length);
      const fixed = change(setup, key, value, [], model, strategy);
      if (!keeps(fixed)) continue;
      const far = key === trouble.key ? 0 : differences(toJob(fixed, model), job);
      return [{ words: wordsOf({ key, value }), setup: fixed, key, far }];
    }
    return [];
  });
  // First what changes least of the job.
  found.sort((a, b) => a.far - b.far);
  return found.slice(0, MOST);
}
