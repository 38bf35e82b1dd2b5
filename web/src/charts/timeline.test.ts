import { expect, it } from 'vitest';
import type { Report } from '../wasm/report';
import { momentAt, timeline, timelineTable } from './timeline';

const columns = [
  'event',
  'allocated',
  'reserved',
  'parameters',
  'gradients',
  'optimizer_states',
  'activations',
  'temporaries',
  'buffers_and_inputs',
  'kv_cache',
  'allocator_rounding',
  'op',
  'module',
];

const report = {
  events: 100,
  phases: [
    { iteration: 0, name: 'init', event: 0, allocated: 50, reserved: 60 },
    { iteration: 1, name: 'forward', event: 25, allocated: 90, reserved: 100 },
  ],
  timeline: {
    columns,
    ops: ['parameter', 'mm'],
    modules: ['', 'lm_head'],
    rows: [
      [0, 50, 60, 50, 0, 0, 0, 0, 0, 0, 0, 0, 0],
      [50, 90, 100, 50, 0, 0, 40, 0, 0, 0, 0, 1, 1],
    ],
  },
} as unknown as Report;

it('stacks the factors as steps and finds the peak', () => {
  const drawn = timeline(report);
  expect(drawn?.top).toBe(100);
  expect(drawn?.peak).toBe(50);
  expect(drawn?.reserved).toBe('M0.0 80.0L500.0 80.0L500.0 0.0L1000.0 0.0');
  expect(drawn?.areas.find(({ key }) => key === 'activations')?.path).toBe(
    'M0.0 100.0L500.0 100.0L500.0 20.0L1000.0 20.0L1000.0 100.0L500.0 100.0L500.0 100.0L0.0 100.0Z',
  );
  expect(drawn?.spans.map(({ from, to }) => [from, to])).toEqual([
    [0, 25],
    [25, 100],
  ]);
});

it('tells what was held at a moment', () => {
  const drawn = timeline(report);
  if (!drawn) throw new Error('nothing drawn');
  expect(momentAt(drawn, 10)).toMatchObject({ event: 0, allocated: 50, phase: { name: 'init' } });
  expect(momentAt(drawn, 50)).toMatchObject({
    event: 50,
    reserved: 100,
    op: 'mm',
    module: 'lm_head',
    phase: { name: 'forward' },
    from: 50,
    to: 100,
  });
  expect(momentAt(drawn, 100)?.factors).toContainEqual({ key: 'activations', bytes: 40 });
});

it('is a table with names', () => {
  expect(timelineTable(report)[2]).toEqual([
    '50',
    '90',
    '100',
    '50',
    '0',
    '0',
    '40',
    '0',
    '0',
    '0',
    '0',
    'mm',
    'lm_head',
  ]);
});

it('draws nothing where there is nothing to draw', () => {
  expect(timeline({ ...report, timeline: { ...report.timeline, rows: [] } })).toBeNull();
  expect(timeline({ ...report, timeline: { ...report.timeline, columns: [], rows: [[], []] } })).toBeNull();
});
