// What a worker does: it is given the compiled core, then one question after another. Its answers are the core's strings.
import type { Oometer } from 'oometer-core/oometer.mjs';

export interface Question {
  ask: 'advise' | 'checkpoints' | 'estimate' | 'summary';
  job: { model?: object };
  /** Members that replace the job's own, for one answer each. */
  variants: readonly object[];
}

type Instantiate = (modules: WebAssembly.Module[]) => Promise<Oometer>;

/** The first message is the compiled core and has no answer. */
export function serve(instantiate: Instantiate): void {
  let core: Promise<Oometer> | null = null;
  addEventListener('message', ({ data }: MessageEvent<WebAssembly.Module[] | Question>) => {
    if (Array.isArray(data)) {
      core = instantiate(data);
      return;
    }
    const { ask, job, variants } = data;
    core
      ?.then((oometer) => {
        postMessage(variants.map((variant) => oometer[ask](JSON.stringify({ ...job, ...variant }))));
      })
      .catch(reportError);
  });
}
