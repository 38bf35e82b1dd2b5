// A worker with a core of its own, the whole one or a graph's, for what would hold an edit up.
import { importLarger } from './larger';
import type { Question } from './serve';
import { coreFor, type Larger } from './wrap';

export class Helper {
  private worker: Promise<Worker> | null = null;
  private carries: Larger = 'whole';
  /** The question before, which the worker answers first. */
  private last: Promise<unknown> = Promise.resolve();

  /** The core's answers, in the order of the questions. Rejects where the browser refuses workers. */
  ask(question: Question): Promise<string[]> {
    const answer = this.last.then(() => this.send(question));
    this.last = answer.catch(() => undefined);
    return answer;
  }

  stop(): void {
    this.worker?.then(
      (worker) => {
        worker.terminate();
      },
      () => undefined,
    );
    this.worker = null;
  }

  private async send(question: Question): Promise<string[]> {
    const needs = coreFor(question.job);
    if (needs === 'graph' && this.carries !== needs) this.stop();
    if (!this.worker) this.carries = needs;
    const worker = await (this.worker ??= start(needs));
    return new Promise((done, fail) => {
      worker.onmessage = ({ data }: MessageEvent<string[]>) => {
        done(data);
      };
      worker.onerror = (event) => {
        event.preventDefault();
        this.stop();
        fail(new Error(event.message || 'The browser does not start a worker.'));
      };
      worker.postMessage(question);
    });
  }
}

async function start(larger: Larger): Promise<Worker> {
  const { compiled, script } = await importLarger(larger);
  const module = await compiled();
  const worker = new Worker(script, { type: 'module', name: 'oometer' });
  worker.postMessage(module);
  return worker;
}
