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
  /** An error of code "elsewhere" says that the whole core has to be loaded, and asked again. */
  estimate(job: Job): Answer;
  /** From then on the whole core answers. */
  loadWhole(): Promise<void>;
}

/** `first` answers until `loadWhole` is called, which calls `whole` once. */
export function wrap<M extends Estimator>(first: M, whole: () => Promise<M>): Core & { module(): M } {
  let module = first;
  let loading: Promise<void> | null = null;
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
    loadWhole: () =>
      (loading ??= whole().then(
        (loaded) => {
          module = loaded;
        },
        (error: unknown) => {
          loading = null; // the next one tries again
          throw error;
        },
      )),
  };
}
