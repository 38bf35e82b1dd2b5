import { expect, it } from 'vitest';
import type { Lane } from '../wasm/time';
import { area, spans } from './lanes';

const lane = (phase: string, smact: number): Lane => ({
  phase,
  seconds: 0.1,
  smact,
  tenso: 0,
  drama: 0,
  communication: 0,
  idle: 1 - smact,
});
const step = [lane('forward', 1), lane('backward', 0.5), lane('backward', 0), lane('optimizer', 0.25)];

it('an area has a column for each stretch', () => {
  expect(area(step, ({ smact }) => smact)).toBe('M0 100V0H1V50H2V100H3V75H4V100Z');
  expect(area([], () => 1)).toBe('M0 100V100Z');
});

it('a phase spans the stretches that follow one another in it', () => {
  expect(spans(step)).toEqual([
    { phase: 'forward', from: 0, to: 25 },
    { phase: 'backward', from: 25, to: 75 },
    { phase: 'optimizer', from: 75, to: 100 },
  ]);
  expect(spans([...step, lane('forward', 1)]).map(({ phase }) => phase)).toContain('forward');
});
