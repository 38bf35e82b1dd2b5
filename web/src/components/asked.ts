import { LitElement } from 'lit';
import { reason } from '../format/reason';
import type { Result } from '../wasm/ask';
import type { Helper } from '../wasm/helper';
import type { JobError } from '../wasm/report';

/** Edits come fast: what stands further below is asked for when the fingers rest, before advice is. */
const REST = 100;

/** A section of its own question, which the helper answers: the former answer stays until there is a newer one. */
export abstract class Asked<Answer> extends LitElement {
  static override properties = {
    result: { attribute: false },
    helper: { attribute: false },
    answer: { state: true },
    of: { state: true },
    problem: { state: true },
  };
  declare result: Result | null;
  declare helper: Helper | null;
  declare protected answer: Answer | null;
  /** What the answer is of. */
  declare protected of: Result | null;
  declare protected problem: string;
  private asked: Result | null = null;
  private timer = 0;

  constructor() {
    super();
    this.result = null;
    this.helper = null;
    this.answer = null;
    this.of = null;
    this.problem = '';
  }

  protected abstract find(job: Result['job'], helper: Helper): Promise<Answer | JobError>;

  override updated(): void {
    const { result, helper } = this;
    if (!result || !helper || this.asked === result) return;
    this.asked = result;
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => void this.take(result, helper), REST);
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    clearTimeout(this.timer);
  }

  private async take(result: Result, helper: Helper): Promise<void> {
    try {
      const answer = await this.find(result.job, helper);
      if (this.asked !== result) return;
      const isProblem = (found: Answer | JobError): found is JobError =>
        typeof found === 'object' && found !== null && 'message' in found;
      this.problem = isProblem(answer) ? answer.message : '';
      this.answer = isProblem(answer) ? null : answer;
    } catch (error) {
      this.problem = reason(error);
    }
    this.of = result;
  }
}
