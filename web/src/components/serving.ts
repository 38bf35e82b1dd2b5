import { css, html, LitElement, nothing, type TemplateResult } from 'lit';
import { exact, gib } from '../format/bytes';
import { applies, choicesOf, field, number, type Setup } from '../state/fields';
import { figures, shared } from '../styles/shared';
import type { Advice } from '../wasm/advice';
import type { Result } from '../wasm/ask';
import { segmented, segmentedStyles } from './segmented';
import { term } from './term';

/** Precisions of the cache, as settings that are changed together. */
const PRECISIONS: readonly { value: string; label: string; set: Partial<Setup> }[] = [
  { value: 'own', label: 'As the model', set: { cache: 'dynamic' } },
  { value: 'fp8', label: '8 bits', set: { cache: 'quantized', cachebackend: 'fp8' } },
  { value: '4', label: '4 bits', set: { cache: 'quantized', cachebackend: 'quanto', cachebits: '4' } },
  { value: '2', label: '2 bits', set: { cache: 'quantized', cachebackend: 'quanto', cachebits: '2' } },
];

const has = (setup: Setup, set: Partial<Setup>): boolean =>
  Object.entries(set).every(([key, value]) => setup[key as keyof Setup] === value);

/** What inference is about: what is left for the cache, its precision, and how many users fit at which length. */
export class OometerServing extends LitElement {
  static override properties = {
    result: { attribute: false },
    advice: { attribute: false },
    stale: { type: Boolean },
  };
  declare result: Result | null;
  declare advice: Advice | null;
  /** Whether the advice is still about an earlier answer. */
  declare stale: boolean;

  constructor() {
    super();
    this.result = null;
    this.advice = null;
    this.stale = false;
  }

  static override styles = [
    shared,
    figures,
    segmentedStyles,
    css`
      fieldset {
        max-width: 30rem;
        margin: 0 0 1rem;
        padding: 0;
        border: 0;
      }
      legend {
        margin-bottom: 0.25rem;
        padding: 0;
        font-size: 0.8125rem;
        font-weight: 600;
      }
      table {
        width: auto;
      }
      @media print {
        td button {
          display: none;
        }
      }
    `,
  ];

  override render(): TemplateResult | typeof nothing {
    const { result } = this;
    if (!result) return nothing;
    const { report } = result;
    const cache = report.breakdown.kv_cache;
    const left = report.gpu.usable_bytes - report.peak.total + cache;
    const figure = (words: unknown, bytes: number): TemplateResult =>
      html`<div>
        <dt>${words}</dt>
        <dd title=${exact(bytes)}>${gib(bytes)}</dd>
      </div>`;
    return html`<section aria-labelledby="serving">
      <h2 id="serving">Users and context</h2>
      <dl>
        ${figure('Weights', report.breakdown.parameters)} ${figure(term('kv_cache', 'KV cache at the peak'), cache)}
        ${figure('Left for the KV cache', Math.max(0, left))}
      </dl>
      ${this.precision(result)} ${this.users(result)}
    </section>`;
  }

  private precision({ setup, model }: Result): TemplateResult | typeof nothing {
    const caches = applies(field('cache'), model, setup) ? choicesOf(field('cache'), model) : [];
    const offered = PRECISIONS.filter(({ set }) => set.cache !== undefined && caches.includes(set.cache));
    if (offered.length < 2) return nothing;
    return html`<fieldset>
      <legend>Precision of the KV cache</legend>
      ${segmented({
        name: 'precision',
        value: offered.find(({ set }) => has(setup, set))?.value ?? '',
        choices: offered,
        onChange: (value) => {
          const set = offered.find((one) => one.value === value)?.set;
          if (set) this.apply({ ...setup, ...set });
        },
      })}
    </fieldset>`;
  }

  /** How many sequences fit at once, by their length with the answers. */
  private users({ setup, model }: Result): TemplateResult | typeof nothing {
    const rows = this.advice?.frontier ?? [];
    if (rows.length === 0) return nothing;
    const answer = applies(field('newtokens'), model, setup) ? number(setup.newtokens) : 0;
    const where = number(setup.gpus) > 1 ? ' on each GPU' : '';
    return html`<h3 id="users">Most users at once${where}, by the length of prompt and answer together</h3>
      <table aria-labelledby="users" aria-busy=${this.stale ? 'true' : 'false'}>
        <thead>
          <tr>
            <th scope="col" class="number">Tokens</th>
            <th scope="col" class="number">Users</th>
            <td></td>
          </tr>
        </thead>
        <tbody>
          ${rows.map(({ context, users }) => {
            const prompt = setup.turns === '1' ? context - answer : 0;
            return html`<tr>
              <th scope="row" class="number">${context.toLocaleString('en-US')}</th>
              <td class="number">${users === 0 ? 'none' : users.toLocaleString('en-US')}</td>
              <td>
                ${
                  users > 0 && prompt > 0
                    ? html`<button
                        ?disabled=${this.stale}
                        @click=${() => {
                          this.apply({ ...setup, mbs: String(users), seq: String(prompt) });
                        }}
                      >
                        Use<span class="hidden"> ${users} users of ${context} tokens</span>
                      </button>`
                    : nothing
                }
              </td>
            </tr>`;
          })}
        </tbody>
      </table>`;
  }

  private apply(setup: Setup): void {
    this.dispatchEvent(new CustomEvent<Setup>('apply', { detail: setup }));
  }
}

customElements.define('oometer-serving', OometerServing);
