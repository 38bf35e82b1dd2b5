// A setup asked of the core: its answer, or what is wrong and beside which field to say so.
import { sentences } from '../format/reason';
import { applies, fieldAt, OWN_GPU, unreadable, type FieldKey, type Setup } from '../state/fields';
import { toJob } from '../state/job';
import type { Job } from '../state/job.generated';
import type { Model, OwnModel } from '../state/model';
import type { Gpu } from './catalogue';
import type { JobError, Report } from './report';
import type { Answer, Core } from './wrap';

/** An answer, with what it answers. */
export interface Result {
  setup: Setup;
  model: Model;
  gpu: Gpu;
  count: number;
  job: Job;
  report: Report;
  milliseconds: number;
}

export interface Trouble {
  /** The field it belongs to, or null where no field shows it. */
  key: FieldKey | null;
  message: string;
  /** What the core refused. */
  error?: JobError;
  /** The whole core has to be loaded for this job, and asked again. */
  elsewhere?: true;
}

/** Finds a setup's model: a preset's, or an own one that was given or linked. */
export type FindModel = (setup: Setup) => Model | undefined;

export function ask(core: Core, setup: Setup, find: FindModel): Result | Trouble {
  const model = find(setup);
  if (!model) return { key: 'model', message: 'This model is not known here.' };
  if (!model.job) {
    const message = `The link holds everything but the file of ${model.title}, which is too large for one: drop it on the page.`;
    return { key: 'model', message };
  }
  const known = core.catalogue.gpus.find(({ id }) => id === setup.gpu);
  const gpu = known && setup.gpu === OWN_GPU ? { ...known, name: `${setup.gpugib} GiB GPU` } : known;
  if (!gpu) return { key: 'gpu', message: 'This GPU is not known here.' };
  const illegible = unreadable(setup, model);
  if (illegible) return { key: illegible.field.key, message: illegible.message };
  const job = toJob(setup, model);
  const answer = core.estimate(job);
  if (!answer.ok && answer.error.code === 'elsewhere')
    return { key: null, message: 'Loading what this needs …', elsewhere: true };
  if (!answer.ok) return trouble(answer.error, setup, model);
  const { report, milliseconds } = answer;
  return { setup, model, gpu, count: Number(setup.gpus), job, report, milliseconds };
}

/** The answer to a job, for which the core is loaded further where that takes it. */
export async function estimated(core: Core, job: Job): Promise<Answer> {
  const answer = core.estimate(job);
  if (answer.ok || answer.error.code !== 'elsewhere') return answer;
  await core.loadWhole();
  return core.estimate(job);
}

/** Why the core takes no job with this model; null where it takes some. */
export async function refusal(core: Core, model: OwnModel): Promise<JobError | null> {
  const answer = await estimated(core, { version: 1, model: { ...model } });
  return answer.ok || !answer.error.pointer.startsWith('/model') ? null : answer.error;
}

export function isTrouble(answer: Result | Trouble): answer is Trouble {
  return 'message' in answer;
}

function trouble(error: JobError, setup: Setup, model: Model): Trouble {
  const { pointer } = error;
  const own = setup.runfile !== '' && /^.parallel(?!.data)/.test(pointer);
  const key = own ? 'runfile' : (fieldAt(pointer, (field) => applies(field, model, setup))?.key ?? null);
  // A config has too many places for "model" to be where to look.
  const message = key === null || key === 'model' || own ? placed(error) : sentences(error.message);
  return { key, message, error };
}

/** What is wrong, and where. */
export function placed({ message, pointer }: JobError): string {
  return `${sentences(message)} (${pointer})`;
}
