import { css, html, nothing, type TemplateResult } from 'lit';
import { area, HEIGHT, spans } from '../charts/lanes';
import { amount, cost } from '../format/amount';
import { percent } from '../format/bytes';
import { seconds } from '../format/seconds';
import { infers } from '../state/fields';
import { styles } from '../styles/inline';
import { figures, shared } from '../styles/shared';
import type { Result } from '../wasm/ask';
import type { Helper } from '../wasm/helper';
import type { JobError } from '../wasm/report';
import { readTime, type Lane, type StepTime, type Timed } from '../wasm/time';
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

interface Busy {
  /** NVIDIA's tools', where they have one. */
  name: string;
  label: string;
  means: string;
  of: (lane: Lane, time: StepTime) => number;
  average: (time: StepTime) => number;
}
const waiting = (kind: string) => (time: StepTime) => (time.by_kind[kind] ?? 0) / time.step;

/** What keeps the GPU busy, or from it. */
const BUSY: readonly Busy[] = [
  {
    name: 'GRACT; nvidia-smi’s GPU-Util',
    label: 'GPU',
    means: 'Some kernel runs, however small.',
    // Its engine is active a little longer than its kernels.
    of: ({ idle }, time) => 1 - (idle === 0 ? 0 : (idle * (1 - time.utilization.gract)) / waiting('idle')(time)),
    average: ({ utilization }) => utilization.gract,
  },
  {
    name: 'SMACT',
    label: 'Multiprocessors',
    means: 'They have work, on average of all.',
    of: ({ smact }) => smact,
    average: ({ utilization }) => utilization.smact,
  },
  {
    name: 'TENSO',
    label: 'Tensor cores',
    means: 'They multiply: of the data sheet’s speed.',
    of: ({ tenso }) => tenso,
    average: ({ utilization }) => utilization.tenso,
  },
  {
    name: 'DRAMA',
    label: 'Memory',
    means: 'It sends or receives: of the data sheet’s bandwidth.',
    of: ({ drama }) => drama,
    average: ({ utilization }) => utilization.drama,
  },
  {
    name: '',
    label: 'Other GPUs',
    means: 'It waits for their messages.',
    of: ({ communication }) => communication,
    average: waiting('communication'),
  },
  {
    name: '',
    label: 'Host',
    means: 'It waits for the next kernel to be asked for.',
    of: ({ idle }) => idle,
    average: waiting('idle'),
  },
];

/** A phase that takes less of the width, in percent, has no room for its name. */
const LEAST_SPAN = 14;

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
      svg {
        display: block;
        width: 100%;
        height: 2rem;
        border-bottom: 1px solid var(--line-strong);
        fill: var(--accent);
        forced-color-adjust: none;
      }
      .phases {
        position: relative;
        height: 1.2rem;
        color: var(--text-soft);
        font-size: 0.75rem;
        font-weight: 400;
      }
      .phases span {
        position: absolute;
        padding-left: 0.25rem;
        overflow: hidden;
        border-left: 1px solid var(--line-strong);
        text-overflow: ellipsis;
        white-space: nowrap;
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
              ? this.found(timed.time, what, timed.notes, timed.lanes ?? [])
              : timed.notes.map(note)
            : html`<p class="small soft">Timing …</p>`
      }
    </section>`;
  }

  private found(time: StepTime, what: string, notes: readonly string[], lanes: readonly Lane[]): TemplateResult {
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
      ${lanes.length > 0 ? busy(time, what, lanes) : nothing}`;
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

const share = (value: number): string => `${Math.round(100 * value)} %`;

/** What the GPU does over a step: an average each, and an area from the step's begin to its end. */
function busy(time: StepTime, what: string, lanes: readonly Lane[]): TemplateResult {
  const lasts = lanes.reduce((sum, lane) => sum + lane.seconds, 0);
  const used = BUSY.filter(({ average, name }) => name !== '' || average(time) > 0);
  return html`<h3 id="busy">How busy the GPU is</h3>
    <p class="small soft">
      The last ${what}, ${seconds(lasts)} from left to right. Waiting is spread evenly over each phase. Of its warps,
      the GPU holds ${share(time.utilization.smocc)} on average (SMOCC).
    </p>
    <table aria-labelledby="busy">
      <thead>
        <tr>
          <th scope="col">What works, or waits for</th>
          <th scope="col" class="number">Average</th>
          <td class="chart" aria-hidden="true">
            <div class="phases">
              ${spans(lanes)
                .filter(({ from, to }) => to - from >= LEAST_SPAN)
                .map(
                  ({ phase, from, to }) =>
                    html`<span .style=${styles({ left: `${from}%`, width: `${to - from}%` })}>${phase}</span>`,
                )}
            </div>
          </td>
        </tr>
      </thead>
      <tbody>
        ${used.map(
          ({ name, label, means, of, average }) =>
            html`<tr>
              <th scope="row">
                ${name === '' ? label : html`<abbr title=${name}>${label}</abbr>`}
                <div class="small soft">${means}</div>
              </th>
              <td class="number">${share(average(time))}</td>
              <td class="chart">
                <svg viewBox="0 0 ${lanes.length} ${HEIGHT}" preserveAspectRatio="none" aria-hidden="true">
                  <path d=${area(lanes, (lane) => of(lane, time))}></path>
                </svg>
              </td>
            </tr>`,
        )}
      </tbody>
    </table>`;
}

/** "Time: kernels ..." below a heading that says so. */
function note(text: string): TemplateResult {
  const words = text.replace(/^Time: /, '');
  return html`<p class="small soft">${words.charAt(0).toUpperCase()}${words.slice(1)}</p>`;
}

customElements.define('oometer-time', OometerTime);
