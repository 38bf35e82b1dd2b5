// What another choice brings with it: a model its usual length and settings that mean something for it, a count of GPUs its
// parallelism.
import { byTrl, choicesOf, field, isByTrainer, number, START, type FieldKey, type Setup } from './fields';
import type { Model } from './model';
import { isOfTransformers, mixesImages, ownChoice, takes } from './traits';

/**
 * The setup after one field has changed; `own` is its model where that is no preset, `strategy` how several GPUs shared the
 * work when there last were some.
 */
export function change(
  setup: Setup,
  key: FieldKey,
  value: string,
  presets: readonly Model[],
  own?: Model,
  strategy = START.parallel,
): Setup {
  const next = { ...setup, [key]: value };
  if (key === 'gpus') {
    const known = choicesOf(field('parallel'), own ?? null).includes(strategy) ? strategy : 'ddp';
    return { ...next, parallel: parallelOver(number(value), setup.parallel, known) };
  }
  if (key === 'loop') return { ...next, ...defaultsOf(value, setup) };
  if (key !== 'model') return next;
  const preset = (id: string): Model | undefined => presets.find((candidate) => candidate.id === id);
  return adopt({ ...next, config: '' }, setup.config === '' ? preset(setup.model) : own, preset(value));
}

/** What was as the former loop has it by itself becomes as the new one has it. */
function defaultsOf(loop: string, setup: Setup): Partial<Setup> {
  const [former, next] = [ofLoop(setup.loop), ofLoop(loop)];
  return {
    ...(setup.clip === former.clip ? { clip: next.clip } : {}),
    ...(setup.precision === former.precision ? { precision: next.precision } : {}),
  };
}

/**
 * Trainers clip gradients to a norm of 1; TRL's turn autocast to bf16 on, over weights that are loaded in fp32 (TrainingArguments and
 * trl's _BaseConfig).
 */
export const ofLoop = (loop: string): Pick<Setup, 'clip' | 'precision'> => ({
  clip: isByTrainer({ loop }) ? '1' : START.clip,
  precision: byTrl(loop) ? 'amp-bf16' : START.precision,
});

/** One GPU shares nothing, unless somebody asks for it afterwards; several share as they last did. */
function parallelOver(gpus: number, now: string, strategy: string): string {
  if (gpus === 1) return 'none';
  return gpus > 1 && now === 'none' ? strategy : now;
}

/**
 * Another model brings its usual length, unless another was typed, and a stage that means something for it: without a
 * part for images there is nothing to train alone.
 */
export function adopt(setup: Setup, before: Model | undefined, after: Model | undefined): Setup {
  const next = { ...setup };
  const usual = (model: Model | undefined): string => String(model?.sequence_length ?? '');
  const untouched = setup.seq === START.seq || setup.seq === usual(before);
  if (untouched && usual(after) !== '') next.seq = usual(after);
  if (!after) return next;
  // What was usual for another model alone is no length for one that has none of its own.
  if (untouched && usual(after) === '' && after.text) next.seq = START.seq;
  const hadStages = !before || (mixesImages(before) && isOfTransformers(before));
  if (!mixesImages(after) || !isOfTransformers(after)) next.stage = 'full';
  else if (!hadStages && setup.stage === 'full') next.stage = START.stage;
  const precision = '/training/precision';
  const own = ownChoice(after, precision);
  if (own !== undefined) next.precision = own;
  else if (before && setup.precision === ownChoice(before, precision)) next.precision = START.precision;
  const attention = '/training/attention';
  const brought =
    before && !takes(before, attention, START.attention) && setup.attention === ownChoice(before, attention);
  if (brought) next.attention = START.attention;
  if (!takes(after, attention, next.attention)) next.attention = ownChoice(after, attention) ?? START.attention;
  if (!isOfTransformers(after)) Object.assign(next, { runfile: '', groups: '1' });
  else if (before && !isOfTransformers(before)) next.groups = START.groups;
  next.task = ownChoice(after, '/task') ?? next.task;
  if (!choicesOf(field('parallel'), after).includes(next.parallel)) next.parallel = 'ddp';
  // DDP fails in its second step where parts of a model are trained without a gradient.
  if (after.idle_parts) next.ddpgraph = 'unused';
  else if (before?.idle_parts && setup.ddpgraph === 'unused') next.ddpgraph = START.ddpgraph;
  next.mbs = ownChoice(after, '/data/micro_batch_size') ?? next.mbs;
  return next;
}
