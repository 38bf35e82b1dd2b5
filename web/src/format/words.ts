// The report in sentences.
import type { Moment, Report } from '../wasm/report';
import { gib, gibNumber, size } from './bytes';

export interface VerdictWords {
  /** "Fits with 8.1 GiB to spare" */
  headline: string;
  /** "71.0 ± 1.4 of 79.1 GiB on each of 8 × H100 80GB" */
  detail: string;
}

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
  const detail = `${amount} of ${gib(report.gpu.usable_bytes)} ${where(gpu, count)}`;
  if (report.verdict === 'fits') return { headline: `Fits with ${gib(headroom)} to spare`, detail };
  if (report.verdict === 'tight') {
    return { headline: `Tight, with ${gib(headroom)} to spare`, detail: `${detail}; the upper end does not fit` };
  }
  if (headroom >= 0) {
    return { headline: 'Does not fit: too fragmented', detail: `${detail}, but in pieces` };
  }
  return { headline: `Does not fit: ${gib(-headroom)} too much`, detail };
}

const PHASES: Record<string, string> = {
  init: 'while the model is built and wrapped',
  forward: 'in the forward pass',
  loss: 'in the loss',
  backward: 'in the backward pass',
  optimizer: 'in the optimizer’s step',
};

/** "init" → "Set-up", "backward" of 2 → "Step 2, backward". */
export function phaseName(name: string, iteration: number): string {
  if (name === 'init') return 'Set-up';
  return `Step ${iteration}, ${name.replaceAll('_', ' ')}`;
}

function place({ iteration, phase, module, op }: Moment): string {
  const stage = PHASES[phase] ?? `in the phase “${phase.replaceAll('_', ' ')}”`;
  const step = phase === 'init' ? '' : iteration === 1 ? ' of the first step' : ` of step ${iteration}`;
  const owner = module ? `, in ${module}` : '';
  const operation = op ? `, when ${op} allocates` : '';
  return `${stage}${step}${owner}${operation}`;
}

/** Where the peak is, as one would tell a colleague. */
export function peakPlace(report: Report): string {
  return `The peak comes ${place(report.peak_at)}.`;
}

/** Where a job that does not fit dies; null for one that fits. */
export function deathPlace(report: Report): string | null {
  const death = report.out_of_memory;
  if (!death) return null;
  return `On this GPU it runs out ${place(death)}: ${size(death.requested)} asked for, ${size(death.free)} left on the device.`;
}

/** "[8, 2048, 32064] bf16" as people write it: "8 × 2048 × 32064". */
export function shape(dimensions: number[]): string {
  return dimensions.length === 0 ? 'scalar' : dimensions.join(' × ');
}
