import { describe, expect, it } from 'vitest';
import type { Module, Report } from '../wasm/report';
import { noFactors } from '../wasm/report.fixture';
import { factorSegments, limitScale, moduleRows, totalSegments } from './stack';

const module = (path: string, parameters: number, children: Module[] = [], modality = 'language'): Module => ({
  ...noFactors,
  path,
  type: '',
  modality,
  parameters,
  children,
});

function report(total: number, limit: number): Report {
  return {
    peak: { allocated: total - 20, reserved: total - 5, outside_allocator: 5, total },
    breakdown: { ...noFactors, parameters: total - 30, activations: 10 },
    interval: { of: 'total', low: total - 2, high: total + 2, basis: '' },
    gpu: { usable_bytes: limit },
  } as Report;
}

it('a bar shows what is there, in the order of the factors', () => {
  const segments = factorSegments({ ...noFactors, activations: 3, parameters: 5 });
  expect(segments.map(({ key, bytes }) => [key, bytes])).toEqual([
    ['parameters', 5],
    ['activations', 3],
  ]);
});

it('the bar against the limit sums to the total', () => {
  const segments = totalSegments(report(100, 120));
  expect(segments.map(({ key }) => key)).toEqual(['parameters', 'activations', 'cached', 'outside']);
  expect(segments.reduce((sum, { bytes }) => sum + bytes, 0)).toBe(100);
});

describe('limitScale', () => {
  it('is the GPU where the job fits', () => {
    expect(limitScale(report(50, 200))).toEqual({ whole: 200, limit: 100, low: 24, high: 26 });
  });
  it('is the job where it does not', () => {
    const scale = limitScale(report(300, 200));
    expect(scale.whole).toBeGreaterThan(302);
    expect(scale.limit).toBeLessThan(70);
  });
});

describe('moduleRows', () => {
  const layers = [module('lm.layers.0', 30), module('lm.layers.1', 40)];
  const root = module('', 90, [module('vision', 10), module('lm', 75, layers), module('unused', 0)]);

  it('puts the largest first, leaves out what holds nothing, and ends with what no module holds', () => {
    expect(moduleRows([root], new Set()).map(({ name, total }) => [name, total])).toEqual([
      ['lm', 75],
      ['vision', 10],
      ['the rest', 5],
    ]);
  });
  it('looks through a wrapper around several modalities, so that the rest is the map’s', () => {
    const wrapper = module('model', 88, [module('model.vision', 10), module('model.lm', 75)], '');
    expect(moduleRows([module('', 90, [wrapper])], new Set()).map(({ name, total }) => [name, total])).toEqual([
      ['model.lm', 75],
      ['model.vision', 10],
      ['model itself', 3],
      ['the rest', 2],
    ]);
  });
  it('opens a module in the order of the model, with short names, and sums', () => {
    const rows = moduleRows([root], new Set(['lm']));
    expect(rows.map(({ name, depth, total }) => [name, depth, total])).toEqual([
      ['lm', 0, 75],
      ['layers.0', 1, 30],
      ['layers.1', 1, 40],
      ['itself', 1, 5],
      ['vision', 0, 10],
      ['the rest', 0, 5],
    ]);
  });
});
