import { describe, expect, it } from 'vitest';
import { describeLengths, histogramOf, isLengths, packLengths, readLengths } from './lengths';

describe('readLengths', () => {
  it.each([
    [
      '512 700\n512',
      [
        [512, 2],
        [700, 1],
      ],
    ],
    [
      '[700, 512, 512]',
      [
        [512, 2],
        [700, 1],
      ],
    ],
    [
      '[[700, 3], [512, 2], [700, 1]]',
      [
        [512, 2],
        [700, 4],
      ],
    ],
    [
      '{"512": 300, "64": 2}',
      [
        [64, 2],
        [512, 300],
      ],
    ],
    ['{"lengths": [8, 8]}', [[8, 2]]],
    ['{"histogram": [[8, 0], [16, 1]]}', [[16, 1]]],
    [
      '512 × 300, 1024x5;64*2',
      [
        [64, 2],
        [512, 300],
        [1024, 5],
      ],
    ],
    [
      'length,count\n512,300\n1024,5\n',
      [
        [512, 300],
        [1024, 5],
      ],
    ],
    ['tokens\r\n9\r\n9\r\n', [[9, 2]]],
  ])('reads %j', (text, bars) => {
    expect(readLengths(text)).toEqual(bars);
    expect(isLengths(text)).toBe(true);
  });

  it.each([
    '',
    '[]',
    '0',
    '512, many',
    '[1.5]',
    '-3',
    '[[512, 1, 2]]',
    '{"a": 1}',
    '"text"',
    '[512',
    'length\nx',
    '5x5x5',
  ])('refuses %j in a sentence', (text) => {
    expect(() => readLengths(text)).toThrow(/\.$/);
  });

  it('refuses more different lengths than a link holds', () => {
    expect(() => readLengths(Array.from({ length: 5000 }, (_, i) => i + 1).join(' '))).toThrow(/Round them/);
  });
});

it('tells lengths from what else is dropped', () => {
  expect(isLengths('{"model_type": "llama"}')).toBe(false);
  expect(isLengths('{"zero_optimization": {}}')).toBe(false);
  expect(isLengths('compute_environment: LOCAL')).toBe(false);
});

it('packs lengths for a link, and tells what they are', () => {
  const packed = packLengths([
    [64, 2],
    [1024, 300],
  ]);
  expect(packed).toBe('64x2-1024x300');
  expect(histogramOf(packed)).toEqual([
    [64, 2],
    [1024, 300],
  ]);
  expect(histogramOf('')).toEqual([]);
  expect(describeLengths(packed)).toBe('302 samples of 64 to 1,024 tokens, 1,018 on average');
  expect(describeLengths('1x1')).toBe('1 sample of 1 token');
});
