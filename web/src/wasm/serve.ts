// What a worker does: it is given the compiled core, then one question after another. Its answers are the core's strings.
import type { Oometer } from 'oometer-core/oometer.mjs';
import type { Modules } from 'oometer-core/parts.mjs';

export interface Question {
  ask: 'advise' | 'adviseFiles' | 'checkpoints' | 'estimate' | 'host' | 'onGpu' | 'orderSpread' | 'summary' | 'time';
  /** A job, or a question about files. */
  job: { model?: object; files?: readonly object[] };
  /** Members that replace the job's own, for one answer each. */
  variants: readonly object[];
}

/** The first message is compiled parts, which `keep` is given, and has no answer. A part that lacks is loaded then. */
export function serve(keep: (modules: Modules) => void, load: (parts: readonly string[]) => Promise<Oometer>): void {
  const parts: string[] = [];
  let core: Promise<Oometer> | null = null;
  const answer = async ({ ask, job, variants }: Question): Promise<string[]> => {
    const oometer = await (core ??= load(parts));
    try {
      return variants.map((variant) => oometer[ask](JSON.stringify({ ...job, ...variant })));
    } catch (error) {
      if (!(error instanceof Error && error.name === 'PartNeeded')) throw error;
      parts.push((error as Error & { part: string }).part);
      core = null;
      return answer({ ask, job, variants });
    }
  };
  addEventListener('message', ({ data }: MessageEvent<Modules | Question>) => {
    if ('first' in data) {
      keep(data);
      parts.push(...Object.keys(data).filter((part) => part !== 'first'));
    } else answer(data).then(postMessage, reportError);
  });
}
