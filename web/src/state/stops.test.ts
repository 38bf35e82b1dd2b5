import { expect, it } from 'vitest';
import { LAST_STOP, positionOf, stop } from './stops';

it('stops at whole numbers that are round where they are large', () => {
  expect([0, 4, 8, 12, 44, 48].map(stop)).toEqual([1, 2, 4, 8, 2048, 4096]);
  expect([45, 46, 47].map(stop)).toEqual([2560, 2816, 3328]);
  const all = Array.from({ length: LAST_STOP + 1 }, (_, i) => stop(i));
  expect(all).toEqual([...all].sort((a, b) => a - b));
});

it('stands where the count is, and at an end where there is no such place', () => {
  expect(['1', '8', '2048'].map(positionOf)).toEqual([0, 12, 44]);
  expect(['', 'x', '-3', '1e99'].map(positionOf)).toEqual([0, 0, 0, LAST_STOP]);
});
