import { css, html, LitElement, nothing, type TemplateResult } from 'lit';
import { exact, size } from '../format/bytes';
import { shape } from '../format/words';
import { breakable } from './breakable';
import { copyTable } from './copy-table';
import { shared } from '../styles/shared';
import type { LargeTensor, Report } from '../wasm/report';

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
      td.module {
        min-width: 12rem;
      }
      .shape {
        white-space: nowrap;
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
          <table aria-labelledby="tensors">
            <thead>
              <tr>
                <th scope="col" class="number">Size</th>
                <th scope="col">Shape</th>
                <th scope="col">Type</th>
                <th scope="col">Module</th>
                <th scope="col">What it is</th>
              </tr>
            </thead>
            <tbody>
              ${shown.map((tensor) => row(tensor))}
            </tbody>
          </table>
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

function row(tensor: LargeTensor): TemplateResult {
  return html`
    <tr>
      <td class="number" title=${exact(tensor.bytes)}>${size(tensor.bytes)}</td>
      <td class="shape">${shape(tensor.shape)}</td>
      <td>${tensor.dtype}</td>
      <td class="module"><code>${tensor.module === '' ? '–' : breakable(tensor.module)}</code></td>
      <td>${tensor.role}</td>
    </tr>
  `;
}

customElements.define('oometer-tensors', OometerTensors);
