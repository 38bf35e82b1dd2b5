import { expect, it } from 'vitest';
import { seconds, timeThen } from './seconds';

it('times have three digits and the unit that suits them', () => {
  const plain = (value: number): string => seconds(value).replace('\u00a0', ' ');
  expect([3.731, 0.4123, 754, 9.999, 59.99, 1e-5, 7200].map(plain)).toEqual([
    '3.73 s',
    '412 ms',
    '12.6 min',
    '10.0 s',
    '1.00 min',
    '10.0 µs',
    '2.00 h',
  ]);
});

it('a change makes each token slower or faster, where both are known', () => {
  const plain = (now: number | null, then: number | null): string => timeThen(now, then).replaceAll('\u00a0', ' ');
  expect(plain(1000, 800)).toBe('+25 % time');
  expect(plain(1000, 2000)).toBe('−50 % time');
  expect(plain(1000, 1001)).toBe('±0 % time');
  expect(plain(null, 1)).toBe('');
  expect(plain(1, null)).toBe('');
});
