// The core's strings as values.
import type { Estimator } from 'oometer-core/oometer.mjs';
import type { Job } from '../state/job.generated';
import { readCatalogue, type Catalogue } from './catalogue';
import type { JobError, Report } from './report';

export type Answer =
  { ok: true; report: Report; milliseconds: number } | { ok: false; error: JobError; milliseconds: number };

export interface Core {
  catalogue: Catalogue;
  version: string;
  /** The report as the core wrote it. */
  raw(job: Job): string;
  /** An error of code "elsewhere" says that more of the core has to be loaded, and asked again. */
  estimate(job: Job): Answer;
  /** From then on the whole core answers; where the job has a graph, the one that carries its operators. */
  loadWhole(job?: Job): Promise<void>;
}

/** Cores that answer more than the first one; each answers what those before it do. */
export const LARGER = ['whole', 'graph'] as const;
export type Larger = (typeof LARGER)[number];

export const coreFor = (job: { model?: object } | undefined): Larger =>
  job?.model !== undefined && 'graph' in job.model ? 'graph' : 'whole';

/** `first` answers until `loadWhole` is called, which calls `load` once for each that is needed. */
export function wrap<M extends Estimator>(first: M, load: (larger: Larger) => Promise<M>): Core & { module(): M } {
  let module = first;
  let rank = -1;
  const loading: Partial<Record<Larger, Promise<void> | undefined>> = {};
  const raw = (job: Job): string => module.estimate(JSON.stringify(job));
  return {
    catalogue: readCatalogue(module.presets()),
    version: module.version(),
    module: () => module,
    raw,
    estimate(job) {
      const start = performance.now();
      const answer = JSON.parse(raw(job)) as Report | { error: JobError };
      const milliseconds = performance.now() - start;
      return 'error' in answer
        ? { ok: false, error: answer.error, milliseconds }
        : { ok: true, report: answer, milliseconds };
    },
    loadWhole(job) {
      const larger = loading.graph ? 'graph' : coreFor(job);
      return (loading[larger] ??= load(larger).then(
        (loaded) => {
          const its = LARGER.indexOf(larger);
          if (its > rank) [module, rank] = [loaded, its];
        },
        (error: unknown) => {
          loading[larger] = undefined; // the next one tries again
          throw error;
        },
      ));
    },
  };
}
