// The report in sentences.
import type { Moment, Report, Verdict } from '../wasm/report';
import { gib, gibNumber, size } from './bytes';

export interface VerdictWords {
  /** "Fits with 8.1 GiB to spare" */
  headline: string;
  /** What stands ahead of the amount: "Needs at least 36.9, would like " */
  before: string;
  /** "71.0 ± 1.4" */
  amount: string;
  /** "79.1 GiB" */
  limit: string;
  /** "on each of 8 × H100 80GB", with what the headline leaves open */
  place: string;
  /** All but the headline: "71.0 ± 1.4 of 79.1 GiB on each of 8 × H100 80GB" */
  detail: string;
}

export const VERDICTS: Record<Verdict, string> = { fits: 'fits', tight: 'tight', 'does-not-fit': 'does not fit' };

/** "71.0 ± 1.4", or both ends where they lie unevenly: "71.0 (70.8 to 73.1)". */
export function withInterval(total: number, low: number, high: number): string {
  const above = gibNumber(high - total);
  const below = gibNumber(total - low);
  if (above === below) return above === '0.0' ? gibNumber(total) : `${gibNumber(total)} ± ${above}`;
  return `${gibNumber(total)} (${gibNumber(low)} to ${gibNumber(high)})`;
}

export function where(gpu: string, count: number): string {
  return count === 1 ? `on one ${gpu}` : `on each of ${count} × ${gpu}`;
}

export function verdict(report: Report, gpu: string, count: number): VerdictWords {
  const { peak, interval, headroom } = report;
  const amount = withInterval(peak.total, interval.low, interval.high);
  const limit = gib(report.gpu.usable_bytes);
  const words = (headline: string, { before = '', after = '' } = {}): VerdictWords => {
    const place = where(gpu, count) + after;
    return { headline, before, amount, limit, place, detail: `${before}${amount} of ${limit} ${place}` };
  };
  const host = report.host?.verdict === report.verdict ? report.host : null;
  if (host && report.verdict === 'does-not-fit' && headroom >= 0) {
    const lacks = host.needs - (host.memory ?? 0);
    return words(`Does not fit: host memory is ${gib(lacks)} short`, { after: ', which is enough' });
  }
  if (report.verdict === 'fits') return words(`Fits with ${gib(headroom)} to spare`);
  if (report.verdict === 'tight' && peak.total > report.gpu.usable_bytes) {
    // PyTorch gives its unused cache back before it runs out.
    const least = gibNumber(peak.least ?? peak.allocated + peak.outside_allocator);
    return words('Tight: runs once PyTorch frees unused cache', { before: `Needs at least ${least}, would like ` });
  }
  if (report.verdict === 'tight')
    return words(`Tight, with ${gib(headroom)} to spare`, {
      after:
        interval.high > report.gpu.usable_bytes
          ? '; the upper end does not fit'
          : host
            ? '; host memory is tight'
            : '; what is not modelled may need more',
    });
  if (headroom >= 0) return words('Does not fit: too fragmented', { after: ', but not in one piece' });
  return words(`Does not fit: ${gib(-headroom)} too much`);
}

/** "−3.1 GiB": what a change does to the peak; "same" where it rounds to nothing. */
export function change(bytes: number): string {
  const text = gib(Math.abs(bytes));
  if (Number(gibNumber(Math.abs(bytes))) === 0) return 'same';
  return (bytes < 0 ? '−' : '+') + text;
}

const PHASES: Record<string, string> = {
  init: 'while the model is built and wrapped',
  forward: 'in the forward pass',
  loss: 'in the loss',
  backward: 'in the backward pass',
  optimizer: 'in the optimizer step',
  prefill: 'in the prefill',
  batch: 'while the next batch is copied to the GPU',
  evaluation: 'in the evaluation',
  saving: 'while a checkpoint is saved',
  decode: 'while tokens are decoded',
};

const PRODUCT = 'while multiplying matrices';

/** Operators by what they are for; the others go by their names. */
const OPERATIONS: Record<string, string> = {
  parameter: 'while making weights',
  to_copy: 'while copying to another type or device',
  cublas_workspace: 'while cuBLAS takes its workspace',
  mm: PRODUCT,
  addmm: PRODUCT,
  bmm: PRODUCT,
  baddbmm: PRODUCT,
  all_gather: 'while gathering what other GPUs hold',
  reduce_scatter: 'while adding up gradients of all GPUs',
  all_reduce: 'while adding up gradients of all GPUs',
  log_softmax: 'while computing the loss',
  nll_loss: 'while computing the loss',
  log_softmax_backward: 'while computing the loss’s gradient',
  nll_loss_backward: 'while computing the loss’s gradient',
};

/** "init" → "Set-up", "backward" of 2 → "Step 2, backward". */
export function phaseName(name: string, iteration: number): string {
  if (name === 'init') return 'Set-up';
  if (name === 'prefill' || name === 'decode') return `Turn ${iteration}, ${name}`;
  if (name === 'evaluation' || name === 'saving') return `After step ${iteration}, ${name}`;
  return `Step ${iteration}, ${name.replaceAll('_', ' ')}`;
}

const SHORT: Record<string, string> = {
  init: 'init',
  forward: 'fwd',
  backward: 'bwd',
  optimizer: 'opt',
  evaluation: 'eval',
  saving: 'save',
};
/** Of small text, about, with what stands around it. */
const [LETTER, AROUND] = [6.2, 12];

/** The name of a phase as far as there is room, in pixels; "" where there is none. */
export function phaseIn(pixels: number, name: string, iteration: number): string {
  const long = phaseName(name, iteration);
  const [, bare = long] = long.split(', ');
  return [long, bare, SHORT[name] ?? ''].find((words) => words.length * LETTER + AROUND <= pixels) ?? '';
}

function place({ iteration, phase, module, op }: Moment): string {
  const stage = PHASES[phase] ?? `in the phase “${phase.replaceAll('_', ' ')}”`;
  const turn = phase === 'prefill' || phase === 'decode';
  const steps = iteration === 1 ? ' of the first step' : ` of step ${iteration}`;
  const step = turn ? (iteration === 1 ? '' : `, turn ${iteration}`) : phase === 'init' ? '' : steps;
  const owner = module ? `, in ${module}` : '';
  const operation = op ? `, ${OPERATIONS[op] ?? `while running ${op}`}` : '';
  return `${stage}${step}${owner}${operation}`;
}

/** "mm in layers.3.mlp.up_proj": an operator and whose it is. */
export function operation(op: string, module: string): string {
  return [op, module === '' ? '' : `in ${module}`].filter((word) => word !== '').join(' ');
}

/** Where the peak is, as a sentence. */
export function peakPlace(report: Report): string {
  return `The peak comes ${place(report.peak_at)}.`;
}

/** Where a job that does not fit runs out of memory; null for one that fits. */
export function deathPlace(report: Report): string | null {
  const death = report.out_of_memory;
  if (!death) return null;
  return `Out of memory ${place(death)}: ${size(death.requested)} requested, ${size(death.free)} free on the device.`;
}

/** "[8, 2048, 32064] bf16" as people write it: "8 × 2048 × 32064". */
export function shape(dimensions: number[]): string {
  return dimensions.length === 0 ? 'scalar' : dimensions.join(' × ');
}
