// What a widget is asked: a permalink or a job, perhaps about another GPU.
import { gist } from '../format/gist';
import { reason } from '../format/reason';
import { Library } from '../state/library';
import { write } from '../state/permalink';
import type { Job } from '../state/job.generated';
import { ask, isTrouble } from '../wasm/ask';
import { follow } from '../wasm/follow';
import type { Report } from '../wasm/report';
import type { Core } from '../wasm/wrap';
import { loadCore } from './core';

export type WidgetAnswer =
  | {
      report: Report;
      /** The GPU's name for people. */
      gpu: string;
      count: number;
      /** Model and settings, in a line. */
      about: string;
      /** The page's fragment for the same job; "" where no settings stand for it. */
      link: string;
    }
  | { error: string };

/** The whole core has to be asked. */
const ELSEWHERE: WidgetAnswer = { error: 'oometer did not answer.' };

/** One for all widgets of a page. */
let loading: Promise<Core> | null = null;

export async function answerTo(job: string | object, gpu: string): Promise<WidgetAnswer> {
  try {
    const core = await (loading ??= loadCore());
    const text = typeof job === 'string' ? job.trim() : '';
    if (gpu !== '' && !core.catalogue.gpus.some(({ id }) => id === gpu)) return { error: `No GPU is called “${gpu}”.` };
    const answer = (): Promise<WidgetAnswer> | WidgetAnswer =>
      typeof job === 'string' && !text.startsWith('{') ? linked(core, text, gpu) : plain(core, job, gpu);
    const first = await answer();
    if (first !== ELSEWHERE) return first;
    await core.loadWhole();
    return await answer();
  } catch (error) {
    loading = null; // the next one tries again
    return { error: `oometer could not be loaded: ${reason(error)}` };
  }
}

async function linked(core: Core, text: string, gpu: string): Promise<WidgetAnswer> {
  const library = new Library([], core.traits);
  const link = await follow(core, library, text.includes('#') ? text.slice(text.indexOf('#')) : text);
  const [problem] = link.problems;
  if (problem !== undefined) return { error: problem };
  const setup = gpu === '' ? link.setup : { ...link.setup, gpu };
  const answer = ask(core, setup, library.find);
  if (isTrouble(answer)) return answer.elsewhere ? ELSEWHERE : { error: answer.message };
  const about = gist(answer.model.title, answer.job);
  return { report: answer.report, gpu: answer.gpu.name, count: answer.count, about, link: write(setup) || '#' };
}

function plain(core: Core, job: string | object, gpu: string): WidgetAnswer {
  let parsed: Job;
  try {
    parsed = (typeof job === 'string' ? JSON.parse(job) : job) as Job;
  } catch {
    return { error: 'The job is not JSON.' };
  }
  const answer = core.estimate(gpu === '' ? parsed : { ...parsed, gpu: { name: gpu } as NonNullable<Job['gpu']> });
  if (!answer.ok && answer.error.code === 'elsewhere') return ELSEWHERE;
  if (!answer.ok) return { error: `${answer.error.message} (${answer.error.pointer})` };
  const { report } = answer;
  const name = core.catalogue.gpus.find(({ id }) => id === report.gpu.name)?.name ?? 'such a GPU';
  const { preset, name: own } = parsed.model as { preset?: string; name?: string };
  const title = core.catalogue.models.find(({ id }) => id === preset)?.title ?? own ?? 'Own model';
  return { report, gpu: name, count: parsed.parallel?.data ?? 1, about: gist(title, parsed), link: '' };
}
