import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { START, type Setup } from './fields';
import { read, write } from './permalink';

describe('write', () => {
  it('is empty for the start, and holds only what differs', () => {
    expect(write(START)).toBe('');
    expect(write({ ...START, model: 'llava-1.5-13b', mbs: '16' })).toBe('#v1?model=llava-1.5-13b&mbs=16');
  });
  it('survives whatever was typed', () => {
    const setup = { ...START, mbs: '1,000 ', seq: '-1.5e3' };
    expect(read(write(setup))).toEqual({ setup, pins: [], problems: [] });
  });
});

describe('read', () => {
  it('of nothing is the start', () => {
    expect(read('')).toEqual({ setup: START, pins: [], problems: [] });
    expect(read('#')).toEqual({ setup: START, pins: [], problems: [] });
    expect(read('#v1')).toEqual({ setup: START, pins: [], problems: [] });
  });

  it('applies what it can and names what it cannot', () => {
    const link = read('#v1?mbs=16&colour=red&stage=sideways&gpu=abacus', { gpu: ['h100-80gb'] });
    expect(link.setup).toEqual({ ...START, mbs: '16' });
    expect(link.problems).toEqual([
      'It sets “colour”, which this page does not know.',
      'Stage cannot be “sideways”.',
      'GPU cannot be “abacus”.',
    ]);
  });

  it.each([
    '#v2?mbs=1',
    '#v999',
    '#hello',
    '#v1!',
    '#?mbs=2',
    '#%E0%A4%A',
    '#v1?mbs=%',
    '#v1?mbs=<b>',
    '#v1?__proto__=1',
  ])('refuses %s with a reason', (fragment) => {
    const link = read(fragment);
    expect(link.setup).toEqual(START);
    expect(link.problems).toHaveLength(1);
  });

  it('does not choke on a very long fragment', () => {
    expect(read('#v1?mbs=' + '9'.repeat(1e6)).problems).toHaveLength(1);
  });
});

describe('pins', () => {
  const small: Setup = { ...START, mbs: '1' };
  const own: Setup = { ...START, config: 'q1YqLkksSVWyUlAqzszJTFWyqgYA' };

  it('stand after slashes, even where all are the start', () => {
    expect(write(START, [small])).toBe('#v1?/mbs=1');
    expect(write(small, [START, own])).toBe('#v1?mbs=1//config=q1YqLkksSVWyUlAqzszJTFWyqgYA');
    expect(write(small, [START])).toBe('#v1?mbs=1/');
    for (const pins of [[small], [START], [START, START], [own, small, START, own]]) {
      expect(read(write(START, pins))).toEqual({ setup: START, pins, problems: [] });
    }
  });

  it('are no more than fit beside each other', () => {
    const link = read('#v1?/mbs=1/mbs=2/mbs=3/mbs=4/mbs=5');
    expect(link.pins).toHaveLength(4);
    expect(link.problems).toHaveLength(1);
  });

  it('name what is wrong with them', () => {
    expect(read('#v1?mbs=1/x=1&config=<b>').problems).toHaveLength(2);
  });
});

interface Sample {
  link: string;
  differs: Partial<Setup>;
  pins: Partial<Setup>[];
}

// Links that were given out: they open for ever. Add samples; never change one.
const folder = new URL('../../../tests/permalinks/', import.meta.url);
const samples = readdirSync(folder)
  .filter((name) => name.endsWith('.txt'))
  .flatMap((name) => readFileSync(new URL(name, folder), 'utf8').split('\n'))
  .filter((line) => line.startsWith('#v'))
  .map((line): Sample => {
    const [link = '', differs = '', pins = '[]'] = line.split('\t');
    return { link, differs: JSON.parse(differs) as Partial<Setup>, pins: JSON.parse(pins) as Partial<Setup>[] };
  });

it('has samples to keep', () => {
  expect(samples.length).toBeGreaterThan(5);
});

it('has a sample of each setting', () => {
  const seen = new Set(samples.flatMap(({ differs, pins }) => [differs, ...pins].flatMap((part) => Object.keys(part))));
  expect(Object.keys(START).filter((key) => !seen.has(key))).toEqual([]);
});

it.each(samples)('still opens $link', ({ link, differs, pins }) => {
  const full = (part: Partial<Setup>): Setup => ({ ...START, ...part });
  expect(read(link)).toEqual({ setup: full(differs), pins: pins.map(full), problems: [] });
});
