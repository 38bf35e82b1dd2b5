// The core, loaded once and then asked directly: an answer takes about a millisecond, less than a message to a worker.
import type { Oometer } from 'oometer-core/oometer.mjs';
import type { Job } from '../state/job.generated';
import type { JobError, LargeTensor, Module, Report } from './report';
import { script, takeWhole } from './source';
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
  const load = async (): Promise<Oometer> => {
    const { compiled, instantiate } = await script();
    return instantiate(await compiled());
  };
  let module = await load();
  const loadWhole = async (): Promise<void> => {
    takeWhole();
    module = await load();
  };
  const text = JSON.stringify;
  return {
    ...wrap(() => module, loadWhole),
    tree: (job) => (JSON.parse(module.tree(text(job))) as Report).modules,
    tensors: (job, path) => JSON.parse(module.tensors(text(job), path)) as LargeTensor[],
    snapshot(job) {
      const pickle = module.snapshot(text(job));
      return typeof pickle === 'string' ? (JSON.parse(pickle) as { error: JobError }).error : pickle;
    },
  };
}
