import { css, html, LitElement, nothing, type TemplateResult } from 'lit';
import { count, exact, gib } from '../format/bytes';
import { shared } from '../styles/shared';
import { term } from './term';
import type { Report } from '../wasm/report';

/** How accurate the answer is: its interval, its assumptions, what is not modelled. */
export class OometerTrust extends LitElement {
  static override properties = { report: { attribute: false }, milliseconds: { type: Number } };
  declare report: Report | null;
  declare milliseconds: number;

  constructor() {
    super();
    this.report = null;
    this.milliseconds = 0;
  }

  static override styles = [
    shared,
    css`
      .columns {
        display: grid;
        grid-template-columns: repeat(auto-fit, minmax(min(20rem, 100%), 1fr));
        gap: 1rem 2.5rem;
      }
      h3 {
        margin: 0 0 0.35rem;
        font-size: 0.875rem;
      }
      ul {
        margin: 0;
        padding-left: 1.1rem;
        font-size: 0.875rem;
      }
      li {
        margin-bottom: 0.25rem;
        overflow-wrap: anywhere;
      }
    `,
  ];

  override render(): TemplateResult | typeof nothing {
    const { report } = this;
    if (!report) return nothing;
    const { interval, model } = report;
    return html`
      <section aria-labelledby="trust">
        <h2 id="trust">Accuracy and assumptions</h2>
        <p>
          The total lies between ${term('interval', gib(interval.low), `${exact(interval.low)}: why`)} and
          ${term('interval', gib(interval.high), `${exact(interval.high)}: why`)}${interval.basis ? `: ${interval.basis}` : ''}.
        </p>
        <div class="columns">
          ${list('Notes', report.notes)} ${list('Assumptions', report.assumptions)}
          ${list('Not modelled', report.unmodelled)}
        </div>
        <p class="small soft">
          <span title="${model.parameters} parameters">${count(model.parameters)} parameters</span>,
          <span title="${model.trainable} parameters">${count(model.trainable)} trained</span>.
          ${report.events.toLocaleString('en-US')} allocator events, replayed in ${this.milliseconds.toFixed(1)} ms in
          this tab. oometer ${report.version}.
        </p>
      </section>
    `;
  }
}

function list(title: string, items: readonly string[]): TemplateResult | typeof nothing {
  if (items.length === 0) return nothing;
  return html`<div>
    <h3>${title}</h3>
    <ul>
      ${items.map((item) => html`<li>${item}</li>`)}
    </ul>
  </div>`;
}

customElements.define('oometer-trust', OometerTrust);
