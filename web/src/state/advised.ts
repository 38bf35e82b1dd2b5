// What the core's advice means for the settings.
import type { Advice, Combination } from '../wasm/advice';
import type { Result } from '../wasm/ask';
import { change } from './adopt';
import { infers, START, type FieldKey, type Setup } from './fields';

/** What one pays for it, in words; "" where that is not known. */
export const costsOf = ({ parts = [] }: Combination): string => parts.map(({ costs }) => costs).join('; ');

/** How far a count goes with all else as it is. */
export interface Most {
  key: FieldKey;
  label: string;
  /** Null where none fits. */
  most: number | null;
  /** The settings with it; null where they have it already, or none fits. */
  setup: Setup | null;
}

export function mosts(advice: Advice, { setup, model, report }: Result): Most[] {
  const row = (key: FieldKey, label: string, most: number | null): Most => {
    const isSet = most === null || setup[key] === String(most);
    return { key, label, most, setup: isSet ? null : { ...setup, [key]: String(most) } };
  };
  const serves = infers(setup);
  return [
    row('mbs', serves ? 'Most users at once' : 'Largest micro-batch', advice.largest_micro_batch),
    // Samples with lengths of their own stay as long as they are.
    ...(model.text && setup.lengths === START.lengths
      ? [row('seq', serves ? 'Longest prompt' : 'Longest sequence', advice.longest_sequence)]
      : []),
    ...(serves ? [] : fewestGpus(advice, setup, model, report.fits, row)),
  ];
}

/** Where each GPU holds everything, one is enough or no number is. Of other strategies the core says it, or nobody. */
function fewestGpus(
  { fewest_gpus }: Advice,
  setup: Setup,
  model: Result['model'],
  fits: boolean,
  row: (key: FieldKey, label: string, most: number | null) => Most,
): Most[] {
  const label = 'Fewest GPUs';
  if (fewest_gpus !== null) return [row('gpus', label, fewest_gpus)];
  const whole = setup.runfile === '' && ['none', 'ddp'].includes(setup.parallel);
  if (!whole) return setup.parallel.startsWith('zero') && setup.runfile === '' ? [row('gpus', label, null)] : [];
  if (!fits) return [row('gpus', label, null)];
  const one = row('gpus', label, 1);
  return [one.setup ? { ...one, setup: change(setup, 'gpus', '1', [], model) } : one];
}
