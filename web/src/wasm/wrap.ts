// The core's strings as values.
import type { Oometer } from 'oometer-core/oometer.mjs';
import type { Job } from '../state/job.generated';
import type { OwnModel } from '../state/model';
import { UNKNOWN, type Traits } from '../state/traits';
import { readCatalogue, type Catalogue } from './catalogue';
import type { JobError, Report } from './report';

export type Answer =
  { ok: true; report: Report; milliseconds: number } | { ok: false; error: JobError; milliseconds: number };

export interface Core {
  catalogue: Catalogue;
  version: string;
  /** The report as the core wrote it; null where `estimate` says "elsewhere". */
  raw(job: Job): string | null;
  /** An error of code "elsewhere" says that the whole core has to be loaded, and asked again. */
  estimate(job: Job): Answer;
  /** What one's own model is; the whole core is loaded where that takes it. A model that cannot be read has no traits. */
  readonly traits: (model: OwnModel) => Promise<Traits>;
  /** From then on the whole core answers. */
  loadWhole(): Promise<void>;
}

interface Wrapped extends Core {
  /** What the core says at once; null where that takes the whole one. */
  attempt<T>(ask: (module: Oometer) => T): T | null;
}

const ELSEWHERE: JobError = { code: 'elsewhere', pointer: '', message: 'This takes the whole core.' };

/** A core without its rest, which `loadWhole` replaces. One that lacked what an answer needed is spent. */
export async function wrap(loadFirst: () => Promise<Oometer>, loadWhole: () => Promise<Oometer>): Promise<Wrapped> {
  let module = await loadFirst();
  let spent = false;
  let loading: Promise<void> | null = null;
  const take = (loaded: Oometer): void => {
    module = loaded;
    spent = false;
  };
  const attempt = <T>(ask: (module: Oometer) => T): T | null => {
    if (spent) return null;
    try {
      return ask(module);
    } catch (error) {
      if (!(error instanceof Error && error.name === 'RestNeeded')) throw error;
      spent = true;
      return null;
    }
  };
  const raw = (job: Job): string | null => attempt((module) => module.estimate(JSON.stringify(job)));
  const ensureWhole = (): Promise<void> =>
    (loading ??= loadWhole().then(take, async (error: unknown) => {
      loading = null; // the next one tries again
      if (spent) take(await loadFirst());
      throw error;
    }));
  return {
    catalogue: readCatalogue(module.presets()),
    version: module.version(),
    attempt,
    raw,
    estimate(job) {
      const start = performance.now();
      const json = raw(job);
      const answer = json === null ? { error: ELSEWHERE } : (JSON.parse(json) as Report | { error: JobError });
      const milliseconds = performance.now() - start;
      return 'error' in answer
        ? { ok: false, error: answer.error, milliseconds }
        : { ok: true, report: answer, milliseconds };
    },
    async traits(model) {
      const ask = (): string | null => attempt((module) => module.traits(JSON.stringify({ model })));
      let json = ask();
      if (json === null) {
        await ensureWhole();
        json = ask();
      }
      const answer = JSON.parse(json ?? '{"error": {}}') as Traits | { error: JobError };
      return 'error' in answer ? UNKNOWN : answer;
    },
    loadWhole: ensureWhole,
  };
}
