// A report for tests, with what they do not care about filled in.
import { GIB } from '../format/bytes';
import type { Factors } from '../format/factors';
import type { Report } from './report';

export const noFactors: Factors = {
  parameters: 0,
  gradients: 0,
  optimizer_states: 0,
  activations: 0,
  temporaries: 0,
  buffers_and_inputs: 0,
  kv_cache: 0,
  allocator_rounding: 0,
};

export function report(overrides: Partial<Report>): Report {
  const base: Report = {
    verdict: 'fits',
    fits: true,
    headroom: 8.1 * GIB,
    peak: { allocated: 60 * GIB, reserved: 70 * GIB, outside_allocator: 1 * GIB, total: 71 * GIB },
    interval: { of: 'total', low: 69.6 * GIB, high: 72.4 * GIB, basis: '' },
    gpu: { name: 'h100-80gb', usable_bytes: 79.1 * GIB },
    out_of_memory: null,
    peak_at: { iteration: 2, phase: 'backward', module: 'language_model.lm_head', op: 'aten::mm' },
    breakdown: noFactors,
    modules: [],
    phases: [],
    timeline: { columns: [], ops: [], modules: [], rows: [] },
    largest: [],
    model: { parameters: 0, trainable: 0 },
    ranks: [],
    assumptions: [],
    unmodelled: [],
    notes: [],
    events: 0,
    version: '',
  };
  return { ...base, ...overrides };
}
