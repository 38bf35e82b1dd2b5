import { css, html, LitElement, nothing, type TemplateResult } from 'lit';
import { exact, gibNumber } from '../format/bytes';
import { reason } from '../format/reason';
import { seconds } from '../format/seconds';
import type { Setup } from '../state/fields';
import { planOf, withPlan } from '../state/plan';
import { shared } from '../styles/shared';
import type { Result } from '../wasm/ask';
import type { Helper } from '../wasm/helper';
import type { JobError } from '../wasm/report';

interface Plan {
  /** The most bytes that the stack's blocks keep at once. */
  peak: number;
  /** Blocks whose forward runs twice. */
  recomputed: number;
  /** Of the whole job with this plan; null where the core refuses it. */
  total: number | null;
  /** Seconds; null where no time is known. */
  step: number | null;
  change: { training: { activation_checkpointing: unknown } };
}

interface Stack {
  stack: string;
  blocks: unknown[];
  least: Plan;
  frontier: Plan[];
}

/** As many rows as one reads. */
const MOST = 9;

/** The frontier's ends and evenly what lies between. */
function some(plans: readonly Plan[]): Plan[] {
  const step = Math.max(1, (plans.length - 1) / (MOST - 1));
  return plans.filter((_, i) => Math.floor(i / step) !== Math.floor((i - 1) / step) || i === plans.length - 1);
}

/** Which blocks to checkpoint: for each number of blocks that run again, the least that they all keep. */
export class OometerCheckpoints extends LitElement {
  static override properties = {
    result: { attribute: false },
    helper: { attribute: false },
    stacks: { state: true },
    problem: { state: true },
  };
  declare result: Result | null;
  declare helper: Helper | null;
  declare private stacks: Stack[];
  declare private problem: string;
  /** What the stacks are of. */
  private asked: Result | null = null;
  private open = false;

  constructor() {
    super();
    this.result = null;
    this.helper = null;
    this.stacks = [];
    this.problem = '';
  }

  static override styles = [
    shared,
    css`
      summary {
        cursor: pointer;
      }
      h2 {
        display: inline;
      }
      table {
        margin-bottom: 1rem;
      }
    `,
  ];

  override updated(): void {
    void this.find();
  }

  private async find(): Promise<void> {
    const { result, helper } = this;
    if (!this.open || !result || !helper || this.asked === result) return;
    this.asked = result;
    try {
      const [json = '[]'] = await helper.ask({ ask: 'checkpoints', job: result.job, variants: [{}] });
      if (this.asked !== result) return;
      const answer = JSON.parse(json) as Stack[] | { error: JobError };
      this.problem = 'error' in answer ? answer.error.message : '';
      this.stacks = 'error' in answer ? [] : answer;
    } catch (error) {
      this.problem = reason(error);
    }
  }

  override render(): TemplateResult {
    return html`<section aria-labelledby="which">
      <details
        @toggle=${(event: Event) => {
          this.open = (event.target as HTMLDetailsElement).open;
          void this.find();
        }}
      >
        <summary><h2 id="which">Which blocks to checkpoint</h2></summary>
        <p class="small soft">
          A checkpointed block runs again in the backward pass. For each number of such blocks, this is the choice that
          keeps the least; the search is exact. Less memory costs time.
        </p>
        ${this.problem ? html`<p class="small">${this.problem}</p>` : this.stacks.map((stack) => this.stack(stack))}
      </details>
    </section>`;
  }

  private stack({ stack, blocks, least, frontier }: Stack): TemplateResult {
    return html`<table aria-label=${stack}>
      <thead>
        <tr>
          <th scope="col">Checkpointed blocks of ${stack}</th>
          <th scope="col" class="number">All blocks keep at most, GiB</th>
          <th scope="col" class="number">Whole job, GiB</th>
          <th scope="col" class="number">Step</th>
          <td></td>
        </tr>
      </thead>
      <tbody>
        ${some(frontier.length > 0 ? frontier : [least]).map((plan) => this.plan(plan, blocks.length, stack))}
      </tbody>
    </table>`;
  }

  private plan({ peak, recomputed, total, step, change }: Plan, of: number, stack: string): TemplateResult {
    const { result } = this;
    const setup = result && withPlan(result.setup, stack, planOf(change));
    return html`<tr>
      <th scope="row">${recomputed} of ${of}</th>
      <td class="number" title=${exact(peak)}>${gibNumber(peak)}</td>
      <td class="number">${total === null ? '' : gibNumber(total)}</td>
      <td class="number">${step === null ? '' : seconds(step)}</td>
      <td>
        ${
          setup
            ? html`<button
                @click=${() => {
                  this.dispatchEvent(new CustomEvent<Setup>('apply', { detail: setup }));
                }}
              >
                Apply<span class="hidden"> ${recomputed} of ${stack}</span>
              </button>`
            : nothing
        }
      </td>
    </tr>`;
  }
}

customElements.define('oometer-checkpoints', OometerCheckpoints);
