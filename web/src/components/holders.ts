import { css, html, LitElement, nothing, type TemplateResult } from 'lit';
import { repeat } from 'lit/directives/repeat.js';
import { bar } from '../charts/bar';
import { factorSegments, moduleRows, totalSegments, type Row } from '../charts/stack';
import { exact, gibNumber, percent } from '../format/bytes';
import { deathPlace, peakPlace } from '../format/words';
import { styles } from '../styles/inline';
import { breakable } from './breakable';
import { copyTable } from './copy-table';
import './icicle';
import './layers';
import { segmented, segmentedStyles } from './segmented';
import { term } from './term';
import { fill, shared } from '../styles/shared';
import type { Job } from '../state/job.generated';
import type { PageCore } from '../wasm/core';
import type { Report } from '../wasm/report';

const VIEWS = [
  { value: 'map', label: 'Map', about: 'Modules as wide as what they hold' },
  { value: 'bars', label: 'Bars', about: 'Modules by purpose' },
  { value: 'table', label: 'Table', about: 'Every layer in numbers' },
];

/** Where it goes: what the memory is held for, and by which module. */
export class OometerHolders extends LitElement {
  static override properties = {
    report: { attribute: false },
    core: { attribute: false },
    job: { attribute: false },
    open: { state: true },
    view: { state: true },
  };
  declare report: Report | null;
  /** For the map, which asks the core what the report leaves out. */
  declare core: PageCore | null;
  declare job: Job | null;
  declare private open: ReadonlySet<string>;
  declare private view: string;

  constructor() {
    super();
    this.report = null;
    this.core = null;
    this.job = null;
    this.open = new Set();
    this.view = 'map';
  }

  static override styles = [
    shared,
    segmentedStyles,
    css`
      .columns {
        display: grid;
        grid-template-columns: minmax(15rem, 19rem) minmax(0, 1fr);
        gap: 2rem 2.5rem;
        align-items: start;
      }
      @media (max-width: 64rem) {
        .columns {
          grid-template-columns: minmax(0, 1fr);
        }
      }
      fieldset {
        margin: 0;
        padding: 0;
        border: 0;
      }
      .heading h3 {
        font-weight: 400;
        color: var(--text-soft);
      }
      .purposes oometer-copy,
      .modules oometer-copy {
        margin-top: 0.6rem;
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
      <section aria-labelledby="where">
        <h2 id="where">Where it goes</h2>
        <p>${breakable(peakPlace(report))} ${breakable(deathPlace(report) ?? '')}</p>
        <div class="columns">
          ${this.factors(report)}
          <div class="modules">
            <div class="heading">
              <h3 id="by-module">
                ${term('modules', 'By module')}, at the peak:
                ${term('allocated', `${gibNumber(report.peak.allocated, 2)} GiB`)} in tensors
              </h3>
              <fieldset>
                <legend class="hidden">Show modules as</legend>
                ${segmented({
                  name: 'view',
                  value: this.view,
                  choices: VIEWS,
                  onChange: (value) => {
                    this.view = value;
                  },
                })}
              </fieldset>
            </div>
            ${
              this.view === 'map'
                ? html`<oometer-icicle .report=${report} .core=${this.core} .job=${this.job}></oometer-icicle>`
                : this.view === 'bars'
                  ? this.bars(report)
                  : html`<oometer-layers .report=${report}></oometer-layers>`
            }
            ${this.view === 'map' ? nothing : copyTable(this.table)}
          </div>
        </div>
      </section>
    `;
  }

  private readonly table = (): HTMLTableElement | null | undefined =>
    this.view === 'table'
      ? this.renderRoot.querySelector('oometer-layers')?.shadowRoot?.querySelector('table')
      : this.renderRoot.querySelector<HTMLTableElement>('.modules table');

  private factors(report: Report): TemplateResult {
    const { total } = report.peak;
    return html`
      <div class="purposes">
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
                    <span class="factor">
                      <span class="swatch" .style=${styles({ background: fill(key) })}></span>${term(key, label, about)}
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
              <th scope="row">${term('total', 'Total')}</th>
              <td class="number" title=${exact(total)}>${gibNumber(total, 2)}</td>
              <td class="number soft">100 %</td>
            </tr>
          </tfoot>
        </table>
        ${copyTable(() => this.renderRoot.querySelector<HTMLTableElement>('.purposes table'))}
      </div>
    `;
  }

  private bars(report: Report): TemplateResult {
    const rows = moduleRows(report.modules, this.open);
    const largest = Math.max(...rows.map(({ total }) => total));
    return html`
      <div class="scroll">
        <table aria-labelledby="by-module">
          <thead>
            <tr>
              <th scope="col">Module</th>
              <th scope="col"><span class="hidden">By purpose</span></th>
              <th scope="col" class="number">GiB</th>
            </tr>
          </thead>
          <tbody>
            ${repeat(
              rows,
              ({ module }) => module.path,
              (row) => html`
                <tr>
                  <th scope="row" .style=${styles({ 'padding-left': `${row.depth}rem` })}>${this.name(row)}</th>
                  <td class="chart">${bar(factorSegments(row.module), largest)}</td>
                  <td class="number" title=${exact(row.total)}>${gibNumber(row.total, 2)}</td>
                </tr>
              `,
            )}
          </tbody>
        </table>
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
