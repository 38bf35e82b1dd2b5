// A job as settings of the page, where these can express it.
import { ofLoop } from './adopt';
import { BF16_IN_AUTOCAST, byTrl, isByTrainer, START, type Setup } from './fields';
import type { Job } from './job.generated';
import { at } from './json';
import { packLengths, type Bar } from './lengths';
import type { Model } from './model';
import { applied } from './patch';

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

/** `setup` names the job's model. Null where a field for something in the job is missing. */
export function setupOfJob(job: Job, setup: Pick<Setup, 'model' | 'config'>, model: Model): Setup | null {
  const rest: Partial<Job> = { ...job };
  delete rest.model;
  delete rest.version;
  const loop = job.training?.loop ?? START.loop;
  const name = typeof loop === 'string' ? loop : (loop.name ?? START.loop);
  let byTrainer: Partial<Setup> = {};
  if (isByTrainer({ loop: name })) {
    const { precision: said, ...training } = job.training ?? {};
    const args = { ...(at(loop, '/args') as Record<string, unknown> | undefined) };
    const precision = precisionIn(said, name, args);
    if (precision === undefined) return null;
    byTrainer = { mbs: '8', ...ofLoop(name), precision, loop: name };
    for (const key of ['bf16', 'fp16']) Reflect.deleteProperty(args, key);
    const own = typeof loop === 'string' ? { name } : { ...loop, args };
    rest.training = { ...training, loop: own as Loop };
  }
  const length = model.sequence_length === null ? {} : { seq: String(model.sequence_length) };
  const mode = job.training?.activation_checkpointing;
  const usual = byTrl(name) ? START.checkpointing : 'none';
  const checkpointing = mode === undefined ? usual : mode === 'none' ? 'none' : START.checkpointing;
  const images = model.images && !('images_per_sample' in (job.data ?? {})) ? { images: '1' } : {};
  const own = { ...length, ...images, ...byTrainer, ...samplesOf(job.data ?? {}), checkpointing };
  return applied({ ...START, ...DEFAULTS, ...own, ...setup }, model, rest);
}
