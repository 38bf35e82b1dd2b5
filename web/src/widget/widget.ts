import { css, html, LitElement, nothing, unsafeCSS, type PropertyValues, type TemplateResult } from 'lit';
import '../components/verdict';
import { hasSite, inSite } from '../format/links';
import { shared } from '../styles/shared';
import tokens from '../styles/tokens.css?inline';
import { answerTo, type WidgetAnswer } from './answer';

export type WidgetView = 'summary' | 'bar' | 'timeline' | 'full';
const DETAILED: readonly WidgetView[] = ['timeline', 'full'];

/**
 * The answer to one job, in any page: `<oometer-widget job="#v1?mbs=16" view="bar" gpu="a100-80gb">`.
 *
 * @attr job - a permalink of the page, or a job as JSON; as a property also an object
 * @attr view - `summary` (the sentence), `bar`, `timeline` or `full`
 * @attr gpu - asks about another GPU than the job's
 * @attr theme - `light` or `dark`; else the page's own color-scheme
 * @slot - shown until there is an answer, and where there can be none
 * @fires change - each new answer: `detail` is `{report, link}` or `{error}`
 * @csspart about, verdict, holders, timeline, error, foot
 * @cssproperty --surface, --text, --accent, --font and all others of tokens.css, set on the element
 */
export class OometerWidget extends LitElement {
  static override properties = {
    job: {},
    view: { reflect: true },
    gpu: { reflect: true },
    answer: { state: true },
  };
  declare job: string | object;
  declare view: WidgetView;
  declare gpu: string;
  declare private answer: WidgetAnswer | null;
  private turn = 0;

  constructor() {
    super();
    this.job = '';
    this.view = 'bar';
    this.gpu = '';
    this.answer = null;
  }

  static override styles = [
    unsafeCSS(tokens),
    shared,
    css`
      :host {
        padding: 1rem;
        border: 1px solid var(--line);
        border-radius: var(--radius);
        background: var(--surface);
        color: var(--text);
        font: 15px/1.5 var(--font);
      }
      :host([theme='light']) {
        color-scheme: light;
      }
      :host([theme='dark']) {
        color-scheme: dark;
      }
      .about {
        margin: 0 0 0.5rem;
        color: var(--text-soft);
        font-size: 0.8125rem;
      }
      .foot {
        margin: 0.25rem 0 0;
        text-align: right;
        font-size: 0.75rem;
      }
      .body > * + * {
        margin-top: 1.25rem;
      }
    `,
  ];

  /** The answer's report; null until there is one. */
  get report(): object | null {
    return this.answer && 'report' in this.answer ? this.answer.report : null;
  }

  override willUpdate(changed: PropertyValues): void {
    if (changed.has('job') || changed.has('gpu')) void this.compute();
    if (changed.has('view') && DETAILED.includes(this.view)) void import('./views');
  }

  private async compute(): Promise<void> {
    const turn = ++this.turn;
    const answer = await answerTo(this.job, this.gpu);
    if (turn !== this.turn) return; // another job came meanwhile
    this.answer = answer;
    await this.updateComplete;
    const detail = 'report' in answer ? { report: answer.report, link: answer.link } : { error: answer.error };
    this.dispatchEvent(new CustomEvent('change', { detail, bubbles: true, composed: true }));
  }

  override render(): TemplateResult {
    const { answer, view } = this;
    if (!answer) return html`<slot>Computing …</slot>`;
    if ('error' in answer)
      return html`<p part="error" role="alert">${answer.error}</p>
        <slot></slot>`;
    const { report, gpu, count, about, link } = answer;
    return html`
      <p class="about" part="about">${about}</p>
      <div class="body">
        <oometer-verdict
          part="verdict"
          .report=${report}
          .gpu=${gpu}
          .count=${count}
          .plain=${view === 'summary'}
        ></oometer-verdict>
        ${view === 'full' ? html`<oometer-holders part="holders" .report=${report}></oometer-holders>` : nothing}
        ${
          view === 'full'
            ? html`<oometer-phases part="timeline" .report=${report}></oometer-phases>`
            : view === 'timeline'
              ? html`<oometer-timeline part="timeline" .report=${report}></oometer-timeline>`
              : nothing
        }
      </div>
      ${
        hasSite()
          ? html`<p class="foot" part="foot">
              <a href=${inSite(`index.html${link}`)} target="_blank" rel="noopener"
                >${link ? 'Change it in oometer' : 'oometer'}</a
              >
            </p>`
          : nothing
      }
    `;
  }
}

customElements.define('oometer-widget', OometerWidget);
