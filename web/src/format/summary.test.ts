import { expect, it } from 'vitest';
import { picture } from '../charts/picture';
import { START } from '../state/fields';
import { llama } from '../state/model.fixture';
import type { Result } from '../wasm/ask';
import { report } from '../wasm/report.fixture';
import { GIB } from './bytes';
import { asCells, asMarkdown, settings } from './summary';

const held = {
  parameters: 20 * GIB,
  gradients: 0,
  optimizer_states: 30 * GIB,
  activations: 10 * GIB,
  temporaries: 0,
  buffers_and_inputs: 0,
  kv_cache: 0,
  allocator_rounding: 0,
};

const result: Result = {
  setup: START,
  model: { ...llama, title: 'A <model>' },
  gpu: {
    id: 'h100-80gb',
    name: 'H100 80GB',
    vendor: 'nvidia',
    architecture: 'hopper',
    usable_bytes: 79.1 * GIB,
    basis: 'measured',
    calibrated: true,
  },
  count: 8,
  job: { model: { preset: 'llava-1.5-7b' } },
  report: report({
    breakdown: held,
    modules: [{ path: '', type: 'Model', modality: '', ...held, children: [] }],
    version: '0.1.0',
  }),
  milliseconds: 1,
};

it('names settings as the form does, and only those that mean something', () => {
  const all = new Map(settings(result));
  expect(all.get('Model')).toBe('A <model>');
  expect(all.get('GPU')).toBe('H100 80GB');
  expect(all.get('Parallelism')).toBe('DeepSpeed ZeRO-2');
  expect(all.has('Images per sample')).toBe(false);
  expect(all.has('Own model')).toBe(false);
});

it('writes Markdown without spaces that only look like spaces', () => {
  const text = asMarkdown(result, 'https://example.org/#v1');
  expect(text).toContain('**Fits with 8.1 GiB to spare**: 71.0 ± 1.4 of 79.1 GiB on each of 8 × H100 80GB');
  expect(text).toContain('| Optimizer states | 30.00 |');
  expect(text).toContain('| Total | 71.00 |');
  expect(text).toContain('[oometer 0.1.0](https://example.org/#v1)');
  expect(text).not.toContain('\u00a0');
});

it('writes cells that sum to the peak', () => {
  const [head, ...rows] = asCells(result);
  expect(head?.slice(0, 3)).toEqual(['module', 'type', 'parameters']);
  expect(rows.reduce((sum, row) => sum + Number(row.at(-1)), 0)).toBe(result.report.peak.total);
});

it('draws a picture that stands alone, whatever the model is called', () => {
  const { svg, width, height } = picture(result, { text: '#000', surface: '#fff', parameters: '#00f' });
  expect(svg).toMatch(new RegExp(`^<svg [^>]*width="${width}" height="${height}"`));
  expect(svg).toContain('A &lt;model&gt;');
  expect(svg).toContain('Fits with 8.1');
  expect(svg).not.toMatch(/NaN|undefined|var\(/);
});
