// The core, loaded once and then asked directly: an answer takes about a millisecond, less than a message to a worker.
import type { Page } from 'oometer-core/oometer.mjs';
import type { Job } from '../state/job.generated';
import type { JobError, LargeTensor, Module, Report } from './report';
import { importLarger } from './larger';
import { wrap, type Core } from './wrap';

/** What only the page asks. */
export interface PageCore extends Core {
  /** The job's PyTorch memory snapshot, a pickle. */
  snapshot(job: Job): Uint8Array<ArrayBuffer> | JobError;
  /** Every module, where a report stops at the layers. The job is one that has a report. */
  tree(job: Job): Module[];
  /** Everything that a module holds at the peak, the largest first. */
  tensors(job: Job, module: string): LargeTensor[];
}

export async function loadCore(): Promise<PageCore> {
  const { load } = await import('./first');
  const core = wrap<Page>(await load(), async (larger) => (await importLarger(larger)).load());
  const text = JSON.stringify;
  return Object.assign(core, {
    tree: (job: Job) => (JSON.parse(core.module().tree(text(job))) as Report).modules,
    tensors: (job: Job, path: string) => JSON.parse(core.module().tensors(text(job), path)) as LargeTensor[],
    snapshot(job: Job) {
      const pickle = core.module().snapshot(text(job));
      return typeof pickle === 'string' ? (JSON.parse(pickle) as { error: JobError }).error : pickle;
    },
  });
}
