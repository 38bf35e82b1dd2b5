// The core's strings as values.
import type { Oometer } from 'oometer-core/oometer.mjs';
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
  estimate(job: Job): Answer;
  /** The job's PyTorch memory snapshot, a pickle. */
  snapshot(job: Job): Uint8Array<ArrayBuffer> | JobError;
}

export function wrap(module: Oometer): Core {
  const raw = (job: Job): string => module.estimate(JSON.stringify(job));
  return {
    catalogue: readCatalogue(module.presets()),
    version: module.version(),
    raw,
    estimate(job) {
      const start = performance.now();
      const answer = JSON.parse(raw(job)) as Report | { error: JobError };
      const milliseconds = performance.now() - start;
      return 'error' in answer
        ? { ok: false, error: answer.error, milliseconds }
        : { ok: true, report: answer, milliseconds };
    },
    snapshot(job) {
      const pickle = module.snapshot(JSON.stringify(job));
      return typeof pickle === 'string' ? (JSON.parse(pickle) as { error: JobError }).error : pickle;
    },
  };
}
