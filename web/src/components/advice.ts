import { css, html, LitElement, type TemplateResult } from 'lit';
import { exact, gib, gibNumber } from '../format/bytes';
import { timeThen } from '../format/seconds';
import { VERDICTS } from '../format/words';
import { costsOf, mosts, type Most } from '../state/advised';
import type { Setup } from '../state/fields';
import { applied } from '../state/patch';
import { figures, shared, verdicts } from '../styles/shared';
import type { Advice, Change, Combination, Patch, Spare } from '../wasm/advice';
import type { Result } from '../wasm/ask';
import { copyTable } from './copy-table';

/** What would help: how far each count can go, single changes, and the cheapest that together fit. */
export class OometerAdvice extends LitElement {
  static override properties = {
    advice: { attribute: false },
    result: { attribute: false },
    stale: { type: Boolean },
    refused: {},
  };
  declare advice: Advice | null;
  /** What is shown: a change is applied to its settings. */
  declare result: Result | null;
  /** Whether the advice is still about an earlier answer. */
  declare stale: boolean;
  /** Why there is no advice. */
  declare refused: string;

  constructor() {
    super();
    this.advice = null;
    this.result = null;
    this.stale = false;
    this.refused = '';
  }

  static override styles = [
    shared,
    figures,
    verdicts,
    css`
      .waiting {
        min-height: 24rem; /* about what comes */
      }
      dd {
        display: flex;
        align-items: center;
        gap: 0.5rem;
        min-height: 1.875rem;
      }
      .together {
        display: flex;
        flex-wrap: wrap;
        align-items: center;
        gap: 0.5rem 1rem;
        margin-bottom: 0.9rem;
        padding: 0.5rem 0.9rem;
        border-left: 4px solid var(--accent);
        background: var(--surface-raised);
        font-size: 0.9rem;
      }
      .together p {
        flex: 1 1 18rem;
        min-width: 0;
        overflow-wrap: anywhere;
        margin: 0;
      }
      th[scope='row'] {
        min-width: 9rem;
      }
      td.verdict {
        white-space: nowrap;
      }
      td.costs {
        min-width: 10rem;
        overflow-wrap: anywhere; /* a variable's name and value are a long word */
        color: var(--text-soft);
      }
      .tools {
        margin-top: 0.6rem;
      }
      /* A row a block: nothing is cut off. */
      @media (max-width: 40rem) {
        thead {
          display: none;
        }
        tbody tr {
          display: grid;
          grid-template-columns: minmax(0, 1fr) auto;
          gap: 0.1rem 0.75rem;
          padding: 0.6rem 0;
          border-bottom: 1px solid var(--line);
        }
        tbody tr > * {
          min-width: 0;
          padding: 0;
          border: 0;
        }
        tbody th[scope='row'] {
          grid-area: 1 / 1;
          font-weight: 600;
        }
        td.tools {
          grid-area: 1 / 2 / 3 / 3;
          margin: 0;
        }
        td.costs {
          grid-column: 1 / -1;
        }
        [data-says]::before {
          content: attr(data-says) ' ';
          color: var(--text-soft);
        }
        td.number,
        td.verdict {
          grid-column: 1;
          text-align: left;
        }
      }
      .elsewhere {
        white-space: nowrap;
      }
      @media print {
        td button,
        dd button,
        .together button {
          display: none;
        }
      }
    `,
  ];

  override render(): TemplateResult {
    const { advice, refused } = this;
    return html`
      <section aria-labelledby="help" aria-busy=${this.stale ? 'true' : 'false'}>
        <h2 id="help">What would help</h2>
        ${
          advice
            ? this.found(advice)
            : html`<p class="soft small ${refused ? '' : 'waiting'}">${refused || 'Trying changes …'}</p>`
        }
      </section>
    `;
  }

  private found(advice: Advice): TemplateResult {
    const { changes } = advice;
    const { result } = this;
    if (!result) return html``;
    return html`
      <dl>${mosts(advice, result).map((most) => this.most(most))}</dl>
      ${advice.beside.map((spare) => this.spare(spare))}
      ${advice.combinations.map((combination, i) => this.together(combination, i))}
      ${
        changes.length === 0
          ? html`<p class="soft small">No single change known here saves memory.</p>`
          : html`<div class="scroll" tabindex="0" role="group" aria-labelledby="help">
                <table aria-labelledby="help">
                  <thead>
                    <tr>
                      <td class="tools"></td>
                      <th scope="col">Change</th>
                      <th scope="col" class="number">Saves, GiB</th>
                      <th scope="col" class="number">Peak then, GiB</th>
                      <th scope="col">Verdict then</th>
                      <th scope="col">What it costs</th>
                    </tr>
                  </thead>
                  <tbody>
                    ${changes.map((change) => this.change(change))}
                  </tbody>
                </table>
              </div>
              <div class="tools">
                ${copyTable(() => this.renderRoot.querySelector<HTMLTableElement>('table[aria-labelledby]'))}
              </div>`
      }
    `;
  }

  /** A count as far as it goes with all else as it is. */
  private most({ label, most, setup }: Most): TemplateResult {
    return html`<div>
      <dt>${label} that ${/^(Fewest|Most) /.test(label) ? 'fit' : 'fits'}</dt>
      <dd>
        ${most === null ? 'none' : most.toLocaleString('en-US')}
        ${
          setup === null
            ? html`<span class="soft small">${most === null ? '' : 'as set'}</span>`
            : this.button(setup, 'Use', label)
        }
      </dd>
    </div>`;
  }

  /** What a change does to the time of each token, after other words. */
  private time(then: number | null, before: string): string {
    const time = timeThen(this.advice?.tokens_per_second ?? null, then);
    return time && before + time;
  }

  private spare({ label, gains, change, peak, tokens_per_second }: Spare): TemplateResult {
    return html`<div class="together">
      <p>Also fits: <strong>${label}</strong>, ${gains}. Peak ${gib(peak)}${this.time(tokens_per_second, ', ')}.</p>
      ${this.offer(change, 'Apply', label)}
    </div>`;
  }

  private together(combination: Combination, i: number): TemplateResult {
    const { labels, change, peak, verdict, tokens_per_second } = combination;
    const fits = verdict === 'tight' ? 'may fit' : 'fits';
    return html`<div class="together">
      <p>
        ${i === 0 ? `The least that ${fits}` : `Also ${fits}`}: <strong>${labels.join(' + ')}</strong>. Peak
        ${gib(peak)}, <span class=${verdict}>${VERDICTS[verdict]}</span>${this.time(tokens_per_second, ', ')}.
        <span class="soft">${costsOf(combination)}</span>
      </p>
      ${this.offer(change, labels.length > 1 ? 'Apply all' : 'Apply', labels.join(', '))}
    </div>`;
  }

  private change({ label, change, peak, saves, verdict, costs, tokens_per_second }: Change): TemplateResult {
    const time = this.time(tokens_per_second, '');
    return html`<tr>
      <td class="tools" data-copy="">${this.offer(change, 'Apply', label)}</td>
      <th scope="row">${label}</th>
      <td class="number" data-says="Saves GiB:" title=${exact(saves)}>${gibNumber(saves)}</td>
      <td class="number" data-says="Peak then, GiB:" title=${exact(peak)}>${gibNumber(peak)}</td>
      <td class="verdict ${verdict}">${VERDICTS[verdict]}</td>
      <td class="costs">${time && html`<strong>${time}</strong>; `}${costs}</td>
    </tr>`;
  }

  /** A button for what the settings can express; the rest is for the configuration itself. */
  private offer(change: Patch, words: string, what: string): TemplateResult {
    const { result } = this;
    const setup = result && applied(result.setup, result.model, change);
    return setup
      ? this.button(setup, words, what)
      : html`<span class="soft small elsewhere" title=${JSON.stringify(change)}>in a job only</span>`;
  }

  private button(setup: Setup, words: string, what: string): TemplateResult {
    return html`<button
      ?disabled=${this.stale}
      @click=${() => {
        this.dispatchEvent(new CustomEvent<Setup>('apply', { detail: setup }));
      }}
    >
      ${words}<span class="hidden"> ${what}</span>
    </button>`;
  }
}

customElements.define('oometer-advice', OometerAdvice);
