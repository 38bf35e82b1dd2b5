// The core's strings as values.
import type { Oometer } from 'oometer-core/oometer.mjs';
import type { Job } from '../state/job.generated';
import type { OwnModel } from '../state/model';
import { UNKNOWN, type Traits } from '../state/traits';
import { allModels, firstCatalogue, type Catalogue } from './catalogue';
import type { JobError, Report } from './report';

export type Answer =
  { ok: true; report: Report; milliseconds: number } | { ok: false; error: JobError; milliseconds: number };

export interface Core {
  /** Of the models only those of first answers, until `loadModels`. */
  catalogue: Catalogue;
  readonly loadModels: () => Promise<void>;
  version: string;
  /** The report as the core wrote it; null where `estimate` says "elsewhere". */
  raw(job: Job): string | null;
  /** An error of code "elsewhere" says that the core has to be loaded further, and asked again. */
  estimate(job: Job): Answer;
  /** What one's own model is; the core is loaded further where that takes it. A model that cannot be read has no traits. */
  readonly traits: (model: OwnModel) => Promise<Traits>;
  /** Whether all these parts are loaded. */
  has(parts: readonly string[]): boolean;
  /** Loads the rest, and whatever else an answer lacked so far. Asked again, what failed is then tried again. */
  loadWhole(): Promise<void>;
}

interface Wrapped extends Core {
  /** What the core says at once; null where that takes the whole one. */
  attempt<T>(ask: (module: Oometer) => T): T | null;
}

const ELSEWHERE: JobError = { code: 'elsewhere', pointer: '', message: 'This takes the whole core.' };

/** Puts a core together from its first part and those of these names. */
type Load = (parts: readonly string[]) => Promise<Oometer>;

/** A core of its first part, which `loadWhole` replaces. One that lacked what an answer needed is spent. */
export async function wrap(load: Load): Promise<Wrapped> {
  let module = await load([]);
  let parts: readonly string[] = [];
  /** What the last answer lacked: the core is spent. */
  let lacks: string | null = null;
  /** What lacked something, to be asked again until it lacks nothing more. */
  const unanswered = new Set<(module: Oometer) => unknown>();
  let loading: Promise<void> | null = null;
  let listed = false;
  const take = async (names: readonly string[]): Promise<void> => {
    module = await load(names);
    parts = names;
    lacks = null;
  };
  const attempt = <T>(ask: (module: Oometer) => T): T | null => {
    if (lacks === null)
      try {
        const answer = ask(module);
        unanswered.delete(ask);
        return answer;
      } catch (error) {
        if (!(error instanceof Error && error.name === 'PartNeeded')) throw error;
        lacks = (error as Error & { part: string }).part;
      }
    unanswered.add(ask);
    return null;
  };
  const complete = async (): Promise<void> => {
    if (!parts.includes('rest')) await take([...parts, 'rest']);
    for (;;) {
      if (lacks !== null) await take([...parts, lacks]);
      const [ask] = unanswered;
      if (!ask) return;
      attempt(ask);
    }
  };
  const loadWhole = (): Promise<void> =>
    (loading ??= complete()
      .catch(async (error: unknown) => {
        unanswered.clear();
        if (lacks !== null) await take(parts);
        throw error;
      })
      .finally(() => {
        loading = null;
      }));
  const raw = (job: Job): string | null => attempt((module) => module.estimate(JSON.stringify(job)));
  const wrapped: Wrapped = {
    catalogue: firstCatalogue(module.gpus()),
    async loadModels() {
      if (!listed) wrapped.catalogue = { ...wrapped.catalogue, models: await allModels() };
      listed = true;
    },
    version: module.version(),
    has: (wanted) => wanted.every((part) => parts.includes(part)),
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
        await loadWhole();
        json = ask();
      }
      const answer = JSON.parse(json ?? '{"error": {}}') as Traits | { error: JobError };
      return 'error' in answer ? UNKNOWN : answer;
    },
    loadWhole,
  };
  return wrapped;
}
