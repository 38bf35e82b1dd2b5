import { css, html, LitElement, nothing, type TemplateResult } from 'lit';
import { exact, gibNumber } from '../format/bytes';
import { FACTORS } from '../format/factors';
import { change, verdict } from '../format/words';
import { FIELDS, type Field, type FieldKey, type Setup } from '../state/fields';
import { choiceLabel } from '../state/labels';
import { MOST_PINS } from '../state/permalink';
import { shared, verdicts } from '../styles/shared';
import { isTrouble, type Result, type Trouble } from '../wasm/ask';
import type { Report } from '../wasm/report';
import { copyTable } from './copy-table';
import { term } from './term';

export interface Column {
  setup: Setup;
  model: string;
  answer: Result | Trouble;
}

interface Figure {
  key: string;
  label: string;
  bytes: (report: Report) => number;
}

const FIGURES: readonly Figure[] = [
  { key: 'total', label: 'Peak, total', bytes: ({ peak }) => peak.total },
  { key: 'reserved', label: 'Reserved', bytes: ({ peak }) => peak.reserved },
  ...FACTORS.map(({ key, label }): Figure => ({ key, label, bytes: ({ breakdown }) => breakdown[key] })),
];

/** The present setup beside those that were pinned: what differs, and what it does. */
export class OometerCompare extends LitElement {
  static override properties = { columns: { attribute: false }, totalOf: { attribute: false } };
  /** The present one first. */
  declare columns: readonly Column[];
  /** The peak that settings have; null where they have none. */
  declare totalOf: (setup: Setup) => number | null;
  /** What each difference alone does to an answer. */
  private readonly costs = new WeakMap<Result, Map<string, number | null>>();

  constructor() {
    super();
    this.columns = [];
    this.totalOf = () => null;
  }

  static override styles = [
    shared,
    verdicts,
    css`
      th[scope='col'] {
        min-width: 9rem;
        vertical-align: top;
        white-space: normal;
      }
      thead th[scope='col'] {
        color: var(--text);
        font-size: 0.875rem;
        font-weight: 600;
      }
      thead .tools {
        display: flex;
        gap: 0.35rem;
        margin-top: 0.25rem;
      }
      thead button {
        min-height: 1.5rem;
        padding: 0 0.45rem;
        font-size: 0.75rem;
      }
      tbody th[scope='row'] {
        color: var(--text-soft);
        white-space: nowrap;
      }
      .differs {
        background: color-mix(in srgb, var(--accent) 12%, transparent);
        font-weight: 600;
      }
      .delta {
        display: block;
        color: var(--text-soft);
        font-size: 0.75rem;
      }
      tbody + tbody > tr:first-child > * {
        border-top: 2px solid var(--line-strong);
      }
      .tools {
        margin-top: 0.6rem;
      }
    `,
  ];

  override render(): TemplateResult {
    const { columns } = this;
    const full = columns.length > MOST_PINS;
    return html`
      <section aria-labelledby="compare">
        <div class="heading">
          <h2 id="compare">Compare</h2>
          <button ?disabled=${full} @click=${this.emit('pin')}>
            ${full ? `${MOST_PINS} are pinned` : 'Pin these settings'}
          </button>
        </div>
        ${
          columns.length < 2
            ? html`<p class="small soft">
                Pin the present settings, then change something or paste another configuration: the two stand side by
                side here, with what each difference does, and in the link.
              </p>`
            : this.table()
        }
      </section>
    `;
  }

  private table(): TemplateResult {
    const { columns } = this;
    const differing = FIELDS.filter(({ key }) => new Set(columns.map(({ setup }) => setup[key])).size > 1);
    return html`
      <div class="scroll" tabindex="0" role="group" aria-labelledby="compare">
        <table aria-labelledby="compare">
          <thead>
            <tr>
              <td></td>
              ${columns.map(({ model }, i) => this.head(model, i))}
            </tr>
          </thead>
          <tbody>
            ${differing
              .filter(
                ({ key }) =>
                  key !== 'config' && (key !== 'model' || differing.every((other) => other.key !== 'config')),
              )
              .map((field) => this.setting(field))}
          </tbody>
          <tbody>
            <tr>
              <th scope="row">Verdict</th>
              ${columns.map(({ answer }) => verdictCell(answer))}
            </tr>
            ${FIGURES.map((figure) => this.figure(figure))}
          </tbody>
        </table>
      </div>
      <div class="tools">${copyTable(() => this.renderRoot.querySelector('table'))}</div>
    `;
  }

  private head(model: string, i: number): TemplateResult {
    const name = i === 0 ? 'Now' : `Pinned ${i}`;
    return html`<th scope="col" data-copy="${name}: ${model}">
      ${name}: ${model}
      ${
        i === 0
          ? nothing
          : html`<div class="tools">
              <button @click=${this.emit('swap', i - 1)}>Use<span class="hidden"> pinned ${i}</span></button>
              <button @click=${this.emit('unpin', i - 1)}>Remove<span class="hidden"> pinned ${i}</span></button>
            </div>`
      }
    </th>`;
  }

  private setting({ key, kind, label }: Field): TemplateResult {
    const now = this.columns[0]?.setup[key];
    return html`<tr>
      <th scope="row">${label}</th>
      ${this.columns.map(({ setup, model }) => {
        const value = setup[key];
        const named = key === 'model' ? model : kind === 'config' ? (value === '' ? 'none' : 'own') : null;
        const shown = named ?? choiceLabel({ key }, value);
        if (value === now) return html`<td>${shown}</td>`;
        const cost = this.costOf(key, value);
        return html`<td class="differs">
          ${shown} ${cost === null ? nothing : html`<span class="delta">alone ${change(cost)}</span>`}
        </td>`;
      })}
    </tr>`;
  }

  /** What the present peak becomes with this one setting of another column. */
  private costOf(key: FieldKey, value: string): number | null {
    const now = this.columns[0]?.answer;
    if (!now || isTrouble(now)) return null;
    const known = this.costs.get(now) ?? new Map<string, number | null>();
    this.costs.set(now, known);
    const name = `${key}=${value}`;
    let total = known.get(name);
    if (total === undefined) known.set(name, (total = this.totalOf({ ...now.setup, [key]: value })));
    return total === null ? null : total - now.report.peak.total;
  }

  private figure({ key, label, bytes }: Figure): TemplateResult | typeof nothing {
    const values = this.columns.map(({ answer }) => (isTrouble(answer) ? null : bytes(answer.report)));
    if (values.every((value) => value === 0 || value === null)) return nothing;
    const now = values[0];
    return html`<tr>
      <th scope="row" data-copy="${label}, GiB">${term(key, label)}, GiB</th>
      ${values.map((value, i) =>
        value === null
          ? html`<td>–</td>`
          : html`<td title=${exact(value)} data-copy=${gibNumber(value, 2)}>
              ${gibNumber(value, 2)}
              ${i > 0 && now !== null && now !== undefined ? html`<span class="delta">${change(value - now)}</span>` : nothing}
            </td>`,
      )}
    </tr>`;
  }

  private emit(name: 'pin' | 'unpin' | 'swap', detail?: number): () => void {
    return () => {
      this.dispatchEvent(new CustomEvent<number | undefined>(name, { detail }));
    };
  }
}

function verdictCell(answer: Result | Trouble): TemplateResult {
  if (isTrouble(answer)) return html`<td>No answer: ${answer.message}</td>`;
  return html`<td class=${answer.report.verdict}>
    ${verdict(answer.report, answer.gpu.name, answer.count).headline}
  </td>`;
}

customElements.define('oometer-compare', OometerCompare);
