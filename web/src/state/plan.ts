// Chosen blocks and regions to checkpoint, of each stack: as transformers' code of one's own would.
import type { Setup } from './fields';
import { fromText, isObject, toText } from './json';

/** By a stack's path: blocks, and regions [begin, end) that run again together. */
export type Segments = Readonly<Record<string, readonly (number | readonly number[])[]>>;

export function unpackPlan(packed: string): Segments {
  const plan = packed === '' ? null : fromText(packed);
  return isObject(plan) ? (plan as Segments) : {};
}

/** The segments of a change that the core proposes. */
export function planOf(change: { training: { activation_checkpointing: unknown } }): Segments {
  const { activation_checkpointing: to } = change.training;
  return typeof to === 'object' && to !== null && 'segments' in to ? (to.segments as Segments) : {};
}

/** The settings with one stack's blocks chosen anew, and other stacks' as they were. */
export function withPlan(setup: Setup, stack: string, plan: Segments): Setup {
  const segments: Record<string, Segments[string]> =
    setup.checkpointing === 'none' ? {} : { ...unpackPlan(setup.ckptplan) };
  Reflect.deleteProperty(segments, stack);
  Object.assign(segments, plan);
  if (Object.keys(segments).length === 0) return { ...setup, checkpointing: 'none', ckptplan: '' };
  return {
    ...setup,
    checkpointing: setup.checkpointing === 'none' ? 'non-reentrant' : setup.checkpointing,
    ckptevery: '1',
    ckptplan: toText(segments),
  };
}
