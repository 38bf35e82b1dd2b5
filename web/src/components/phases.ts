import { css, html, LitElement, nothing, type TemplateResult } from 'lit';
import { timelineTable } from '../charts/timeline';
import { exact, gibNumber, percent } from '../format/bytes';
import { tabbed } from '../format/table';
import { isByStep, rowsOf, stepsOf, type Row } from '../format/steps';
import { copyTable } from './copy-table';
import { styles } from '../styles/inline';
import { shared } from '../styles/shared';
import { term } from './term';
import './timeline';
import type { Report } from '../wasm/report';

/** When: the run over its allocator events, and the highest point of each phase. */
export class OometerPhases extends LitElement {
  static override properties = { report: { attribute: false } };
  declare report: Report | null;

  constructor() {
    super();
    this.report = null;
  }

  static override styles = [
    shared,
    css`
      oometer-timeline {
        margin-bottom: 1.25rem;
      }
      .tools {
        display: flex;
        gap: 0.5rem;
        margin-top: 0.6rem;
      }
      td.chart {
        width: 60%;
        vertical-align: middle;
      }
      .track {
        position: relative;
        height: 0.75rem;
      }
      .reserved,
      .allocated {
        position: absolute;
        inset: 0 auto 0 0;
        border-radius: 0 2px 2px 0;
        forced-color-adjust: none;
      }
      .reserved {
        border: 1px solid var(--line-strong);
        border-left: 0;
      }
      .allocated {
        background: var(--line-strong);
      }
      .peak .allocated {
        background: var(--accent);
      }
      th[scope='row'] {
        white-space: nowrap;
      }
      .mark {
        padding: 0.05rem 0.4rem;
        border-radius: 999px;
        background: var(--accent);
        color: var(--accent-text);
        font-size: 0.6875rem;
        font-weight: 600;
        white-space: nowrap;
      }
      @media (max-width: 40rem) {
        thead th,
        th[scope='row'] {
          white-space: normal;
        }
        td.chart {
          width: 34%;
        }
      }
    `,
  ];

  override render(): TemplateResult | typeof nothing {
    const { report } = this;
    if (!report || report.phases.length === 0) return nothing;
    const rows = rowsOf(report);
    const whole = Math.max(...rows.map(({ reserved }) => reserved));
    return html`
      <section aria-labelledby="when">
        <h2 id="when">When</h2>
        <p class="small soft">${stepsOf(report)} The line above the areas is what PyTorch has reserved.</p>
        <slot></slot>
        <oometer-timeline .report=${report}></oometer-timeline>
        <table>
          <thead>
            <tr>
              <th scope="col">${isByStep(report) ? 'Step' : 'Phase'}</th>
              <th scope="col"><span class="hidden">Bar</span></th>
              <th scope="col" class="number">${term('allocated', 'Allocated')}, GiB</th>
              <th scope="col" class="number">${term('reserved', 'Reserved')}, GiB</th>
            </tr>
          </thead>
          <tbody>
            ${rows.map((row) => this.row(row, whole))}
          </tbody>
        </table>
        <div class="tools">
          ${copyTable(() => this.renderRoot.querySelector('table'))}
          <oometer-copy label="Copy timeline" .text=${() => tabbed(timelineTable(report))}></oometer-copy>
        </div>
      </section>
    `;
  }

  private row({ name, isPeak, allocated, reserved }: Row, whole: number): TemplateResult {
    return html`
      <tr class=${isPeak ? 'peak' : ''}>
        <th scope="row">${name} ${isPeak ? html`<span class="mark">peak</span>` : nothing}</th>
        <td class="chart">
          <div class="track" aria-hidden="true">
            <div class="reserved" .style=${styles({ width: `${percent(reserved, whole).toFixed(2)}%` })}></div>
            <div class="allocated" .style=${styles({ width: `${percent(allocated, whole).toFixed(2)}%` })}></div>
          </div>
        </td>
        <td class="number" title=${exact(allocated)}>${gibNumber(allocated, 2)}</td>
        <td class="number" title=${exact(reserved)}>${gibNumber(reserved, 2)}</td>
      </tr>
    `;
  }
}

customElements.define('oometer-phases', OometerPhases);
