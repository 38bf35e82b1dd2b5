// The core, loaded once and then asked directly: an answer takes about a millisecond, less than a message to a worker.
import type { Oometer } from 'oometer-core/oometer.mjs';
import wasmAddress from 'oometer-core/oometer.wasm?url';
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
}

export async function loadCore(): Promise<Core> {
  const bytes = fetch(wasmAddress).then((response) => {
    if (!response.ok) throw new Error(`${wasmAddress}: ${response.status}`);
    return response.arrayBuffer();
  });
  const { default: create } = await import('oometer-core/oometer.mjs');
  return wrap(await create({ wasmBinary: await bytes }));
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
  };
}
