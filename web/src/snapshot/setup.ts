// The answer that a link of the calculator stands for, for the page that compares it.
import { toJob } from '../state/job';
import { Library } from '../state/library';
import { write } from '../state/permalink';
import { loadCore } from '../wasm/core';
import { follow } from '../wasm/follow';
import type { Report } from '../wasm/report';
import { readHistory, type History } from './history';
import { readPickle } from './pickle';

export interface Bound {
  title: string;
  /** Without a correction of before. */
  report: Report;
  simulated(): History;
  /** The link with what was measured; "" takes it out. */
  withMeasured(text: string): string;
}

export async function bindAnswer(hash: string): Promise<Bound | { problem: string }> {
  const core = await loadCore();
  const library = new Library([], core.traits);
  const link = await follow(core, library, hash);
  const setup = { ...link.setup, measured: '' };
  const model = library.find(setup);
  if (!model?.job) return { problem: 'The link’s model is not known here.' };
  const job = toJob(setup, model);
  core.estimate(job); // what this lacks is loaded, too
  await core.loadWhole();
  const answer = core.estimate(job);
  if (!answer.ok) return { problem: answer.error.message };
  return {
    title: `${model.title} on ${core.catalogue.gpus.find(({ id }) => id === setup.gpu)?.name ?? setup.gpu}, micro-batch ${setup.mbs}`,
    report: answer.report,
    simulated() {
      const pickle = core.snapshot(job);
      if (!(pickle instanceof Uint8Array)) throw new Error(pickle?.message);
      return readHistory(readPickle(pickle));
    },
    withMeasured: (measured) => write({ ...setup, measured }, link.pins),
  };
}
