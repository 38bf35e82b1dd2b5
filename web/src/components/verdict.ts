import { css, html, LitElement, nothing, svg, type TemplateResult } from 'lit';
import { bar } from '../charts/bar';
import { limitScale, totalSegments } from '../charts/stack';
import { exact, gib } from '../format/bytes';
import { verdict } from '../format/words';
import { styles } from '../styles/inline';
import { shared } from '../styles/shared';
import { term } from './term';
import type { Report, Verdict } from '../wasm/report';

const TICK = svg`<path d="M5.5 12.5l4.200 4.200 8.800-9.400" />`;
const ALMOST = svg`<path d="M12 6.5v7.200M12 17.200v.3" />`;
const CROSS = svg`<path d="M7.5 7.5l9 9M16.5 7.5l-9 9" />`;
const ICONS: Record<Verdict, TemplateResult> = { fits: TICK, tight: ALMOST, 'does-not-fit': CROSS };

/** One sentence that answers the question, and the bar against the GPU's limit. */
export class OometerVerdict extends LitElement {
  static override properties = {
    report: { attribute: false },
    gpu: {},
    count: { type: Number },
    stale: { type: Boolean, reflect: true },
    plain: { type: Boolean },
  };
  declare report: Report | null;
  declare gpu: string;
  declare count: number;
  /** Whether the answer is to an earlier setup, because the present one has none. */
  declare stale: boolean;
  /** Without the bar. */
  declare plain: boolean;

  constructor() {
    super();
    this.report = null;
    this.gpu = '';
    this.count = 1;
    this.stale = false;
    this.plain = false;
  }

  static override styles = [
    shared,
    css`
      .verdict {
        display: grid;
        grid-template-columns: auto 1fr auto;
        gap: 0 0.75rem;
        align-items: start;
      }
      .icon {
        grid-row: 1 / 3;
        width: 2rem;
        height: 2rem;
        margin-top: 0.1rem;
        padding: 3px;
        border-radius: 50%;
        background: var(--status);
        fill: none;
        stroke: var(--surface);
        stroke-width: 2.6;
        stroke-linecap: round;
        stroke-linejoin: round;
        forced-color-adjust: none;
      }
      .fits {
        --status: var(--fits);
      }
      .tight {
        --status: var(--tight);
      }
      .does-not-fit {
        --status: var(--over);
      }
      h2 {
        margin: 0;
        font-size: clamp(1.125rem, 0.8rem + 1.5vw, 1.75rem);
        line-height: 1.2;
        letter-spacing: -0.015em;
        color: var(--status);
      }
      .detail {
        grid-column: 2 / -1;
        margin: 0.15rem 0 0;
        color: var(--text);
      }
      .track {
        position: relative;
        margin-top: 0.9rem;
        padding-bottom: 1.75rem;
      }
      .room {
        position: absolute;
        inset: 0 auto auto 0;
        height: 1.75rem;
        border-radius: 4px;
        background: var(--surface-sunken);
      }
      .bar {
        position: relative;
        display: flex;
        height: 1.75rem;
        border-radius: 4px;
        overflow: hidden;
      }
      .segment {
        flex: none;
        min-width: 2px;
        box-shadow: inset -1px 0 0 var(--surface);
        forced-color-adjust: none;
      }
      .limit {
        position: absolute;
        top: -4px;
        height: calc(1.75rem + 8px);
        border-left: 2px solid var(--text);
        transform: translateX(-1px);
      }
      .limit.end {
        transform: translateX(-2px);
      }
      .whisker {
        position: absolute;
        top: calc(1.75rem + 3px);
        height: 6px;
        min-width: 2px;
        border: solid var(--text-soft);
        border-width: 0 1.5px 1.5px;
      }
      .scale {
        position: absolute;
        top: calc(1.75rem + 0.6rem);
        padding-left: 0.25rem;
        font-size: 0.75rem;
        color: var(--text-soft);
        white-space: nowrap;
      }
      .scale.before {
        padding: 0 0.25rem 0 0;
        transform: translateX(-100%);
      }
      :host([stale]) .verdict {
        --status: var(--text-soft);
      }
      :host([stale]) .bar {
        opacity: 0.5;
      }
      :host([stale]) h2 {
        font-size: 1.05rem;
      }
      .last {
        font-weight: 400;
      }
      @media (max-width: 48rem) {
        .icon {
          width: 1.5rem;
          height: 1.5rem;
        }
        .detail {
          font-size: 0.875rem;
          line-height: 1.35;
        }
        .track {
          margin-top: 0.6rem;
        }
        .bar,
        .room {
          height: 1.1rem;
        }
        .limit {
          height: calc(1.1rem + 8px);
        }
        .whisker {
          top: calc(1.1rem + 3px);
        }
        .scale {
          top: calc(1.1rem + 0.6rem);
        }
      }
    `,
  ];

  override render(): TemplateResult | typeof nothing {
    const { report } = this;
    if (!report) return nothing;
    const words = verdict(report, this.gpu, this.count);
    return html`
      <div class="verdict ${report.verdict}" id="verdict">
        <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">${ICONS[report.verdict]}</svg>
        <h2>
          ${this.stale ? html`<span class="last">Last answer:</span> ` : nothing}${words.headline}<span class="hidden"
            >:</span
          >
        </h2>
        <slot></slot>
        <p class="detail">
          ${words.before}${term('total', words.amount, `${exact(report.peak.total)}: how this is calculated`)} of
          ${term('limit', words.limit, `${exact(report.gpu.usable_bytes)}: where this comes from`)} ${words.place}
        </p>
      </div>
      ${this.plain ? nothing : this.bar(report)}
    `;
  }

  private bar(report: Report): TemplateResult {
    const scale = limitScale(report);
    const limit = `${scale.limit.toFixed(3)}%`;
    return html`
      <div class="track" role="img" aria-label=${this.summary(report)}>
        <div class="room" .style=${styles({ width: limit })}></div>
        ${bar(totalSegments(report), scale.whole)}
        <div class="limit ${scale.limit > 99.9 ? 'end' : ''}" .style=${styles({ left: limit })}></div>
        <div
          class="whisker"
          title="From ${gib(report.interval.low)} to ${gib(report.interval.high)}: ${report.interval.basis}"
          .style=${styles({ left: `${scale.low.toFixed(3)}%`, width: `${(scale.high - scale.low).toFixed(3)}%` })}
        ></div>
        <div class="scale ${scale.limit > 60 ? 'before' : ''}" .style=${styles({ left: limit })}>
          limit ${gib(report.gpu.usable_bytes)}
        </div>
      </div>
    `;
  }

  private summary(report: Report): string {
    const parts = totalSegments(report).map(({ label, bytes }) => `${label.toLowerCase()} ${gib(bytes)}`);
    return `Memory at the peak against the limit of ${gib(report.gpu.usable_bytes)}: ${parts.join(', ')}.`;
  }
}

customElements.define('oometer-verdict', OometerVerdict);
