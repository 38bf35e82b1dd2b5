import { describe, expect, it } from 'vitest';
import { GIB } from '../format/bytes';
import type { GpuRow } from '../wasm/gpus';
import { costOf, matches, sorted, type Filter } from './gpu-list';

const row = (id: string, gib: number, needed: number | null, more: Partial<GpuRow> = {}): GpuRow => ({
  id,
  name: id,
  vendor: 'nvidia',
  usable_bytes: gib * GIB,
  verdict: needed === 1 ? 'fits' : 'does-not-fit',
  headroom: gib * GIB - 30 * GIB,
  refused: '',
  needed: needed === null ? null : { gpus: needed, label: '', change: {} },
  largest_micro_batch: needed === 1 ? 8 : null,
  ...more,
});
const ROWS = [
  row('h100-80gb', 79.1, 1),
  row('rtx-4090', 23.5, 4),
  row('a100-40gb', 39.5, 1),
  row('mi300x', 191.9, 1, { vendor: 'amd' }),
  row('rtx-3070', 7.7, null),
];
const ANY: Filter = { vendor: '', memory: 0, place: '' };
const ids = (rows: readonly GpuRow[]): string[] => rows.map(({ id }) => id);

describe('the table of GPUs', () => {
  it('is filtered by vendor, by memory, and by where a GPU is found', () => {
    const found = (filter: Partial<Filter>): string[] => ids(ROWS.filter((gpu) => matches(gpu, { ...ANY, ...filter })));
    expect(found({})).toHaveLength(5);
    expect(found({ vendor: 'amd' })).toEqual(['mi300x']);
    expect(found({ memory: 24 })).toEqual(['h100-80gb', 'rtx-4090', 'a100-40gb', 'mi300x']);
    expect(found({ place: 'desk' })).toEqual(['rtx-4090', 'rtx-3070']);
    expect(found({ place: 'cloud', memory: 80 })).toEqual(['h100-80gb', 'mi300x']);
  });

  it('begins with the smallest GPU of which the fewest are enough', () => {
    expect(ids(sorted(ROWS, 'needed', new Map()))).toEqual([
      'a100-40gb',
      'h100-80gb',
      'mi300x',
      'rtx-4090',
      'rtx-3070',
    ]);
  });

  it('can be sorted by cost: of as many as are needed, unknown ones last', () => {
    const prices = new Map([
      ['h100-80gb', 3],
      ['rtx-4090', 0.5],
    ]);
    expect(ROWS.map((gpu) => costOf(gpu, prices))).toEqual([3, 2, null, null, null]);
    expect(ids(sorted(ROWS, 'cost', prices)).slice(0, 3)).toEqual(['rtx-4090', 'h100-80gb', 'a100-40gb']);
  });

  it('can be sorted by name, as people count', () => {
    const names = [row('b', 1, 1, { name: 'RTX 10 GB' }), row('a', 1, 1, { name: 'RTX 9 GB' })];
    expect(ids(sorted(names, 'name', new Map()))).toEqual(['a', 'b']);
  });
});
