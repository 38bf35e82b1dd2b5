// What the core says of the time of a job.
import type { Cost, JobError, Utilization } from './report';

/** Of an optimizer step, or of inference a turn. Seconds; FLOPs are of one GPU. */
export interface StepTime {
  step: number;
  low: number;
  high: number;
  /** What the interval is from, in words. */
  basis: string;
  tokens_per_second: number;
  mfu: number;
  hfu: number;
  /** Of a generation. */
  prefill?: number;
  per_token?: number;
  /** By kind of kernel; they sum to `step`. */
  by_kind: Record<string, number>;
  utilization: Utilization;
  /** Of a step on all GPUs, where the job has a `cost`. */
  energy_kwh?: number;
  price?: number;
  per_million_tokens?: Cost;
  training?: Cost & { tokens: number; days: number };
}

/** A stretch of a step; all but its seconds are shares of it. */
export interface Lane {
  phase: string;
  seconds: number;
  smact: number;
  tenso: number;
  drama: number;
  communication: number;
  idle: number;
}

/** Where there is no time, a note says why. */
export interface Timed {
  time: StepTime | null;
  notes: string[];
  /** The last step in stretches of equal length. */
  lanes?: Lane[];
}

export function readTime(json: string): Timed | JobError {
  const answer = JSON.parse(json) as Timed | { error: JobError };
  return 'error' in answer ? answer.error : answer;
}
