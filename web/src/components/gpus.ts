import { css, html, LitElement, nothing, type TemplateResult } from 'lit';
import { exact, gibNumber } from '../format/bytes';
import { reason } from '../format/reason';
import { VERDICTS } from '../format/words';
import { OWN_GPU, type Setup } from '../state/fields';
import { costOf, matches, sorted, type Filter, type Order } from '../state/gpu-list';
import { applied } from '../state/patch';
import { fields, shared, verdicts } from '../styles/shared';
import type { Result } from '../wasm/ask';
import type { Gpu } from '../wasm/catalogue';
import { readRow, type GpuRow } from '../wasm/gpus';
import { Pool } from '../wasm/pool';
import { copyTable } from './copy-table';

/** A phone has room for the name, the verdict, how many are needed, and one half of the rest. */
type Half = 'memory' | 'money';
interface Column {
  order: Order | null;
  label: string;
  half?: Half | 'usable';
}
const COLUMNS: readonly Column[] = [
  { order: 'name', label: 'GPU' },
  { order: 'memory', label: 'Usable, GiB', half: 'usable' },
  { order: null, label: 'With these settings' },
  { order: 'headroom', label: 'To spare, GiB', half: 'memory' },
  { order: 'needed', label: 'Needed' },
  { order: 'batch', label: 'Largest micro-batch', half: 'memory' },
  { order: null, label: 'Price an hour', half: 'money' },
  { order: 'cost', label: 'Cost an hour', half: 'money' },
];
const VENDORS: Readonly<Record<string, string>> = { nvidia: 'NVIDIA', amd: 'AMD' };
const MEMORIES = [16, 24, 40, 80, 140];
/** Edits come fast: the whole catalogue is asked when the fingers rest. */
const REST = 300;
/** GPUs that one worker is asked about at once. */
const PIECE = 6;

/** On which GPU: the whole catalogue with these settings, how many of each are enough, and what they cost. */
export class OometerGpus extends LitElement {
  static override properties = {
    result: { attribute: false },
    gpus: { attribute: false },
    rows: { state: true },
    of: { state: true },
    problem: { state: true },
    filter: { state: true },
    order: { state: true },
    prices: { state: true },
    half: { state: true },
  };
  declare result: Result | null;
  declare gpus: readonly Gpu[];
  declare private rows: readonly GpuRow[];
  /** The answer that the rows are about. */
  declare private of: Result | null;
  declare private problem: string;
  declare private filter: Filter;
  declare private order: Order;
  declare private prices: ReadonlyMap<string, number>;
  /** What a phone shows. */
  declare private half: Half;
  private readonly pool = new Pool();
  private readonly observer = new IntersectionObserver(
    ([entry]) => {
      this.inSight = entry?.isIntersecting ?? false;
      this.find();
    },
    { rootMargin: '400px' },
  );
  private inSight = false;
  private asked: Result | null = null;
  private timer = 0;

  constructor() {
    super();
    this.result = null;
    this.gpus = [];
    this.rows = [];
    this.of = null;
    this.problem = '';
    this.filter = { vendor: '', memory: 0, place: '' };
    this.order = 'needed';
    this.prices = new Map();
    this.half = 'memory';
  }

  override connectedCallback(): void {
    super.connectedCallback();
    this.observer.observe(this);
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    this.observer.disconnect();
    clearTimeout(this.timer);
    this.pool.stop();
  }

  static override styles = [
    shared,
    fields,
    verdicts,
    css`
      .filters {
        display: flex;
        flex-wrap: wrap;
        gap: 0.5rem 1rem;
        margin-bottom: 0.6rem;
      }
      .filters label {
        display: flex;
        align-items: center;
        gap: 0.4rem;
        font-size: 0.8125rem;
        color: var(--text-soft);
      }
      .filters select {
        width: auto;
        height: 1.875rem;
        font-size: 0.8125rem;
      }
      .scroll {
        min-height: 12rem;
        max-height: 32rem;
        overflow-y: auto;
      }
      thead th {
        position: sticky;
        top: 0;
        z-index: 1;
        background: var(--surface);
      }
      thead button {
        min-height: 1.5rem;
        padding: 0;
        border: 0;
        background: none;
        color: inherit;
        font-size: inherit;
      }
      thead button:hover {
        color: var(--text);
        text-decoration: underline;
      }
      th[aria-sort] {
        color: var(--text);
        font-weight: 600;
      }
      tbody tr {
        cursor: pointer;
      }
      tbody tr:hover {
        background: var(--surface-raised);
      }
      tbody tr.set {
        background: color-mix(in srgb, var(--accent) 12%, transparent);
      }
      tbody th {
        white-space: nowrap;
      }
      tbody th button {
        min-height: 1.5rem;
        padding: 0;
        border: 0;
        background: none;
        color: var(--accent);
        font-size: inherit;
        text-align: left;
        text-decoration: underline;
        text-underline-offset: 2px;
      }
      td.verdict {
        white-space: nowrap;
      }
      td.price input {
        width: 4.5rem;
        height: 1.625rem;
        text-align: right;
        font-size: 0.8125rem;
      }
      .tools {
        margin-top: 0.6rem;
      }
      .filters .halves {
        display: none;
      }
      @media (max-width: 40rem) {
        .filters .halves {
          display: flex;
        }
        .usable,
        .memory .money,
        .money .memory {
          display: none;
        }
        table {
          font-size: 0.8125rem;
        }
        th,
        td {
          padding: 0.35rem 0.3rem;
        }
        thead th,
        thead th.number,
        tbody th,
        td.verdict,
        td.number {
          white-space: normal;
        }
        thead button {
          text-align: inherit;
        }
        td.price input {
          width: 100%;
          min-width: 3.5rem;
        }
      }
    `,
  ];

  override updated(): void {
    this.find();
  }

  /** While the table is in sight, it follows the settings. */
  private find(): void {
    const { result } = this;
    if (!this.inSight || !result || this.asked === result) return;
    this.asked = result;
    this.pool.cancel();
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => void this.ask(result), this.rows.length > 0 ? REST : 0);
  }

  private async ask(result: Result): Promise<void> {
    const gpus = this.gpus.filter(({ id }) => id !== OWN_GPU);
    const found: GpuRow[] = [];
    this.problem = '';
    try {
      const finished = await this.pool.run(
        { ask: 'onGpu', job: result.job },
        gpus.length,
        PIECE,
        (index) => ({ gpu: { name: gpus[index]?.id } }),
        (answers) => {
          for (const { index, json } of answers) {
            const gpu = gpus[index];
            if (gpu) found.push(readRow(json, gpu));
          }
        },
      );
      if (!finished) return;
      this.rows = found;
    } catch (error) {
      this.problem = reason(error);
    }
    this.of = result;
  }

  override render(): TemplateResult {
    const { rows, problem, result } = this;
    const shown = sorted(
      rows.filter((row) => matches(row, this.filter)),
      this.order,
      this.prices,
    );
    return html`<section aria-labelledby="on-which" aria-busy=${this.of === result ? 'false' : 'true'}>
      <h2 id="on-which">On which GPU?</h2>
      <p class="small soft">
        This job on every GPU, and the fewest of each that are enough when the job is spread over them. Press one to
        take it. Prices are yours to fill in; they stay in this tab.
      </p>
      ${this.filters()}
      ${
        problem
          ? html`<p class="small">${problem}</p>`
          : html`<div class="scroll" tabindex="0" role="group" aria-labelledby="on-which">
                <table aria-labelledby="on-which" class=${this.half}>
                  <thead>
                    <tr>
                      ${COLUMNS.map((column) => this.head(column))}
                    </tr>
                  </thead>
                  <tbody>
                    ${shown.map((row) => this.row(row))}
                  </tbody>
                </table>
                ${shown.length === 0 ? html`<p class="small soft">${rows.length === 0 ? 'Asking …' : 'No GPU is like that.'}</p>` : nothing}
              </div>
              <div class="tools">${copyTable(() => this.renderRoot.querySelector('table'))}</div>`
      }
    </section>`;
  }

  private filters(): TemplateResult {
    const select = (label: string, key: keyof Filter, choices: readonly [string, string][]): TemplateResult =>
      html`<label
        >${label}
        <select
          @change=${({ target }: Event) => {
            const { value } = target as HTMLSelectElement;
            this.filter = { ...this.filter, [key]: key === 'memory' ? Number(value) : value };
          }}
        >
          ${choices.map(
            ([value, name]) =>
              html`<option value=${value} ?selected=${value === String(this.filter[key] || '')}>${name}</option>`,
          )}
        </select>
      </label>`;
    return html`<div class="filters">
      ${select('Vendor', 'vendor', [['', 'any'], ...Object.entries(VENDORS)])}
      ${select('Memory', 'memory', [['', 'any'], ...MEMORIES.map((gb): [string, string] => [String(gb), `${gb} GB or more`])])}
      ${select('Found', 'place', [
        ['', 'anywhere'],
        ['cloud', 'in the cloud'],
        ['desk', 'on desks'],
      ])}
      <label class="halves"
        >Show
        <select
          @change=${({ target }: Event) => {
            this.half = (target as HTMLSelectElement).value as Half;
          }}
        >
          <option value="memory">memory</option>
          <option value="money">prices</option>
        </select>
      </label>
    </div>`;
  }

  private head({ order, label, half }: Column): TemplateResult {
    const kind = `${half ?? ''} ${order === 'name' || label.startsWith('With') ? '' : 'number'}`;
    if (order === null) return html`<th scope="col" class=${kind}>${label}</th>`;
    const isNow = this.order === order;
    const way = order === 'name' || order === 'needed' || order === 'cost' ? 'ascending' : 'descending';
    return html`<th scope="col" class=${kind} data-copy=${label} aria-sort=${isNow ? way : nothing}>
      <button
        title="Sort"
        @click=${() => {
          this.order = order;
        }}
      >
        ${label}${isNow ? (way === 'ascending' ? ' ↑' : ' ↓') : ''}
      </button>
    </th>`;
  }

  private row(row: GpuRow): TemplateResult {
    const { id, name, usable_bytes, verdict, headroom, refused, needed, largest_micro_batch } = row;
    const cost = costOf(row, this.prices);
    const take = (): void => {
      this.take(row);
    };
    return html`<tr class=${id === this.result?.setup.gpu ? 'set' : ''} @click=${take}>
      <th scope="row" data-copy=${name}>
        <button><span class="hidden">Take ${this.fits(row) || !needed ? '' : needed.gpus}</span> ${name}</button>
      </th>
      <td class="number usable" title=${exact(usable_bytes)}>${gibNumber(usable_bytes)}</td>
      <td class="verdict ${verdict ?? ''}" title=${refused || nothing}>${verdict ? VERDICTS[verdict] : 'refused'}</td>
      ${
        headroom === null
          ? html`<td class="number memory"></td>`
          : html`<td class="number memory" title=${exact(headroom)}>${gibNumber(headroom)}</td>`
      }
      <td class="number">${needed ? `${needed.gpus}${needed.label ? `, ${needed.label}` : ''}` : 'more'}</td>
      <td class="number memory">${largest_micro_batch?.toLocaleString('en-US') ?? 'none'}</td>
      <td class="number money price" data-copy=${this.prices.get(id) ?? ''}>
        <input
          type="number"
          min="0"
          step="any"
          inputmode="decimal"
          aria-label="Price an hour of ${name}"
          @click=${(event: Event) => {
            event.stopPropagation();
          }}
          @input=${({ target }: Event) => {
            this.price(id, (target as HTMLInputElement).value);
          }}
        />
      </td>
      <td class="number money">${cost === null ? '' : cost.toFixed(2)}</td>
    </tr>`;
  }

  private price(id: string, text: string): void {
    const prices = new Map(this.prices);
    const price = Number(text);
    if (text === '' || !(price >= 0)) prices.delete(id);
    else prices.set(id, price);
    this.prices = prices;
  }

  private fits({ verdict }: GpuRow): boolean {
    return verdict === 'fits' || verdict === 'tight';
  }

  /** This GPU; as many as are needed, where the present number is not enough. */
  private take(row: GpuRow): void {
    const base = this.of;
    if (!base) return;
    const setup: Setup = { ...base.setup, gpu: row.id };
    const more = this.fits(row) || !row.needed ? null : applied(setup, base.model, row.needed.change);
    this.dispatchEvent(new CustomEvent<Setup>('apply', { detail: more ?? setup }));
  }
}

customElements.define('oometer-gpus', OometerGpus);
