import { css, html, LitElement, nothing, type TemplateResult } from 'lit';
import { repeat } from 'lit/directives/repeat.js';
import { bar } from '../charts/bar';
import { factorSegments, moduleRows, totalSegments, type Row } from '../charts/stack';
import { exact, gibNumber, percent } from '../format/bytes';
import { FACTORS, sum } from '../format/factors';
import { deathPlace, peakPlace } from '../format/words';
import { styles } from '../styles/inline';
import { breakable } from './breakable';
import { fill, shared } from '../styles/shared';
import type { Report } from '../wasm/report';

/** Where it goes: what the memory is held for, and by which module. */
export class OometerHolders extends LitElement {
  static override properties = {
    report: { attribute: false },
    open: { state: true },
    numbers: { state: true },
  };
  declare report: Report | null;
  declare private open: ReadonlySet<string>;
  declare private numbers: boolean;

  constructor() {
    super();
    this.report = null;
    this.open = new Set();
    this.numbers = false;
  }

  static override styles = [
    shared,
    css`
      .columns {
        display: grid;
        grid-template-columns: minmax(15rem, 19rem) minmax(0, 1fr);
        gap: 2rem 2.5rem;
        align-items: start;
      }
      .numbers .columns {
        grid-template-columns: minmax(0, 1fr);
      }
      .numbers .columns > table {
        max-width: 26rem;
      }
      @media (max-width: 64rem) {
        .columns {
          grid-template-columns: minmax(0, 1fr);
        }
      }
      caption {
        padding-bottom: 0.25rem;
        text-align: left;
        font-size: 0.8125rem;
        color: var(--text-soft);
      }
      .factor {
        display: flex;
        gap: 0.5rem;
        align-items: baseline;
      }
      .factor .swatch {
        align-self: center;
      }
      tbody tr:last-child > * {
        border-bottom: 0;
      }
      tfoot > tr > * {
        border-top: 1px solid var(--line-strong);
        border-bottom: 0;
        font-weight: 600;
      }
      .title {
        display: flex;
        justify-content: space-between;
        align-items: center;
        gap: 1rem;
      }
      .title h3 {
        margin: 0;
        font-size: 0.8125rem;
        font-weight: 400;
        color: var(--text-soft);
      }
      .modules td.chart {
        width: 50%;
        padding-right: 0.25rem;
        vertical-align: middle;
      }
      .modules th[scope='row'] {
        max-width: 16rem;
        overflow-wrap: break-word;
      }
      .bar {
        display: flex;
        height: 1rem;
      }
      .segment {
        flex: none;
        box-shadow: inset -1px 0 0 var(--surface);
        forced-color-adjust: none;
      }
      .segment:last-child {
        border-radius: 0 2px 2px 0;
      }
      .name {
        display: inline-flex;
        align-items: baseline;
        gap: 0.35rem;
      }
      button.toggle {
        display: inline-flex;
        align-items: baseline;
        gap: 0.35rem;
        min-height: 1.5rem;
        margin-left: -0.25rem;
        padding: 0 0.25rem;
        border: 0;
        background: none;
        font-size: inherit;
        text-align: left;
      }
      button.toggle:hover {
        background: var(--surface-raised);
      }
      .arrow {
        flex: none;
        width: 0.45rem;
        height: 0.45rem;
        margin-right: 0.1rem;
        border: solid var(--text-soft);
        border-width: 0 1.5px 1.5px 0;
        transform: rotate(-45deg) translateY(-0.1rem);
      }
      [aria-expanded='true'] .arrow {
        transform: rotate(45deg) translateY(-0.15rem);
      }
      .leaf {
        display: block;
        padding-left: 0.9rem;
      }
      .kind {
        color: var(--text-soft);
        font-size: 0.75rem;
      }
      @media (max-width: 48rem) {
        .kind {
          display: none;
        }
        .modules td.chart {
          width: 45%;
        }
      }
    `,
  ];

  override render(): TemplateResult | typeof nothing {
    const { report } = this;
    if (!report) return nothing;
    return html`
      <section aria-labelledby="where" class=${this.numbers ? 'numbers' : ''}>
        <h2 id="where">Where it goes</h2>
        <p>${peakPlace(report)} ${deathPlace(report) ?? nothing}</p>
        <div class="columns">${this.factors(report)} ${this.modules(report)}</div>
      </section>
    `;
  }

  private factors(report: Report): TemplateResult {
    const { total } = report.peak;
    return html`
      <table>
        <caption>
          By purpose, at the peak
        </caption>
        <thead>
          <tr>
            <th scope="col">Held for</th>
            <th scope="col" class="number">GiB</th>
            <th scope="col" class="number">Share</th>
          </tr>
        </thead>
        <tbody>
          ${totalSegments(report).map(
            ({ key, label, about, bytes }) => html`
              <tr>
                <th scope="row">
                  <span class="factor" title=${about}>
                    <span class="swatch" .style=${styles({ background: fill(key) })}></span>${label}
                  </span>
                </th>
                <td class="number" title=${exact(bytes)}>${gibNumber(bytes, 2)}</td>
                <td class="number soft">${share(bytes, total)}</td>
              </tr>
            `,
          )}
        </tbody>
        <tfoot>
          <tr>
            <th scope="row">Total</th>
            <td class="number" title=${exact(total)}>${gibNumber(total, 2)}</td>
            <td class="number soft">100 %</td>
          </tr>
        </tfoot>
      </table>
    `;
  }

  private modules(report: Report): TemplateResult {
    const rows = moduleRows(report.modules, this.open);
    const largest = Math.max(...rows.map(({ total }) => total));
    return html`
      <div class="modules">
        <div class="title">
          <h3 id="by-module">By module, at the peak: ${gibNumber(report.peak.allocated, 2)} GiB in tensors</h3>
          <button aria-pressed=${this.numbers ? 'true' : 'false'} @click=${() => (this.numbers = !this.numbers)}>
            Numbers
          </button>
        </div>
        <div class="scroll" tabindex=${this.numbers ? '0' : nothing} role="group" aria-labelledby="by-module">
          <table aria-labelledby="by-module">
            <thead>
              <tr>
                <th scope="col">Module</th>
                ${
                  this.numbers
                    ? FACTORS.map(({ label }) => html`<th scope="col" class="number">${label}</th>`)
                    : html`<th scope="col"><span class="hidden">By purpose</span></th>`
                }
                <th scope="col" class="number">${this.numbers ? 'Total, GiB' : 'GiB'}</th>
              </tr>
            </thead>
            <tbody>
              ${repeat(
                rows,
                ({ module }) => module.path,
                (row) => html`
                  <tr>
                    <th scope="row" .style=${styles({ 'padding-left': `${row.depth}rem` })}>${this.name(row)}</th>
                    ${
                      this.numbers
                        ? FACTORS.map(
                            ({ key }) =>
                              html`<td class="number" title=${exact(row.module[key])}>
                                ${row.module[key] === 0 ? '–' : gibNumber(row.module[key], 2)}
                              </td>`,
                          )
                        : html`<td class="chart">${bar(factorSegments(row.module), largest)}</td>`
                    }
                    <td class="number" title=${exact(row.total)}>${gibNumber(row.total, 2)}</td>
                  </tr>
                `,
              )}
            </tbody>
            ${
              this.numbers
                ? html`<tfoot>
                    <tr>
                      <th scope="row">Total</th>
                      ${FACTORS.map(
                        ({ key }) =>
                          html`<td class="number" title=${exact(report.breakdown[key])}>
                            ${gibNumber(report.breakdown[key], 2)}
                          </td>`,
                      )}
                      <td class="number">${gibNumber(sum(report.breakdown), 2)}</td>
                    </tr>
                  </tfoot>`
                : nothing
            }
          </table>
        </div>
      </div>
    `;
  }

  private name({ module, name, open }: Row): TemplateResult {
    const label = html`${breakable(name)} <span class="kind">${module.type}</span>`;
    if (module.children.length === 0) return html`<span class="leaf">${label}</span>`;
    return html`<button
      class="toggle"
      aria-expanded=${open ? 'true' : 'false'}
      @click=${() => {
        this.toggle(module.path);
      }}
    >
      <span class="arrow"></span><span>${label}</span>
    </button>`;
  }

  private toggle(path: string): void {
    const next = new Set(this.open);
    if (!next.delete(path)) next.add(path);
    this.open = next;
  }
}

function share(part: number, whole: number): string {
  const value = percent(part, whole);
  return value > 0 && value < 0.1 ? '< 0.1 %' : `${value.toFixed(1)} %`;
}

customElements.define('oometer-holders', OometerHolders);
