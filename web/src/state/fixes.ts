// What would give refused settings an answer, as the core says it, in settings.
import type { Result, Trouble } from '../wasm/ask';
import type { Alternative } from './effects';
import { applies, field, FIELDS, START, type FieldKey, type Setup } from './fields';
import { choiceLabel } from './labels';
import type { Model } from './model';
import { applied } from './patch';

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

/** `last`: the last answer. */
export function fixesOf(trouble: Trouble, setup: Setup, model: Model, last: Result | null): Fix[] {
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
  // Two changes may come to the same one of the form.
  return said.filter(({ words }, i) => said.findIndex((one) => one.words === words) === i).slice(0, MOST);
}
