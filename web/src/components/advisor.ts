import type { ReactiveController, ReactiveControllerHost } from 'lit';
import { reason } from '../format/reason';
import { readAdvice, type Advice } from '../wasm/advice';
import type { Result } from '../wasm/ask';
import type { RankRow, Report } from '../wasm/report';
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
  /** Each rank that can differ, of `ranked`; empty where all are alike. */
  ranks: RankRow[] = [];
  ranked: Result | null = null;
  readonly helper = new Helper();
  private waiting: Result | null = null;
  private busy = false;
  private timer = 0;

  /** `onWorse`: another rank than the one that was asked about decides, so the answer is that one's. */
  constructor(
    private readonly host: ReactiveControllerHost,
    private readonly onWorse: (was: Result, is: Result) => void,
  ) {
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
    let base = this.waiting;
    if (this.busy || !base) return;
    this.waiting = null;
    this.busy = true;
    try {
      base = await this.rank(base);
      const [json = ''] = await this.helper.ask({ ask: 'advise', job: base.job, variants: [{}] });
      const answer = readAdvice(json);
      this.refused = 'message' in answer ? answer.message : '';
      this.advice = 'message' in answer ? null : answer;
    } catch (error) {
      this.refused = reason(error);
    }
    this.busy = false;
    this.base = base;
    this.host.requestUpdate();
    void this.next();
  }

  /** Runs each rank that can differ; gives the answer of the worst where that is another verdict. */
  private async rank(base: Result): Promise<Result> {
    const parallel = base.job.parallel ?? {};
    const shares = (parallel.data ?? 1) > 1 && parallel.strategy !== 'ddp';
    const variants = shares ? [{ parallel: { ...parallel, rank: 'all' } }] : [];
    const [json = '{}'] = await this.helper.ask({ ask: 'estimate', job: base.job, variants });
    const report = JSON.parse(json) as Report;
    this.ranks = (report as Partial<Report>).ranks ?? [];
    const worst = this.ranks.find(({ reported }) => reported);
    this.ranked = base;
    if (worst && report.verdict !== base.report.verdict) {
      this.ranked = { ...base, report, job: { ...base.job, parallel: { ...parallel, rank: worst.rank } } };
      this.onWorse(base, this.ranked);
    }
    this.host.requestUpdate();
    return this.ranked;
  }
}
