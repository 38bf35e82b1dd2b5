// A job as settings of the page, where these can express it.
import { START, type Setup } from './fields';
import type { Job } from './job.generated';
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

/** `setup` names the job's model. Null where a field for something in the job is missing. */
export function setupOfJob(job: Job, setup: Pick<Setup, 'model' | 'config'>, model: Model): Setup | null {
  const rest: Partial<Job> = { ...job };
  delete rest.model;
  delete rest.version;
  const length = model.sequence_length === null ? {} : { seq: String(model.sequence_length) };
  const mode = job.training?.activation_checkpointing;
  const checkpointing = mode === undefined || mode === 'none' ? 'none' : START.checkpointing;
  const images = model.images && !('images_per_sample' in (job.data ?? {})) ? { images: '1' } : {};
  return applied({ ...START, ...DEFAULTS, ...length, ...images, checkpointing, ...setup }, model, rest);
}
