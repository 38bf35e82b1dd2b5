import { expect, it } from 'vitest';
import type { Report } from '../wasm/report';
import { report } from '../wasm/report.fixture';
import { GIB } from './bytes';
import { change, deathPlace, peakPlace, phaseIn, phaseName, shape, verdict, withInterval } from './words';

const say = (r: Report, count = 8): string => {
  const { headline, detail } = verdict(r, 'H100 80GB', count);
  return `${headline}: ${detail}`.replaceAll('\u00a0', ' ');
};

it('says that a job fits, with room and margin', () => {
  expect(say(report({}))).toBe('Fits with 8.1 GiB to spare: 71.0 ± 1.4 of 79.1 GiB on each of 8 × H100 80GB');
});

it('speaks of one GPU as one', () => {
  expect(say(report({}), 1)).toMatch(/on one H100 80GB$/);
});

it('says how much is too much', () => {
  const r = report({ verdict: 'does-not-fit', fits: false, headroom: -12.3 * GIB });
  expect(say(r)).toMatch(/^Does not fit: 12.3 GiB too much: 71.0 /);
});

it('names fragmentation where the sum alone would fit', () => {
  const r = report({
    verdict: 'does-not-fit',
    fits: false,
    out_of_memory: {
      requested: 2 * GIB,
      tried: 2 * GIB,
      free: 0.5 * GIB,
      allocated: 60 * GIB,
      reserved: 70 * GIB,
      iteration: 1,
      phase: 'forward',
      module: 'lm_head',
      op: 'mm',
    },
  });
  expect(say(r)).toMatch(/^Does not fit: too fragmented: .* × H100 80GB, but not in one piece$/);
  expect(deathPlace(r)?.replaceAll('\u00a0', ' ')).toBe(
    'Out of memory in the forward pass of the first step, in lm_head, while multiplying matrices: ' +
      '2.00 GiB requested, 512 MiB free on the device.',
  );
  expect(deathPlace(report({}))).toBeNull();
});

it('says of a job that needs its cache freed that it runs, what it needs and what it would like', () => {
  const r = report({
    verdict: 'tight',
    headroom: 0.1 * GIB,
    peak: { allocated: 36 * GIB, reserved: 49.3 * GIB, outside_allocator: 1.5 * GIB, total: 50.8 * GIB },
    interval: { of: 'total', low: 49.8 * GIB, high: 51.8 * GIB, basis: '' },
    gpu: { name: 'a100-40gb', usable_bytes: 39.5 * GIB },
  });
  expect(say(r)).toBe(
    'Tight: runs once PyTorch frees unused cache: Needs at least 37.5, would like 50.8 ± 1.0 of 39.5 GiB on each of 8 × H100 80GB',
  );
});

it('says why a job is tight', () => {
  const tight = report({ verdict: 'tight', headroom: 0.6 * GIB });
  expect(say(tight)).toMatch(/^Tight, with 0.6 GiB to spare: .*what is not modelled may need more$/);
  const interval = { ...tight.interval, high: 80 * GIB };
  expect(say({ ...tight, interval })).toMatch(/^Tight, with 0.6 GiB to spare: .*the upper end does not fit$/);
});

it('shows both ends of an uneven interval, and none of an exact one', () => {
  expect(withInterval(71 * GIB, 70.8 * GIB, 73.1 * GIB)).toBe('71.0 (70.8 to 73.1)');
  expect(withInterval(71 * GIB, 71 * GIB, 71 * GIB)).toBe('71.0');
});

it('tells where the peak is', () => {
  expect(peakPlace(report({}))).toBe(
    'The peak comes in the backward pass of step 2, in language_model.lm_head, while running aten::mm.',
  );
  expect(peakPlace(report({ peak_at: { iteration: 0, phase: 'init', module: '', op: '' } }))).toBe(
    'The peak comes while the model is built and wrapped.',
  );
});

it('names phases and shapes', () => {
  expect(phaseName('init', 0)).toBe('Set-up');
  expect(phaseName('backward', 2)).toBe('Step 2, backward');
  expect(shape([8, 2048, 4096])).toBe('8 × 2048 × 4096');
  expect(shape([])).toBe('scalar');
});

it('shortens a phase’s name rather than cut it', () => {
  expect(phaseIn(200, 'backward', 2)).toBe('Step 2, backward');
  expect(phaseIn(80, 'backward', 2)).toBe('backward');
  expect(phaseIn(40, 'backward', 2)).toBe('bwd');
  expect(phaseIn(24, 'backward', 2)).toBe('');
  expect(phaseIn(80, 'init', 0)).toBe('Set-up');
});

it('says what a change does, and when it does nothing', () => {
  expect(change(-3.14 * GIB)).toBe('−3.1\u00a0GiB');
  expect(change(12 * GIB)).toBe('+12.0\u00a0GiB');
  expect(change(0.04 * GIB)).toBe('same');
});

it('says that the machine is too small where the GPU is not', () => {
  const host = {
    memory: 64 * GIB,
    processes: 8,
    needs: 157 * GIB,
    high: 169 * GIB,
    phase: 'training',
    phases: [],
    unmodelled: [],
  };
  const r = report({ verdict: 'does-not-fit', fits: false, host: { ...host, verdict: 'does-not-fit' } });
  expect(say(r)).toBe(
    'Does not fit: host memory is 93.0 GiB short: 71.0 ± 1.4 of 79.1 GiB on each of 8 × H100 80GB, which is enough',
  );
  expect(say({ ...r, headroom: -2 * GIB })).toMatch(/^Does not fit: 2.0 GiB too much/);
  expect(say(report({ verdict: 'tight', host: { ...host, verdict: 'tight' } }))).toMatch(
    /^Tight, with 8.1 GiB to spare: .*; host memory is tight$/,
  );
});
