import { css, html, nothing, type TemplateResult } from 'lit';
import { gib, size } from '../format/bytes';
import { shared, verdicts } from '../styles/shared';
import type { Result } from '../wasm/ask';
import type { Helper } from '../wasm/helper';
import type { Host, JobError } from '../wasm/report';
import { Asked } from './asked';
import { copyTable } from './copy-table';

/** What the job needs of the memory of the machine that its GPUs are in. */
export class OometerHost extends Asked<Host> {
  static override styles = [
    shared,
    verdicts,
    css`
      tr.phase th,
      tr.phase td {
        border-top: 1px solid var(--line);
        font-weight: 600;
      }
      tr.holding th {
        padding-left: 1.25rem;
        font-weight: 400;
      }
      .tools {
        margin-top: 0.6rem;
      }
    `,
  ];

  protected override async find(job: Result['job'], helper: Helper): Promise<Host | JobError> {
    const [json = '{}'] = await helper.ask({ ask: 'host', job, variants: [{}] });
    const answer = JSON.parse(json) as { host: Host } | { error: JobError };
    return 'error' in answer ? answer.error : answer.host;
  }

  override render(): TemplateResult | typeof nothing {
    const { result, answer, problem } = this;
    if (!result) return nothing;
    return html`<section aria-labelledby="host" aria-busy=${this.of === result ? 'false' : 'true'}>
      <h2 id="host">Host memory</h2>
      ${
        problem
          ? html`<p class="small">${problem}</p>`
          : answer
            ? this.found(answer)
            : html`<p class="small soft">Adding up …</p>`
      }
    </section>`;
  }

  private found(host: Host): TemplateResult {
    const { memory, processes, needs, high, phase } = host;
    const whose = processes === 1 ? 'The process needs' : `The ${processes} processes on a machine need`;
    const resuming = host.phases.find((other) => other.name === 'resuming');
    return html`<p class="small">
        ${whose} ${gib(needs)}${memory === null ? '' : ` of ${gib(memory)}`} while ${phase}, at most ${gib(high)}.
        ${
          resuming && resuming.needs > needs ? html`To resume from a checkpoint takes ${gib(resuming.needs)}.` : nothing
        }
        ${
          memory === null
            ? html`<span class="soft">Enter the host memory among the settings to have it in the verdict.</span>`
            : nothing
        }
      </p>
      <details>
        <summary>What is in it</summary>
        <div class="scroll" tabindex="0" role="group" aria-labelledby="host">
          <table aria-labelledby="host">
            <thead>
              <tr>
                <th scope="col">While</th>
                <th scope="col" class="number">Memory</th>
                <th scope="col">Of</th>
              </tr>
            </thead>
            <tbody>
              ${host.phases.map((one) => this.phase(one, host))}
            </tbody>
          </table>
        </div>
        <p class="small soft">
          Mapped files are resident, but need no memory: where it is short, Linux gives their pages up.
          ${host.unmodelled.length > 0 ? `Not counted: ${host.unmodelled.join('; ')}.` : nothing}
        </p>
        <div class="tools">${copyTable(() => this.renderRoot.querySelector('table'))}</div>
      </details>`;
  }

  private phase({ name, needs, holdings }: Host['phases'][number], { memory }: Host): TemplateResult {
    const isOver = memory !== null && needs > memory;
    return html`<tr class="phase">
        <th scope="row">${name}</th>
        <td class="number ${isOver ? 'does-not-fit' : ''}">${size(needs)}</td>
        <td>${isOver ? 'more than the machine has' : 'the machine'}</td>
      </tr>
      ${holdings.map(
        (held) =>
          html`<tr class="holding">
            <th scope="row" title=${held.source}>${held.name}</th>
            <td class="number">${size(held.bytes)}</td>
            <td>${held.mapped ? 'mapped' : held.of === 'process' ? 'each process' : 'the machine'}</td>
          </tr>`,
      )}`;
  }
}

customElements.define('oometer-host', OometerHost);
