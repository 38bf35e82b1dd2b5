import { css, html, nothing, type TemplateResult } from 'lit';
import { amount, cost } from '../format/amount';
import { percent } from '../format/bytes';
import { seconds } from '../format/seconds';
import { infers } from '../state/fields';
import { styles } from '../styles/inline';
import { figures, shared } from '../styles/shared';
import type { Result } from '../wasm/ask';
import type { Helper } from '../wasm/helper';
import type { JobError, Utilization } from '../wasm/report';
import { readTime, type StepTime, type Timed } from '../wasm/time';
import { Asked } from './asked';
import { copyTable } from './copy-table';

/** Kinds of kernels (work_kind_name of core/trace), and what else takes time. */
const KINDS: Readonly<Record<string, string>> = {
  gemm: 'Matrix products',
  attention: 'Attention',
  convolution: 'Convolutions',
  elementwise: 'Elementwise',
  reduction: 'Norms, softmax and sums',
  copy: 'Copies',
  index: 'Lookups',
  sort: 'Sorting',
  optimizer: 'Optimizer',
  communication: 'Waiting for other GPUs',
  idle: 'Waiting for the host',
};

/** What NVIDIA's tools show, by their names, and what it means. */
const BUSY: readonly [keyof Utilization, string, string, string][] = [
  ['gract', 'GRACT, GPU-Util', 'GPU', 'Some kernel runs, however small: what nvidia-smi shows.'],
  ['smact', 'SMACT', 'Multiprocessors', 'They have work, on average of all.'],
  ['smocc', 'SMOCC', 'Warps', 'Threads in flight, of the most that fit. Matrix products need few.'],
  ['tenso', 'TENSO', 'Tensor cores', 'They multiply, at the data sheet’s speed.'],
  ['drama', 'DRAMA', 'Memory', 'It sends or receives, at the data sheet’s bandwidth.'],
];

/** How long a step takes, from the kernels that the run launches. */
export class OometerTime extends Asked<Timed> {
  static override styles = [
    shared,
    figures,
    css`
      td.chart {
        width: 50%;
        vertical-align: middle;
      }
      .share {
        height: 0.75rem;
        border-radius: 0 2px 2px 0;
        background: var(--accent);
        forced-color-adjust: none;
      }
      .range {
        color: var(--text-soft);
        font-size: 0.8125rem;
        font-weight: 400;
      }
      .tools {
        margin: 0.6rem 0 1rem;
      }
    `,
  ];

  protected override async find(job: Result['job'], helper: Helper): Promise<Timed | JobError> {
    const [json = '{}'] = await helper.ask({ ask: 'time', job, variants: [{}] });
    return readTime(json);
  }

  override render(): TemplateResult | typeof nothing {
    const { result, answer: timed, problem } = this;
    if (!result) return nothing;
    const what = infers(result.setup) ? 'generation' : 'step';
    return html`<section aria-labelledby="time" aria-busy=${this.of === result ? 'false' : 'true'}>
      <h2 id="time">How long a ${what} takes</h2>
      ${
        problem
          ? html`<p class="small">${problem}</p>`
          : timed
            ? timed.time
              ? this.found(timed.time, what, timed.notes)
              : timed.notes.map(note)
            : html`<p class="small soft">Timing …</p>`
      }
    </section>`;
  }

  private found(time: StepTime, what: string, notes: readonly string[]): TemplateResult {
    const share = (value: number): string => `${Math.round(100 * value)} %`;
    const kinds = Object.entries(time.by_kind).sort(([, a], [, b]) => b - a);
    const [[, most] = ['', 0]] = kinds;
    return html`<dl>
        <div>
          <dt>One ${what}</dt>
          <dd>${seconds(time.step)} <span class="range">${seconds(time.low)} to ${seconds(time.high)}</span></dd>
        </div>
        <div>
          <dt>Tokens a second, all GPUs</dt>
          <dd>${Math.round(time.tokens_per_second).toLocaleString('en-US')}</dd>
        </div>
        ${
          time.per_token === undefined
            ? nothing
            : html`<div>
                  <dt>Until the first token</dt>
                  <dd>${seconds(time.prefill ?? 0)}</dd>
                </div>
                <div>
                  <dt>Each further token</dt>
                  <dd>${seconds(time.per_token)}</dd>
                </div>`
        }
        ${this.costs(time, what)}
        <div>
          <dt><abbr title="Model FLOPs utilization: of the GPU’s data sheet">MFU</abbr></dt>
          <dd>${share(time.mfu)}</dd>
        </div>
      </dl>
      <p class="small soft">Without loading data, evaluation and saving. The range is from ${time.basis}.</p>
      ${notes.map(note)}
      <div class="scroll" tabindex="0" role="group" aria-labelledby="time">
        <table aria-labelledby="time">
          <thead>
            <tr>
              <th scope="col">What the GPU does</th>
              <th scope="col" class="number">Time</th>
              <td class="chart"></td>
            </tr>
          </thead>
          <tbody>
            ${kinds.map(
              ([kind, value]) =>
                html`<tr>
                  <th scope="row">${KINDS[kind] ?? kind}</th>
                  <td class="number">${seconds(value)}</td>
                  <td class="chart" data-copy="">
                    <div class="share" .style=${styles({ width: `${percent(value, most).toFixed(2)}%` })}></div>
                  </td>
                </tr>`,
            )}
          </tbody>
        </table>
      </div>
      <div class="tools">${copyTable(() => this.renderRoot.querySelector('table'))}</div>
      <h3 id="busy">How busy the GPU is</h3>
      <table aria-labelledby="busy">
        <tbody>
          ${BUSY.map(
            ([key, name, label, means]) =>
              html`<tr>
                <th scope="row"><abbr title=${name}>${label}</abbr></th>
                <td class="number">${share(time.utilization[key])}</td>
                <td class="chart">
                  <div class="share" .style=${styles({ width: `${(100 * time.utilization[key]).toFixed(2)}%` })}></div>
                  <div class="small soft">${means}</div>
                </td>
              </tr>`,
          )}
        </tbody>
      </table>`;
  }

  /** Of all GPUs, where the form says what one draws or costs, or how far the training goes. */
  private costs(time: StepTime, what: string): TemplateResult | typeof nothing {
    const { per_million_tokens: million, training, step, low, high } = time;
    const days = (value: number): string => amount((value / step) * (training?.days ?? 0));
    return html`${
      million === undefined
        ? nothing
        : html`<div>
              <dt>One ${what} costs</dt>
              <dd>${cost(time)}</dd>
            </div>
            <div>
              <dt>A million tokens cost</dt>
              <dd>${cost(million)}</dd>
            </div>`
    }${
      training === undefined
        ? nothing
        : html`<div>
            <dt>${training.tokens.toLocaleString('en-US')} tokens</dt>
            <dd>
              ${days(step)} days <span class="range">${days(low)} to ${days(high)}</span>
              ${million === undefined ? nothing : html`<br />${cost(training)}`}
            </dd>
          </div>`
    }`;
  }
}

/** "Time: kernels ..." below a heading that says so. */
function note(text: string): TemplateResult {
  const words = text.replace(/^Time: /, '');
  return html`<p class="small soft">${words.charAt(0).toUpperCase()}${words.slice(1)}</p>`;
}

customElements.define('oometer-time', OometerTime);
