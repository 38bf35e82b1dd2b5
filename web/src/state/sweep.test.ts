import { expect, it } from 'vitest';
import { START } from './fields';
import {
  cellOf,
  fill,
  ranges,
  readCell,
  runs,
  setupAt,
  strides,
  upTo,
  wanted,
  type Cell,
  type Cells,
  type Grid,
} from './sweep';

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

it('asks about a fifth of a fine grid, and knows the same', () => {
  const values = upTo(100, 100);
  const fine: Grid = { rows: { key: 'mbs', values }, columns: { key: 'seq', values } };
  const truth = (index: number): Cell | null => {
    const size = (Math.floor(index / 100) + 1) * ((index % 100) + 1);
    return index % 100 < 13 ? null : cell(size < 1500 ? 'fits' : size < 1700 ? 'tight' : 'does-not-fit');
  };
  const cells: Cells = Array.from({ length: 100 * 100 });
  let asked = 0;
  for (const stride of strides(cells.length)) {
    for (const index of wanted(cells, fine, stride)) {
      cells[index] = truth(index);
      asked++;
    }
    fill(cells, fine, stride);
  }
  expect(asked).toBeLessThan(2500);
  expect(cells.map((known) => known?.verdict)).toEqual(cells.map((_, index) => truth(index)?.verdict));
});

it('takes nothing from one GPU for another', () => {
  const gpus: Grid = { rows: { key: 'gpu', values: ['a', 'b', 'c'] }, columns: { key: 'mbs', values: upTo(9, 9) } };
  const cells: Cells = Array.from({ length: 27 });
  expect(wanted(cells, gpus, 4)).toEqual([0, 4, 8, 9, 13, 17, 18, 22, 26]);
  for (const index of wanted(cells, gpus, 4)) cells[index] = cell(index < 9 ? 'fits' : 'tight');
  fill(cells, gpus, 4);
  expect(new Set(cells.slice(0, 9).map((known) => known?.verdict))).toEqual(new Set(['fits']));
  expect(new Set(cells.slice(9).map((known) => known?.verdict))).toEqual(new Set(['tight']));
});
