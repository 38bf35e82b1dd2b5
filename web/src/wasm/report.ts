// The report that the core gives for a job, version 1. All sizes are bytes.
import type { Factors } from '../format/factors';

export type Verdict = 'fits' | 'tight' | 'does-not-fit';

/** A module of the model; its sizes include its children's. The tree has one root, of path "". */
export interface Module extends Factors {
  path: string;
  type: string;
  modality: string;
  children: Module[];
}

export interface Phase {
  iteration: number;
  name: string;
  /** The first event of the log that belongs to it. */
  event: number;
  allocated: number;
  reserved: number;
}

export interface LargeTensor {
  bytes: number;
  shape: number[];
  dtype: string;
  module: string;
  role: string;
  /** A part of a flat buffer that many modules share. */
  flat?: true;
}

/** A moment of the run. */
export interface Moment {
  iteration: number;
  phase: string;
  module: string;
  op: string;
}

/** The allocation that fails on the device's limit. */
export interface OutOfMemory extends Moment {
  requested: number;
  /** The segment that was tried to get from the device. */
  tried: number;
  free: number;
  allocated: number;
  reserved: number;
}

/** One rank's run; `reported` is the one whose figures the report holds. */
export interface RankRow {
  rank: number;
  allocated: number;
  reserved: number;
  fits: boolean;
  reported: boolean;
}

/** Of the GPU, as NVIDIA's tools show it; averages of the step, of 1. */
export interface Utilization {
  /** Of the time in which the GPU is active, as nvidia-smi says it, and as DCGM does. */
  gputl: number;
  gract: number;
  /** Multiprocessors that have work, and their warps. */
  smact: number;
  smocc: number;
  tenso: number;
  drama: number;
}

/** Of what the job says its GPUs draw and cost. */
export interface Cost {
  energy_kwh?: number;
  price?: number;
}

/** How long an optimizer step takes (the mean of those after the first), of inference a turn; seconds. */
export interface StepTime {
  step: number;
  low: number;
  high: number;
  basis: string;
  tokens_per_second: number;
  mfu: number;
  hfu: number;
  /** Of inference. */
  prefill?: number;
  per_token?: number;
  flops: { model: number; executed: number; hardware: number };
  bytes_moved: number;
  bytes_sent: number;
  /** They sum to `step`; `communication`: what no computation hides; `idle`: the GPU waits for the host. */
  by_kind: Record<string, number>;
  utilization: Utilization;
  /** Of a step on all GPUs, where the job has a `cost`. */
  energy_kwh?: number;
  price?: number;
  per_million_tokens?: Cost;
  training?: Cost & { tokens: number; days: number };
}

/** What the job's processes need of a machine's memory (docs/host.md). Bytes. */
export interface Host {
  /** What it has; null where the job does not say. */
  memory: number | null;
  verdict: Verdict | null;
  /** On one machine. */
  processes: number;
  /** At the worst phase but for resuming, and with what was not measured. */
  needs: number;
  high: number;
  phase: string;
  phases: {
    name: string;
    needs: number;
    /** One process's, mapped files too. */
    resident: number;
    pinned: number;
    holdings: { name: string; bytes: number; of: 'process' | 'node'; mapped: boolean; source: string }[];
  }[];
  unmodelled: string[];
}

export interface Report {
  verdict: Verdict;
  fits: boolean;
  headroom: number;
  /** `least`: the total on the smallest device that runs it, where it runs here on less than `total`. */
  peak: { allocated: number; reserved: number; outside_allocator: number; total: number; least?: number };
  interval: { of: string; low: number; high: number; basis: string };
  gpu: { name?: string; usable_bytes: number };
  out_of_memory: OutOfMemory | null;
  peak_at: Moment;
  breakdown: Factors;
  modules: Module[];
  phases: Phase[];
  /** Each optimizer step's peaks, of a trainer or of samples with lengths. */
  steps?: { allocated: number; reserved: number }[];
  /** Each row a moment, the highest of its stretch; its `op` and `module` are places in the lists of names. */
  timeline: { columns: string[]; ops: string[]; modules: string[]; rows: number[][] };
  largest: LargeTensor[];
  model: { parameters: number; trainable: number };
  /** One image as the model sees it, in pixels, and the tokens that it takes of the sequence (0: none); absent without. */
  image?: { height: number; width: number; tokens: number };
  /** Where ranks differ and all were asked for. */
  ranks: RankRow[];
  assumptions: string[];
  unmodelled: string[];
  /** What surprises people about this result. */
  notes: string[];
  events: number;
  version: string;
  /** Where the job says what its machine has. */
  host?: Host;
  /** Of the command `estimate`; null where it is not known, and a note says why. */
  time?: StepTime | null;
}

/** A key of a pasted DeepSpeed or accelerate configuration, as it was taken; `from` resolved an "auto". */
export interface Resolved {
  pointer: string;
  value: unknown;
  origin: 'file' | 'auto' | 'default';
  from?: string;
  matters: boolean | string;
}

/** Peak reserved over random orders of the samples, and what two steps of the longest samples allocate. */
export interface OrderSpread {
  low: number;
  high: number;
  orders: number;
  worst_batch_allocated: number;
}

export interface JobError {
  code: string;
  pointer: string;
  message: string;
  /** What would make the job valid, the best first; each is enough. */
  fixes?: readonly { label: string; change: Record<string, unknown> }[];
}
