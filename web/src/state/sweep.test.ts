import { expect, it } from 'vitest';
import { START } from './fields';
import { cellOf, ranges, readCell, runs, setupAt, upTo, type Cell, type Grid } from './sweep';

const grid: Grid = {
  rows: { key: 'mbs', values: ['1', '2'] },
  columns: { key: 'seq', values: ['512', '1024', '2048'] },
};
const cell = (verdict: Cell['verdict']): Cell => ({ verdict, total: 1, limit: 2 });

it('spaces counts evenly, and repeats none', () => {
  expect(upTo(8, 4)).toEqual(['2', '4', '6', '8']);
  expect(upTo(3, 10)).toEqual(['1', '2', '3']);
  expect(upTo(100, 100)).toHaveLength(100);
});

it('walks row by row', () => {
  expect(setupAt(START, grid, 0)).toEqual({ ...START, mbs: '1', seq: '512' });
  expect(setupAt(START, grid, 5)).toEqual({ ...START, mbs: '2', seq: '2048' });
  expect(cellOf({ ...START, mbs: '2', seq: '2048' }, grid)).toBe(5);
  expect(cellOf({ ...START, mbs: '3' }, grid)).toBeNull();
});

it('joins what says the same, never over a row’s end', () => {
  const cells = [cell('fits'), cell('fits'), cell('tight'), cell('tight'), null, undefined];
  expect(runs(cells, grid)).toEqual([
    { row: 0, from: 0, to: 1, says: 'fits' },
    { row: 0, from: 2, to: 2, says: 'tight' },
    { row: 1, from: 0, to: 0, says: 'tight' },
    { row: 1, from: 1, to: 1, says: 'refused' },
    { row: 1, from: 2, to: 2, says: 'unknown' },
  ]);
  expect(ranges(runs(cells, grid).slice(0, 2), 'fits', (i) => grid.columns.values[i] ?? '')).toBe('512 to 1024');
});

it('reads an answer, and an error as none', () => {
  expect(readCell('{"verdict":"fits","peak":{"total":1},"gpu":{"usable_bytes":2}}')).toEqual(cell('fits'));
  expect(readCell('{"error":{}}')).toBeNull();
});
