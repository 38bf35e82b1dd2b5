import { html, LitElement, nothing, type TemplateResult } from 'lit';
import { gib } from '../format/bytes';
import { reason } from '../format/reason';
import { shared } from '../styles/shared';
import type { Result } from '../wasm/ask';
import type { Helper } from '../wasm/helper';
import type { JobError, OrderSpread } from '../wasm/report';

/** Samples in random orders make reserved memory a matter of luck: how far, takes tens of runs. */
export class OometerOrders extends LitElement {
  static override properties = {
    result: { attribute: false },
    helper: { attribute: false },
    spread: { state: true },
    problem: { state: true },
  };
  declare result: Result | null;
  declare helper: Helper | null;
  declare private spread: OrderSpread | null;
  declare private problem: string;
  /** What the spread is of. */
  private asked: Result | null = null;

  constructor() {
    super();
    this.result = null;
    this.helper = null;
    this.spread = null;
    this.problem = '';
  }

  static override styles = shared;

  override updated(): void {
    void this.find();
  }

  private async find(): Promise<void> {
    const { result, helper } = this;
    if (!result || !helper || this.asked === result) return;
    this.asked = result;
    this.spread = null;
    this.problem = '';
    try {
      const [json = '{}'] = await helper.ask({ ask: 'orderSpread', job: result.job, variants: [{}] });
      if (this.asked !== result) return;
      const answer = JSON.parse(json) as { spread?: OrderSpread; error?: JobError };
      this.spread = answer.spread ?? null;
      this.problem = answer.error?.message ?? '';
    } catch (error) {
      this.problem = reason(error);
    }
  }

  override render(): TemplateResult | typeof nothing {
    const { spread, problem } = this;
    if (problem) return html`<p class="small">${problem}</p>`;
    if (!spread) return html`<p class="small soft">Trying other orders of the samples …</p>`;
    return html`<p class="small">
      With the samples in ${spread.orders} other orders, reserved memory peaks between ${gib(spread.low)} and
      ${gib(spread.high)}. A batch of the longest samples alone needs ${gib(spread.worst_batch_allocated)} in tensors.
    </p>`;
  }
}

customElements.define('oometer-orders', OometerOrders);
