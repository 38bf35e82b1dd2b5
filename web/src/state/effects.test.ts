import { expect, it } from 'vitest';
import { alternatives, isByCache, neighbours } from './effects';
import { START } from './fields';
import { llava, tower } from './model.fixture';

it('tries half and twice a count', () => {
  expect(neighbours('8')).toEqual({ half: '4', double: '16' });
  expect(neighbours('7')).toEqual({ half: '3', double: '14' });
  expect(neighbours('1')).toEqual({ half: null, double: '2' });
  for (const odd of ['', '0', '-2', '1.5', 'x', '1e9']) expect(neighbours(odd)).toEqual({ half: null, double: null });
});

it('changes one setting at a time, to what it is not', () => {
  const all = alternatives(START, llava);
  expect(all).toContainEqual({ key: 'checkpointing', value: 'none' });
  expect(all).toContainEqual({ key: 'mbs', value: '4' });
  expect(all).toContainEqual({ key: 'gpus', value: '1' });
  expect(all.some(({ key, value }) => START[key] === value)).toBe(false);
  expect(all.every(({ key }) => key !== 'model' && key !== 'gpu')).toBe(true);
  expect(alternatives(START, tower).some(({ key }) => key === 'seq')).toBe(false);
});

it('knows where the cache alone makes a peak smaller', () => {
  const gib = 1024 ** 3;
  const base = { total: 40 * gib, allocated: 30 * gib };
  expect(isByCache({ total: 38 * gib, allocated: 31 * gib }, base)).toBe(true);
  expect(isByCache({ total: 38 * gib, allocated: 29 * gib }, base)).toBe(false);
  expect(isByCache({ total: 38 * gib, allocated: 30.01 * gib }, base)).toBe(false);
});
