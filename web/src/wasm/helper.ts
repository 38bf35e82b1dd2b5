// A worker with a core of its own, for what would hold an edit up.
import type { Question } from './serve';

export class Helper {
  private worker: Promise<Worker> | null = null;
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
    const worker = await (this.worker ??= start());
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

async function start(): Promise<Worker> {
  const { shared, script } = await import('./oometer');
  const modules = await shared();
  const worker = new Worker(script, { type: 'module', name: 'oometer' });
  worker.postMessage(modules);
  return worker;
}
