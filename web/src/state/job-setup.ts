// A job as settings of the page, where these can express it.
import { isByTrainer, START, type Setup } from './fields';
import type { Job } from './job.generated';
import { shortenLoop } from './job';
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

/** A trainer's own defaults. */
const TRAINER: Partial<Setup> = { mbs: '8', clip: '1' };

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
  if (isByTrainer({ loop: name })) {
    rest.training = { ...job.training };
    shortenLoop(rest);
  }
  const length = model.sequence_length === null ? {} : { seq: String(model.sequence_length) };
  const mode = job.training?.activation_checkpointing;
  const checkpointing = mode === undefined || mode === 'none' ? 'none' : START.checkpointing;
  const images = model.images && !('images_per_sample' in (job.data ?? {})) ? { images: '1' } : {};
  const own = {
    ...length,
    ...images,
    ...(isByTrainer({ loop: name }) ? { ...TRAINER, loop: name } : {}),
    ...samplesOf(job.data ?? {}),
    checkpointing,
  };
  return applied({ ...START, ...DEFAULTS, ...own, ...setup }, model, rest);
}
