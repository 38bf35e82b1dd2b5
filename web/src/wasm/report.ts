// The report that the core gives for a job, version 1. All sizes are bytes.
import type { Factors } from '../format/factors';

export type Verdict = 'fits' | 'tight' | 'does-not-fit';

/** A module of the model, or what no module owns; its sizes include its children's. */
export interface Module extends Factors {
  path: string;
  type: string;
  modality: string;
  children: Module[];
}

export interface Phase {
  iteration: number;
  name: string;
  allocated: number;
  reserved: number;
}

export interface LargeTensor {
  bytes: number;
  shape: number[];
  dtype: string;
  module: string;
  role: string;
}

export interface OutOfMemory {
  requested?: number;
  free?: number;
  phase?: string;
  module?: string;
  op?: string;
}

export interface Report {
  verdict: Verdict;
  fits: boolean;
  headroom: number;
  peak: { allocated: number; reserved: number; outside_allocator: number; total: number };
  interval: { of: string; low: number; high: number; basis: string };
  gpu: { name?: string; usable_bytes: number };
  out_of_memory: OutOfMemory | null;
  peak_at: { iteration: number; phase: string; module: string; op: string };
  breakdown: Factors;
  modules: Module[];
  phases: Phase[];
  timeline: { columns: string[]; rows: number[][] };
  largest: LargeTensor[];
  model: { parameters: number; trainable: number };
  assumptions: string[];
  unmodelled: string[];
  events: number;
  version: string;
}

export interface JobError {
  code: string;
  pointer: string;
  message: string;
}
