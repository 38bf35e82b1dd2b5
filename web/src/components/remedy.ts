import { css, html, LitElement, nothing, type TemplateResult } from 'lit';
import { gib } from '../format/bytes';
import { timeThen } from '../format/seconds';
import { costsOf, mosts } from '../state/advised';
import type { Setup } from '../state/fields';
import { applied } from '../state/patch';
import { told } from '../state/told';
import { shared } from '../styles/shared';
import type { Advice } from '../wasm/advice';
import type { Result } from '../wasm/ask';

/** Below the verdict, in one line: what would make it fit, or what fits beside it; and the way back from what was applied. */
export class OometerRemedy extends LitElement {
  static override properties = {
    advice: { attribute: false },
    result: { attribute: false },
    stale: { type: Boolean },
    former: { attribute: false },
  };
  declare advice: Advice | null;
  declare result: Result | null;
  /** Whether the advice is still about an earlier answer. */
  declare stale: boolean;
  /** The settings before a change was applied, until the next edit. */
  declare former: Setup | null;

  constructor() {
    super();
    this.advice = null;
    this.result = null;
    this.stale = false;
    this.former = null;
  }

  static override styles = [
    shared,
    css`
      p {
        display: flex;
        flex-wrap: wrap;
        align-items: center;
        gap: 0.25rem 0.75rem;
        min-height: 1.875rem;
        margin: 0 0 0.5rem;
        font-size: 0.875rem;
      }
      button {
        min-height: 1.75rem;
      }
      .go {
        border-color: var(--accent);
        background: var(--accent);
        color: var(--accent-text);
        font-weight: 600;
      }
      @media print {
        :host {
          display: none;
        }
      }
    `,
  ];

  override render(): TemplateResult | typeof nothing {
    const { result, former } = this;
    if (!result) return nothing;
    return html`
      ${
        former
          ? html`<p role="status">
              <span>Applied: ${told(former, result.setup)}.</span>
              <button
                @click=${() => {
                  this.dispatchEvent(new CustomEvent('undo'));
                }}
              >
                Undo
              </button>
            </p>`
          : nothing
      }
      ${former && result.report.fits ? nothing : html`<p>${this.line(result)}</p>`}
    `;
  }

  private line(result: Result): TemplateResult {
    const { advice, stale } = this;
    if (!advice || stale)
      return html`<span class="soft"
        >${result.report.fits ? 'Looking for what else fits …' : 'Looking for what would help …'}</span
      >`;
    return result.report.fits ? this.beside(result, advice) : this.remedy(result, advice);
  }

  private remedy(result: Result, advice: Advice): TemplateResult {
    const [first] = advice.combinations;
    const more = html`<a href="#help" @click=${this.follow}>All changes</a>`;
    if (!first) return html`<span>No change known here makes it fit.</span> ${more}`;
    const { labels, change, peak, verdict, tokens_per_second } = first;
    const time = timeThen(advice.tokens_per_second, tokens_per_second);
    const setup = applied(result.setup, result.model, change);
    return html`<span title=${costsOf(first)}
        >${verdict === 'tight' ? 'May fit with' : 'Fits with'}
        <strong>${labels.join(' + ')}</strong> (${gib(peak)}${time && `, ${time}`}).</span
      >
      ${setup ? this.button(setup, 'Apply', labels.join(' + '), true) : nothing} ${more}`;
  }

  /** What costs less and fits, too; else how far each count goes. */
  private beside(result: Result, advice: Advice): TemplateResult {
    for (const { label, gains, change, peak } of advice.beside) {
      const setup = applied(result.setup, result.model, change);
      if (setup)
        return html`<span>Also fits: <strong>${label}</strong> (${gib(peak)}), ${gains}.</span>
          ${this.button(setup, 'Apply', label)}`;
    }
    const further = mosts(advice, result).filter(({ setup }) => setup !== null);
    if (further.length === 0) return html`<span class="soft">Nothing larger fits.</span>`;
    return html`<span class="soft">Also fits, each by itself:</span> ${further.map(
        ({ label, most, setup }) =>
          setup && html`<span>${label} ${most?.toLocaleString('en-US')}</span>${this.button(setup, 'Use', label)}`,
      )}`;
  }

  private button(setup: Setup, words: string, what: string, main = false): TemplateResult {
    return html`<button
      class=${main ? 'go' : ''}
      @click=${() => {
        this.dispatchEvent(new CustomEvent<Setup>('apply', { detail: setup }));
      }}
    >
      ${words}<span class="hidden"> ${what}</span>
    </button>`;
  }

  /** The address holds settings, so that a link within the page is followed by hand. */
  private readonly follow = (event: Event): void => {
    event.preventDefault();
    this.dispatchEvent(new CustomEvent('more'));
  };
}

customElements.define('oometer-remedy', OometerRemedy);
