import { expect, it } from 'vitest';
import { ticks } from './ticks';

it('stand at round values up to the top', () => {
  expect(ticks(41)).toEqual([0, 20, 40]);
  expect(ticks(80)).toEqual([0, 20, 40, 60, 80]);
  expect(ticks(0.9)).toHaveLength(2);
  expect(ticks(0)).toEqual([0]);
});
