import { describe, expect, it } from 'vitest';
import { report } from '../wasm/report.fixture';
import type { Phase, Report } from '../wasm/report';
import { isByStep, rowsOf, stepsOf } from './steps';

const phase = (name: string, iteration: number): Phase => ({ iteration, name, event: 0, allocated: 5, reserved: 6 });
const of = (steps: number): Report => {
  const each = Array.from({ length: steps }, (_, i) => i + 1);
  return report({
    model: { parameters: 9, trainable: 9 },
    peak_at: { iteration: 2, phase: 'backward', module: '', op: '' },
    phases: [
      phase('init', 0),
      ...each.flatMap((i) => [phase('batch', i), phase('forward', i), phase('backward', i), phase('optimizer', i)]),
      phase('evaluation', steps),
      phase('saving', steps),
    ],
    steps: each.map((i) => ({ allocated: i, reserved: 2 * i })),
  });
};

describe('rowsOf', () => {
  it('tells few steps phase by phase', () => {
    const rows = rowsOf(of(3));
    expect(rows).toHaveLength(15);
    expect(rows.filter(({ isPeak }) => isPeak).map(({ name }) => name)).toEqual(['Step 2, backward']);
    expect(isByStep(of(3))).toBe(false);
  });

  it('tells many steps as a whole, with what comes between them', () => {
    const rows = rowsOf(of(8));
    expect(rows.map(({ name }) => name).slice(-3)).toEqual([
      'Step 8',
      'After step 8, evaluation',
      'After step 8, saving',
    ]);
    expect(rows).toHaveLength(11);
    expect(rows[2]).toEqual({ name: 'Step 2', allocated: 2, reserved: 4, isPeak: true });
  });
});

it('says how many steps there are', () => {
  expect(stepsOf(of(3))).toMatch(/^Three steps:/);
  expect(stepsOf(of(12))).toMatch(/^12 steps:/);
  expect(stepsOf(report({ model: { parameters: 9, trainable: 9 } }))).toMatch(/^Two steps:/);
});
