// The core, loaded once and then asked directly: an answer takes about a millisecond, less than a message to a worker.
import type { Job } from '../state/job.generated';
import type { JobError, LargeTensor, Module, Report, Resolved } from './report';
import { readImported, type Imported, type ImportQuestion } from './imported';
import { wrap, type Core } from './wrap';

/** What only the page asks, of a job that has a report; null where the whole core has to be loaded before. */
export interface PageCore extends Core {
  /** The job's PyTorch memory snapshot, a pickle. */
  snapshot(job: Job): Uint8Array<ArrayBuffer> | JobError | null;
  /** Every module, where a report stops at the layers. */
  tree(job: Job): Module[] | null;
  /** What became of each key of the job's own DeepSpeed or accelerate configuration; none where the core does not tell. */
  resolve(job: Job): Resolved[] | null;
  /** Everything that a module holds at the peak, the largest first. */
  tensors(job: Job, module: string): LargeTensor[] | null;
  /** A trainer's own files as a job. */
  importFiles(question: ImportQuestion): Imported | JobError | null;
  /** Two trainings side by side, as the core writes them (readCompared). */
  compareFiles(question: ImportQuestion): string | null;
}

interface Resolver {
  resolve(job: string): string;
}

export async function loadCore(): Promise<PageCore> {
  const { load } = await import('./oometer');
  const core = await wrap(load);
  const text = JSON.stringify;
  return Object.assign(core, {
    tree(job: Job) {
      const json = core.attempt((module) => module.tree(text(job)));
      return json === null ? null : (JSON.parse(json) as Report).modules;
    },
    resolve(job: Job) {
      const json = core.attempt((module) => ('resolve' in module ? (module as Resolver).resolve(text(job)) : '{}'));
      return json === null ? null : ((JSON.parse(json) as { resolved?: Resolved[] }).resolved ?? []);
    },
    tensors(job: Job, path: string) {
      const json = core.attempt((module) => module.tensors(text(job), path));
      return json === null ? null : (JSON.parse(json) as LargeTensor[]);
    },
    importFiles(question: ImportQuestion) {
      const json = core.attempt((module) => module.importFiles(text(question)));
      return json === null ? null : readImported(json);
    },
    compareFiles(question: ImportQuestion) {
      return core.attempt((module) => module.compareFiles(text(question)));
    },
    snapshot(job: Job) {
      const pickle = core.attempt((module) => module.snapshot(text(job)));
      return typeof pickle === 'string' ? (JSON.parse(pickle) as { error: JobError }).error : pickle;
    },
  });
}
