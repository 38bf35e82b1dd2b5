// The run as a stacked area over its allocator events: paths in a box of WIDTH × HEIGHT, and where its phases begin.
import { FACTORS, type FactorKey } from '../format/factors';
import type { Phase, Report } from '../wasm/report';

export const WIDTH = 1000;
export const HEIGHT = 200;

export interface Area {
  key: FactorKey;
  path: string;
}

/** A stretch of the run, with its highest point. */
export interface Moment {
  /** In percent of the width. */
  from: number;
  to: number;
  event: number;
  op: string;
  module: string;
  phase: Phase | undefined;
  allocated: number;
  reserved: number;
  factors: { key: FactorKey; bytes: number }[];
}

export interface PhaseSpan {
  phase: Phase;
  /** In percent of the width. */
  from: number;
  to: number;
}

export interface Timeline {
  areas: Area[];
  /** The outline of what PyTorch has reserved. */
  reserved: string;
  spans: PhaseSpan[];
  /** Where the peak is, in percent of the width. */
  peak: number;
  moments: Moment[];
  /** The bytes that the full height stands for. */
  top: number;
}

/** Null where the report has no timeline to draw. */
export function timeline(report: Report): Timeline | null {
  const { columns, ops, modules, rows } = report.timeline;
  const column = (name: string): number => columns.indexOf(name);
  const at = { event: column('event'), allocated: column('allocated'), reserved: column('reserved') };
  const names = { op: column('op'), module: column('module') };
  const factors = FACTORS.map(({ key }) => ({ key, index: column(key) })).filter(({ index }) => index >= 0);
  if (rows.length < 2 || Math.min(at.event, at.allocated, at.reserved) < 0) return null;

  const value = (row: readonly number[], index: number): number => row[index] ?? 0;
  const last = Math.max(report.events, ...rows.map((row) => value(row, at.event) + 1));
  const top = Math.max(...rows.map((row) => Math.max(value(row, at.reserved), value(row, at.allocated))), 1);
  const x = (event: number): number => (WIDTH * event) / last;
  const y = (bytes: number): number => HEIGHT - (HEIGHT * bytes) / top;
  const starts = rows.map((row, i) => (i === 0 ? 0 : x(value(row, at.event))));
  const ends = rows.map((_, i) => starts[i + 1] ?? WIDTH);

  // Each area lies on those before it: `floor` is the height that they have reached.
  const floor = rows.map(() => 0);
  const areas = factors.map(({ key, index }) => {
    const bottom = steps(starts, ends, floor.map(y));
    rows.forEach((row, i) => (floor[i] = (floor[i] ?? 0) + value(row, index)));
    const lid = steps(starts, ends, floor.map(y));
    return { key, path: `M${lid.join('L')}L${bottom.reverse().join('L')}Z` };
  });
  const outline = steps(
    starts,
    ends,
    rows.map((row) => y(value(row, at.reserved))),
  );

  const highest = rows.reduce((best, row) => (value(row, at.allocated) > value(best, at.allocated) ? row : best));
  const percent = (event: number): number => (100 * event) / last;
  const moments = rows.map((row, i): Moment => {
    const event = value(row, at.event);
    return {
      from: (starts[i] ?? 0) / (WIDTH / 100),
      to: (ends[i] ?? WIDTH) / (WIDTH / 100),
      event,
      op: ops[value(row, names.op)] ?? '',
      module: modules[value(row, names.module)] ?? '',
      phase: report.phases.findLast((phase) => phase.event <= event) ?? report.phases[0],
      allocated: value(row, at.allocated),
      reserved: value(row, at.reserved),
      factors: factors.map(({ key, index }) => ({ key, bytes: value(row, index) })),
    };
  });
  return {
    moments,
    areas,
    reserved: `M${outline.join('L')}`,
    spans: report.phases.map((phase, i) => ({
      phase,
      from: percent(phase.event),
      to: percent(report.phases[i + 1]?.event ?? last),
    })),
    peak: percent(value(highest, at.event)),
    top,
  };
}

/** A level for each column, from its start to its end. */
function steps(starts: readonly number[], ends: readonly number[], levels: readonly number[]): string[] {
  return levels.flatMap((level, i) => {
    const y = level.toFixed(1);
    return [`${(starts[i] ?? 0).toFixed(1)} ${y}`, `${(ends[i] ?? 0).toFixed(1)} ${y}`];
  });
}

/** Every moment in numbers and names, under its columns, for a table. */
export function timelineTable({ timeline: { columns, ops, modules, rows } }: Report): string[][] {
  const names: Record<string, readonly string[]> = { op: ops, module: modules };
  const text = (column: string, value: number): string => names[column]?.[value] ?? String(value);
  return [columns, ...rows.map((row) => row.map((value, i) => text(columns[i] ?? '', value)))];
}

/** The moment at a place of the width, in percent. */
export function momentAt(drawn: Timeline, percent: number): Moment | undefined {
  return drawn.moments.find(({ to }) => percent < to) ?? drawn.moments.at(-1);
}
