// What the core's advisor says of a job. All sizes are bytes.
import type { JobError, Verdict } from './report';

/** A merge patch (RFC 7386) on the job. */
export type Patch = Record<string, unknown>;

/** How fast a job is; null where no time is known. */
interface Timed {
  tokens_per_second: number | null;
}

export interface Change extends Timed {
  label: string;
  change: Patch;
  peak: number;
  saves: number;
  verdict: Verdict;
  /** What one pays for it, in words. */
  costs: string;
}

export interface Combination extends Timed {
  labels: string[];
  change: Patch;
  peak: number;
  verdict: Verdict;
  /** Each change, with what one pays for it. */
  parts?: { label: string; costs: string }[];
}

/** What fits beside a job that fits, and what one gains by it. */
export interface Spare extends Timed {
  label: string;
  gains: string;
  change: Patch;
  peak: number;
  verdict: Verdict;
}

export interface Advice extends Timed {
  /** Null where none fits. */
  largest_micro_batch: number | null;
  longest_sequence: number | null;
  fewest_gpus: number | null;
  /** Of inference: how many sequences fit at once, by their length with the answers; else empty. */
  frontier: { context: number; users: number }[];
  changes: Change[];
  /** What makes a job fit that does not, the best first. */
  combinations: Combination[];
  /** Of a job that fits: what fits there too and costs less. */
  beside: Spare[];
}

export function readAdvice(json: string): Advice | JobError {
  const answer = JSON.parse(json) as Advice | { error: JobError };
  return 'error' in answer ? answer.error : answer;
}
