import { css, html, LitElement, nothing, type TemplateResult } from 'lit';
import { copyTable } from './copy-table';
import { shared } from '../styles/shared';
import { tensorTable } from './tensor-table';
import type { Report } from '../wasm/report';

const FIRST = 10;

/** The largest tensors alive at the peak. */
export class OometerTensors extends LitElement {
  static override properties = { report: { attribute: false }, all: { state: true } };
  declare report: Report | null;
  declare private all: boolean;

  constructor() {
    super();
    this.report = null;
    this.all = false;
  }

  static override styles = [
    shared,
    css`
      .tools {
        display: flex;
        gap: 0.5rem;
        margin-top: 0.75rem;
      }
    `,
  ];

  override render(): TemplateResult | typeof nothing {
    const tensors = this.report?.largest ?? [];
    if (tensors.length === 0) return nothing;
    const shown = this.all ? tensors : tensors.slice(0, FIRST);
    return html`
      <section aria-labelledby="tensors">
        <h2 id="tensors">Largest tensors at the peak</h2>
        <div class="scroll" tabindex="0" role="group" aria-labelledby="tensors">
          ${tensorTable(shown, 'Largest tensors at the peak')}
        </div>
        <div class="tools">
          ${
            tensors.length > FIRST
              ? html`<button @click=${() => (this.all = !this.all)}>
                  ${this.all ? `Show the first ${FIRST}` : `Show all ${tensors.length}`}
                </button>`
              : nothing
          }
          ${copyTable(() => this.renderRoot.querySelector('table'))}
        </div>
      </section>
    `;
  }
}

customElements.define('oometer-tensors', OometerTensors);
