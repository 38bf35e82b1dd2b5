// A grid of answers: two settings vary, everything else stays.
import type { Verdict } from '../wasm/report';
import { change } from './adopt';
import type { FieldKey, Setup } from './fields';
import { toJob } from './job';
import type { Job } from './job.generated';
import type { Model } from './model';

export interface Axis {
  key: FieldKey;
  values: string[];
}

export interface Grid {
  rows: Axis;
  columns: Axis;
}

/** What is known of a cell; null where the core refuses it. */
export interface Cell {
  verdict: Verdict;
  total: number;
  limit: number;
}

/** Row by row; undefined where nothing is known yet. */
export type Cells = (Cell | null | undefined)[];

/** Cells side by side in a row that say the same. */
export interface Run {
  row: number;
  from: number;
  /** The last one. */
  to: number;
  says: Verdict | 'refused' | 'unknown';
}

/** `steps` whole numbers, evenly up to `most`; fewer where they would repeat. */
export function upTo(most: number, steps: number): string[] {
  const values = Array.from({ length: steps }, (_, i) => Math.max(1, Math.round((most * (i + 1)) / steps)));
  return [...new Set(values)].map(String);
}

/** The settings of a cell. */
export function setupAt(setup: Setup, { rows, columns }: Grid, index: number): Setup {
  const row = rows.values[Math.floor(index / columns.values.length)] ?? setup[rows.key];
  const column = columns.values[index % columns.values.length] ?? setup[columns.key];
  return change(change(setup, rows.key, row, []), columns.key, column, []);
}

/** The cell of these settings, if they are one. */
export function cellOf(setup: Setup, { rows, columns }: Grid): number | null {
  const row = rows.values.indexOf(setup[rows.key]);
  const column = columns.values.indexOf(setup[columns.key]);
  return row < 0 || column < 0 ? null : row * columns.values.length + column;
}

/** What of the job the cell changes: the rest is sent once. */
export function variantAt(setup: Setup, model: Model, grid: Grid, index: number): Pick<Job, 'data' | 'gpu'> {
  const { data, gpu } = toJob(setupAt(setup, grid, index), model);
  return { ...(data ? { data } : {}), ...(gpu ? { gpu } : {}) };
}

export function readCell(json: string): Cell | null {
  const answer = JSON.parse(json) as
    { verdict: Verdict; peak: { total: number }; gpu: { usable_bytes: number } } | { error: unknown };
  if ('error' in answer) return null;
  return { verdict: answer.verdict, total: answer.peak.total, limit: answer.gpu.usable_bytes };
}

export function known(cells: Readonly<Cells>): number {
  return cells.reduce((sum, cell) => sum + (cell === undefined ? 0 : 1), 0);
}

function said(cell: Cell | null | undefined): Run['says'] {
  return cell === undefined ? 'unknown' : cell === null ? 'refused' : cell.verdict;
}

export function runs(cells: Readonly<Cells>, { columns }: Grid): Run[] {
  const width = columns.values.length;
  const found: Run[] = [];
  cells.forEach((cell, index) => {
    const says = said(cell);
    const row = Math.floor(index / width);
    const last = found.at(-1);
    if (last?.row === row && last.says === says) last.to = index % width;
    else found.push({ row, from: index % width, to: index % width, says });
  });
  return found;
}

/** The values of a row of which that is said: "1 to 12, 14". */
export function ranges(row: readonly Run[], says: Run['says'], write: (column: number) => string): string {
  return row
    .filter((run) => run.says === says)
    .map(({ from, to }) => (from === to ? write(from) : `${write(from)} to ${write(to)}`))
    .join(', ');
}
