import { html, LitElement, nothing, type TemplateResult } from 'lit';
import { describeRun, unpackRun } from '../state/runfile';
import { shared } from '../styles/shared';
import type { Result } from '../wasm/ask';
import type { PageCore } from '../wasm/core';
import type { Resolved } from '../wasm/report';
import { copyTable } from './copy-table';

/** How a pasted ds_config or accelerate configuration was read: each key, its value, and whether memory depends on it. */
export class OometerConfiguration extends LitElement {
  static override properties = { result: { attribute: false }, core: { attribute: false } };
  declare result: Result | null;
  declare core: PageCore | null;
  /** What was last asked of the core, and its answer. */
  private asked: { of: Result; rows: readonly Resolved[] } | null = null;

  constructor() {
    super();
    this.result = null;
    this.core = null;
  }

  static override styles = [shared];

  /** None until the whole core is there. */
  private rows(result: Result): readonly Resolved[] {
    if (this.asked?.of === result) return this.asked.rows;
    const rows = this.core?.resolve(result.job) ?? null;
    if (rows) this.asked = { of: result, rows };
    else
      this.core?.loadWhole().then(
        () => {
          this.requestUpdate();
        },
        () => undefined, // the name of what is run stays
      );
    return rows ?? [];
  }

  override render(): TemplateResult | typeof nothing {
    const { result } = this;
    const run = result && unpackRun(result.setup.runfile);
    if (!result || !run) return nothing;
    const rows = this.rows(result);
    return html`<section aria-labelledby="configuration">
      <h2 id="configuration">Your ${run.kind === 'ds_config' ? 'DeepSpeed' : 'accelerate'} configuration</h2>
      <p>Taken as <strong>${describeRun(run)}</strong>.</p>
      ${rows.length === 0 ? nothing : table(rows)}
      ${rows.length === 0 ? nothing : copyTable(() => this.renderRoot.querySelector('table'))}
    </section>`;
  }
}

const ORIGINS = { file: 'your file', auto: 'auto', default: 'default' };

function table(rows: readonly Resolved[]): TemplateResult {
  return html`<div class="scroll" tabindex="0" role="group" aria-labelledby="configuration">
    <table aria-labelledby="configuration">
      <thead>
        <tr>
          <th scope="col">Key</th>
          <th scope="col">Value</th>
          <th scope="col">From</th>
          <th scope="col">Changes memory</th>
        </tr>
      </thead>
      <tbody>
        ${rows.map(
          ({ pointer, value, origin, from, matters }) =>
            html`<tr>
              <th scope="row"><code>${nameOf(pointer)}</code></th>
              <td>${typeof value === 'string' ? value : JSON.stringify(value)}</td>
              <td>${ORIGINS[origin]}${origin === 'auto' && from ? `: ${from}` : ''}</td>
              <td>${matters === true ? 'yes' : matters === false ? 'no' : matters}</td>
            </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

/** "/parallel/ds_config/zero_optimization/stage" → "zero_optimization.stage" */
const nameOf = (pointer: string): string =>
  pointer
    .replace(/^\/parallel\/(ds_config|accelerate_config)\//, '')
    .replace(/^\//, '')
    .replaceAll('/', '.');

customElements.define('oometer-configuration', OometerConfiguration);
