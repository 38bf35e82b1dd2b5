import type { ReactiveController, ReactiveControllerHost } from 'lit';
import { readAdvice, type Advice } from '../wasm/advice';
import type { Result } from '../wasm/ask';
import { Helper } from '../wasm/helper';

/** Advice takes hundreds of answers: it is asked for when the fingers rest. */
const REST = 150;

/** Finds out, in a worker, what would help; the newest answer is the next that it is asked about. */
export class Advisor implements ReactiveController {
  advice: Advice | null = null;
  /** The answer that the advice is about; both stay until those to a newer one are found. */
  base: Result | null = null;
  /** Why there is none. */
  refused = '';
  private readonly helper = new Helper();
  private waiting: Result | null = null;
  private busy = false;
  private timer = 0;

  constructor(private readonly host: ReactiveControllerHost) {
    host.addController(this);
  }

  hostDisconnected(): void {
    clearTimeout(this.timer);
    this.helper.stop();
  }

  advise(base: Result): void {
    this.waiting = base;
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => void this.next(), REST);
  }

  private async next(): Promise<void> {
    const base = this.waiting;
    if (this.busy || !base) return;
    this.waiting = null;
    this.busy = true;
    try {
      const [json = ''] = await this.helper.ask({ ask: 'advise', job: base.job, variants: [{}] });
      const answer = readAdvice(json);
      this.refused = 'message' in answer ? answer.message : '';
      this.advice = 'message' in answer ? null : answer;
    } catch (error) {
      this.refused = error instanceof Error ? error.message : String(error);
    }
    this.busy = false;
    this.base = base;
    this.host.requestUpdate();
    void this.next();
  }
}
