import { css, html, LitElement, nothing, svg, type TemplateResult } from 'lit';
import { HEIGHT, timeline, WIDTH, type Timeline } from '../charts/timeline';
import { exact, gib, gibNumber, percent } from '../format/bytes';
import { phaseName } from '../format/words';
import { styles } from '../styles/inline';
import { shared } from '../styles/shared';
import type { Phase, Report } from '../wasm/report';

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
      figure {
        position: relative;
        margin: 0 0 1.25rem;
        padding-top: 1.5rem;
      }
      .plot {
        position: relative;
        height: 11rem;
        border-bottom: 1px solid var(--line-strong);
      }
      .plot svg {
        position: absolute;
        inset: 0;
        width: 100%;
        height: 100%;
        forced-color-adjust: none;
      }
      .outline {
        fill: none;
        stroke: var(--line-strong);
        stroke-width: 1.5;
        vector-effect: non-scaling-stroke;
      }
      .span {
        position: absolute;
        top: 0;
        bottom: 0;
        overflow: hidden;
        container-type: inline-size;
        border-left: 1px dashed var(--line-strong);
        font-size: 0.75rem;
        color: var(--text-soft);
      }
      .span:first-child {
        border-left: 0;
      }
      .span span {
        display: block;
        padding-left: 0.3rem;
        white-space: nowrap;
      }
      @container (max-width: 6rem) {
        .span span {
          visibility: hidden;
        }
      }
      .pin {
        position: absolute;
        top: 1.5rem;
        height: 11rem;
        border-left: 2px solid var(--text);
        transform: translateX(-1px);
      }
      .pin span {
        position: absolute;
        left: 0;
        bottom: -1.45rem;
        transform: translateX(-50%);
        font-size: 0.75rem;
        font-weight: 600;
        white-space: nowrap;
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
    const drawn = timeline(report);
    const whole = Math.max(...report.phases.map(({ reserved }) => reserved));
    return html`
      <section aria-labelledby="when">
        <h2 id="when">When</h2>
        <p class="small soft">
          Two steps, event by event: the first differs from later ones, because optimizer states are born in it.
          Outlined is what PyTorch has reserved${drawn ? html`; the full height is ${gib(drawn.top)}` : nothing}.
        </p>
        ${this.drawing(drawn)}
        <table>
          <thead>
            <tr>
              <th scope="col">Phase</th>
              <th scope="col"><span class="hidden">Bar</span></th>
              <th scope="col" class="number">Allocated, GiB</th>
              <th scope="col" class="number">Reserved, GiB</th>
            </tr>
          </thead>
          <tbody>
            ${report.phases.map((phase) => this.row(phase, report, whole))}
          </tbody>
        </table>
      </section>
    `;
  }

  private drawing(drawn: Timeline | null): TemplateResult | typeof nothing {
    if (!drawn) return nothing;
    const left = (percent: number): string => `${percent.toFixed(2)}%`;
    return html`
      <figure
        role="img"
        aria-label="What tensors hold over the run, by purpose; the table below has each phase’s highest point"
      >
        ${drawn.spans.map(
          ({ phase, from, to }) =>
            html`<div class="span" .style=${styles({ left: left(from), width: left(to - from) })}>
              <span title=${phaseName(phase.name, phase.iteration)}>${phaseName(phase.name, phase.iteration)}</span>
            </div>`,
        )}
        <div class="plot">
          <svg viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" aria-hidden="true">
            ${drawn.areas.map(({ key, path }) => svg`<path d=${path} fill="var(--${key})"></path>`)}
            <path class="outline" d=${drawn.reserved}></path>
          </svg>
        </div>
        <div class="pin" .style=${styles({ left: left(drawn.peak) })}><span>peak</span></div>
      </figure>
    `;
  }

  private row(phase: Phase, report: Report, whole: number): TemplateResult {
    const { peak_at } = report;
    const isPeak = phase.name === peak_at.phase && (phase.name === 'init' || phase.iteration === peak_at.iteration);
    return html`
      <tr class=${isPeak ? 'peak' : ''}>
        <th scope="row">
          ${phaseName(phase.name, phase.iteration)} ${isPeak ? html`<span class="mark">peak</span>` : nothing}
        </th>
        <td class="chart">
          <div class="track" aria-hidden="true">
            <div class="reserved" .style=${styles({ width: `${percent(phase.reserved, whole).toFixed(2)}%` })}></div>
            <div class="allocated" .style=${styles({ width: `${percent(phase.allocated, whole).toFixed(2)}%` })}></div>
          </div>
        </td>
        <td class="number" title=${exact(phase.allocated)}>${gibNumber(phase.allocated, 2)}</td>
        <td class="number" title=${exact(phase.reserved)}>${gibNumber(phase.reserved, 2)}</td>
      </tr>
    `;
  }
}

customElements.define('oometer-phases', OometerPhases);
