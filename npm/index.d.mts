/** A job (job.schema.json), or its JSON text. */
export type Job = Record<string, unknown> | string;

export type Verdict = "fits" | "tight" | "does-not-fit";

/** Bytes. */
export interface Peak {
  allocated: number;
  reserved: number;
  outside_allocator: number;
  total: number;
}

export interface Summary {
  verdict: Verdict;
  fits: boolean;
  /** Bytes to spare; negative: what is missing. */
  headroom: number;
  peak: Peak;
  interval: { of: string; low: number; high: number };
  gpu: { name: string; usable_bytes: number };
}

/** A module, with what it and all below it hold at the peak, in bytes. */
export interface Module {
  path: string;
  type: string;
  modality: string;
  parameter_count: number;
  parameters: number;
  gradients: number;
  optimizer_states: number;
  activations: number;
  temporaries: number;
  children: Module[];
}

export interface Report extends Summary {
  /** Bytes at the peak by purpose. */
  breakdown: Record<string, number>;
  modules: Module[];
  notes: string[];
  [key: string]: unknown;
}

export class JobError extends Error {
  code: string;
  pointer: string;
  fixes: { label: string; change: unknown }[];
}

export function estimate(job: Job): Promise<Report>;
export function summary(job: Job): Promise<Summary>;
export function check(job: Job, options?: { strict?: boolean }): Promise<boolean>;
export function advise(job: Job): Promise<Record<string, unknown>>;
export function gpus(job: Job): Promise<{ gpus: Record<string, unknown>[] }>;
export function presets(): Promise<{ models: Record<string, string>[]; gpus: Record<string, unknown>[] }>;
export function importFiles(
  files: { name: string; content: unknown }[],
  options?: { gpu?: string; gpus?: number },
): Promise<{ job: Record<string, unknown>; [key: string]: unknown }>;
export function snapshot(job: Job): Promise<Uint8Array>;
export function version(): Promise<string>;
