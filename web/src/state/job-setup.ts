// A job as settings of the page, where these can express it.
import { GIB } from '../format/bytes';
import { ofLoop } from './adopt';
import { BF16_IN_AUTOCAST, byTrl, isByTrainer, START, type Setup } from './fields';
import type { Job } from './job.generated';
import { at } from './json';
import { packLengths, type Bar } from './lengths';
import { mediaIn } from './media';
import type { Model } from './model';
import { nearest, type Nearest } from './patch';
import { packRun, runOf } from './runfile';

/** What a job means by what it leaves out. */
const DEFAULTS: Partial<Setup> = {
  stage: 'full',
  gpus: '1',
  mbs: '1',
  images: '0',
  dropout: '0',
  parallel: 'none',
};

/**
 * The types of weights and of a trainer's autocast, which a job may say in one word, in two or among the arguments; undefined where no
 * choice is of these.
 */
function precisionIn(said: NonNullable<Job['training']>['precision'], loop: string, args: unknown): string | undefined {
  if (typeof said === 'string' && said.startsWith('amp-')) return said;
  const usual = byTrl(loop) ? 'bf16' : null;
  const asked = at(args, '/bf16') === true ? 'bf16' : at(args, '/fp16') === true ? 'fp16' : null;
  const own = asked ?? (at(args, '/bf16') === false ? null : usual);
  const { weights = 'bf16', autocast = own } =
    typeof said === 'object' ? said : { weights: said ?? (byTrl(loop) ? 'fp32' : 'bf16') };
  if (autocast === null) return weights;
  if (weights === 'fp32') return `amp-${autocast}`;
  return weights === 'bf16' && autocast === 'bf16' ? BF16_IN_AUTOCAST : undefined;
}

type Loop = NonNullable<NonNullable<Job['training']>['loop']>;

/** What a job says of samples in a form of its own. */
function samplesOf({ lengths, evaluation }: NonNullable<Job['data']>): Partial<Setup> {
  const [shortest, longest] = list(at(lengths, '/uniform')) as readonly number[];
  const bars = list(at(lengths, '/histogram')) as Bar[];
  const batches = list(at(evaluation, '/lengths/batches')).length;
  return {
    ...(shortest === undefined ? {} : { lengths: 'uniform', shortest: String(shortest), longest: String(longest) }),
    ...(bars.length === 0 ? {} : { lengths: 'list', histogram: packLengths(bars) }),
    ...(batches === 0 ? {} : { evalbatches: String(batches) }),
  };
}

const list = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);

type Training = NonNullable<Job['training']>;

/** Optimizers of the form by transformers' names (OptimizerNames of training_args.py; kNames of core/job/optimizers.cpp). */
const OPTIMIZERS: Readonly<Record<string, NonNullable<Training['optimizer']>>> = {
  adamw_torch: { name: 'adamw', implementation: 'foreach' },
  adamw_torch_fused: { name: 'adamw', implementation: 'fused' },
  adamw_bnb_8bit: { name: 'adamw', implementation: 'bnb-8bit' },
  adamw_8bit: { name: 'adamw', implementation: 'bnb-8bit' },
  paged_adamw_8bit: { name: 'adamw', implementation: 'bnb-8bit', paged: true },
  paged_adamw_32bit: { name: 'adamw', implementation: 'bnb-32bit', paged: true },
  paged_adamw: { name: 'adamw', implementation: 'bnb-32bit', paged: true },
};

/** What a trainer's arguments say in the words of plain jobs, taken out of them. */
function spelledOut(args: Record<string, unknown>): { training: Partial<Training>; data: object } {
  const optimizer = typeof args.optim === 'string' ? OPTIMIZERS[args.optim] : undefined;
  const length = args.max_length;
  // AdamW's weight decay takes no memory.
  if (optimizer) for (const key of ['optim', 'weight_decay']) Reflect.deleteProperty(args, key);
  if (typeof length === 'number') Reflect.deleteProperty(args, 'max_length');
  for (const key of ['save_strategy', 'save_steps']) Reflect.deleteProperty(args, key); // written from the host
  return {
    training: optimizer ? { optimizer } : {},
    data: typeof length === 'number' ? { sequence_length: length } : {},
  };
}

/** Layers by the form's names, where a job names them otherwise. */
const LAYERS: Readonly<Record<string, string>> = {
  'all-linear': 'linear',
  'down_proj gate_proj k_proj o_proj q_proj up_proj v_proj': 'linear',
  'k_proj o_proj q_proj v_proj': 'attention',
  'q_proj v_proj': 'qv',
};

/** Adapters whose layers the form has a name for; alpha changes no memory. */
function adaptersIn(training: Training): { setup: Partial<Setup>; training: Training } {
  const targets = training.lora?.target_modules ?? '';
  const layers = LAYERS[typeof targets === 'string' ? targets : [...targets].sort().join(' ')];
  if (layers === undefined) return { setup: {}, training };
  const lora = { ...training.lora };
  for (const key of ['target_modules', 'alpha']) Reflect.deleteProperty(lora, key);
  const adapters = lora.use_dora === true ? 'dora' : 'lora';
  return { setup: { adapters, targets: layers }, training: { ...training, lora } };
}

/** One's own configuration of DeepSpeed or accelerate. */
function runIn({ ds_config, accelerate_config }: NonNullable<Job['parallel']>): Partial<Setup> {
  const run = runOf(ds_config ?? accelerate_config);
  return run ? { runfile: packRun(run) } : {};
}

/** The settings that come nearest to a job whose model `setup` names, and the places of the job that no field expresses. */
export function setupOfJob(job: Job, setup: Pick<Setup, 'model' | 'config'>, model: Model): Nearest {
  const rest: Partial<Job> = { ...job };
  delete rest.model;
  delete rest.version;
  const memory = job.host?.memory;
  if (typeof memory === 'number') rest.host = { ...job.host, memory: `${memory / GIB}GiB` };
  const loop = job.training?.loop ?? START.loop;
  const name = typeof loop === 'string' ? loop : (loop.name ?? START.loop);
  let byTrainer: Partial<Setup> = {};
  if (isByTrainer({ loop: name })) {
    const { precision: said, ...training } = job.training ?? {};
    const args = { ...(at(loop, '/args') as Record<string, unknown> | undefined) };
    const precision = precisionIn(said, name, args);
    if (precision === undefined) return { setup: { ...START, ...setup }, lacking: ['/training/precision'] };
    byTrainer = { mbs: '8', ...ofLoop(name), precision, loop: name };
    for (const key of ['bf16', 'fp16']) Reflect.deleteProperty(args, key);
    const plain = spelledOut(args);
    const own = typeof loop === 'string' ? { name } : { ...loop, args };
    if (Object.keys(args).length === 0) Reflect.deleteProperty(own, 'args');
    rest.training = { ...plain.training, ...training, loop: own as Loop };
    rest.data = { ...plain.data, ...rest.data };
  }
  const length = model.sequence_length === null ? {} : { seq: String(model.sequence_length) };
  const mode = job.training?.activation_checkpointing;
  const usual = byTrl(name) ? START.checkpointing : 'none';
  const checkpointing = mode === undefined ? usual : mode === 'none' ? 'none' : START.checkpointing;
  const images = model.images && !('images_per_sample' in (job.data ?? {})) ? { images: '1' } : {};
  const adapters = adaptersIn(rest.training ?? {});
  if (rest.training) rest.training = adapters.training;
  const ways = { ...adapters.setup, ...runIn(job.parallel ?? {}) };
  const own = {
    ...length,
    ...images,
    ...ways,
    ...byTrainer,
    ...samplesOf(job.data ?? {}),
    ...mediaIn(job.data ?? {}),
    checkpointing,
  };
  return nearest({ ...START, ...DEFAULTS, ...own, ...setup }, model, rest);
}
