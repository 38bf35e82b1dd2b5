import { html, nothing, type TemplateResult } from 'lit';
import { describeRun, unpackRun } from '../state/runfile';
import type { Result } from '../wasm/ask';

const ORIGINS = { file: 'your file', auto: '“auto” in your file', default: 'default' };

/** How a pasted ds_config or accelerate configuration was read: each key, its value, and whether memory depends on it. */
export function configuration({ setup, report }: Result): TemplateResult | typeof nothing {
  const run = unpackRun(setup.runfile);
  if (!run) return nothing;
  const keys = report.configuration ?? [];
  return html`<section aria-labelledby="configuration">
    <h2 id="configuration">Your ${run.kind === 'ds_config' ? 'DeepSpeed' : 'accelerate'} configuration</h2>
    <p>Taken as <strong>${describeRun(run)}</strong>.</p>
    ${
      keys.length === 0
        ? nothing
        : html`<div class="scroll" tabindex="0" role="group" aria-labelledby="configuration">
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
                ${keys.map(
                  ({ key, value, origin, matters }) =>
                    html`<tr>
                      <th scope="row"><code>${key}</code></th>
                      <td>${typeof value === 'string' ? value : JSON.stringify(value)}</td>
                      <td>${ORIGINS[origin]}</td>
                      <td>${matters ? 'yes' : 'no'}</td>
                    </tr>`,
                )}
              </tbody>
            </table>
          </div>`
    }
  </section>`;
}
