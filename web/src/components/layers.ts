import { css, html, LitElement, nothing, type TemplateResult } from 'lit';
import { layers, moduleTotal } from '../charts/stack';
import { exact, GIB, unitFor, type Unit } from '../format/bytes';
import { sum, type FactorKey } from '../format/factors';
import { breakable } from './breakable';
import { shared } from '../styles/shared';
import { term } from './term';
import type { Module, Report } from '../wasm/report';

interface Column {
  key: string;
  label: string;
  bytes: (module: Module) => number;
}

const factor = (key: FactorKey, label: string): Column => ({ key, label, bytes: (module) => module[key] });

/** Below this, layers would read 0.01 GiB. */
const SMALL = 10 * GIB;

/** The four factors of the paper's equation, and what it leaves out, so that a row sums. */
const COLUMNS: readonly Column[] = [
  factor('parameters', 'Parameters'),
  factor('gradients', 'Gradients'),
  factor('optimizer_states', 'Optimizer'),
  factor('activations', 'Activations'),
  {
    key: 'temporaries',
    label: 'Other',
    bytes: (module) => module.temporaries + module.buffers_and_inputs + module.kv_cache + module.allocator_rounding,
  },
  { key: 'allocated', label: 'Total', bytes: moduleTotal },
];

/** Every layer with the four factors, in the model's order or by any column. */
export class OometerLayers extends LitElement {
  static override properties = { report: { attribute: false }, by: { state: true }, up: { state: true } };
  declare report: Report | null;
  /** The column that it is sorted by; "" is the model's order. */
  declare private by: string;
  declare private up: boolean;

  constructor() {
    super();
    this.report = null;
    this.by = '';
    this.up = false;
  }

  static override styles = [
    shared,
    css`
      table {
        border-collapse: separate; /* collapsed borders do not stick */
        border-spacing: 0;
      }
      .scroll {
        max-height: 26rem;
        overflow: auto;
      }
      thead th {
        position: sticky;
        top: 0;
        background: var(--surface);
        box-shadow: inset 0 -1px 0 var(--line-strong);
      }
      tfoot td,
      tfoot th {
        position: sticky;
        bottom: 0;
        background: var(--surface);
        box-shadow: inset 0 1px 0 var(--line-strong);
        font-weight: 600;
      }
      thead button {
        min-height: 1.5rem;
        padding: 0 0.2rem;
        margin-right: -0.2rem;
        border: 0;
        background: none;
        color: inherit;
        font-size: inherit;
        font-weight: inherit;
      }
      [aria-sort] button {
        color: var(--text);
        font-weight: 600;
      }
      td,
      th {
        padding-block: 0.2rem;
      }
    `,
  ];

  override render(): TemplateResult | typeof nothing {
    const { report } = this;
    if (!report) return nothing;
    const unit = unitFor(sum(report.breakdown), SMALL);
    const column = COLUMNS.find(({ key }) => key === this.by);
    const rows = layers(report.modules);
    if (column) rows.sort((a, b) => (column.bytes(a) - column.bytes(b)) * (this.up ? 1 : -1));
    return html`
      <div class="scroll" tabindex="0" role="group" aria-label="Layers at the peak, in ${unit.name}">
        <table aria-label="Layers at the peak, in ${unit.name}">
          <thead>
            <tr>
              <th scope="col" data-copy="Layer" aria-sort=${this.by === '' ? 'ascending' : nothing}>
                ${this.sorter('', 'Layer')}
              </th>
              ${COLUMNS.map(
                ({ key, label }) => html`
                  <th
                    scope="col"
                    class="number"
                    data-copy="${label}, ${unit.name}"
                    aria-sort=${this.by === key ? (this.up ? 'ascending' : 'descending') : nothing}
                  >
                    ${this.sorter(key, label)}
                  </th>
                `,
              )}
            </tr>
          </thead>
          <tbody>
            ${rows.map(
              (module) => html`
                <tr>
                  <th scope="row">${name(module)}</th>
                  ${COLUMNS.map(({ bytes }) => cell(bytes(module), unit))}
                </tr>
              `,
            )}
          </tbody>
          <tfoot>
            <tr>
              <th scope="row">Total</th>
              ${COLUMNS.map(({ key, bytes }) => {
                const total = report.modules.reduce((all, module) => all + bytes(module), 0);
                return html`<td class="number" title=${exact(total)}>${term(key, unit.write(total))}</td>`;
              })}
            </tr>
          </tfoot>
        </table>
      </div>
      <p class="small soft">
        ${unit.name} in PyTorch’s tensors. “Other” is temporaries, buffers, inputs, the KV cache and rounding.
      </p>
    `;
  }

  private sorter(key: string, label: string): TemplateResult {
    const arrow = this.by !== key ? '' : key === '' || this.up ? ' ↑' : ' ↓';
    return html`<button
      @click=${() => {
        this.up = key !== '' && this.by === key && !this.up;
        this.by = key;
      }}
    >
      ${label}<span aria-hidden="true">${arrow}</span>
    </button>`;
  }
}

function name({ path, type }: Module): TemplateResult {
  if (type === '')
    return html`<span class="soft">${path === '' ? 'Whole model' : breakable(path)}, not in a layer</span>`;
  return html`${breakable(path)}`;
}

function cell(bytes: number, unit: Unit): TemplateResult {
  return html`<td class="number" title=${exact(bytes)}>${bytes === 0 ? '–' : unit.write(bytes)}</td>`;
}

customElements.define('oometer-layers', OometerLayers);
