import { describe, expect, it } from 'vitest';
import { count, exact, gib, gibNumber, GIB, MIB, percent, size, unitFor } from './bytes';

const plain = (text: string): string => text.replaceAll('\u00a0', ' ');

describe('gib', () => {
  it('shows one decimal and the unit', () => {
    expect(plain(gib(8.14 * GIB))).toBe('8.1 GiB');
    expect(plain(gib(0))).toBe('0.0 GiB');
  });
  it('has a real minus sign, and none before zero', () => {
    expect(plain(gib(-2 * GIB))).toBe('−2.0 GiB');
    expect(gibNumber(-0.01 * GIB)).toBe('0.0');
  });
});

describe('size', () => {
  it('picks the unit that suits', () => {
    expect([0, 512, 1536, 1.5 * MIB, 12.25 * GIB, 820 * MIB].map((bytes) => plain(size(bytes)))).toEqual([
      '0 B',
      '512 B',
      '1.50 KiB',
      '1.50 MiB',
      '12.3 GiB',
      '820 MiB',
    ]);
  });
  it('never reads 1024 of a unit', () => {
    expect(plain(size(1024 * MIB - 1))).toBe('1.00 GiB');
  });
});

it('exact keeps every byte', () => {
  expect(plain(exact(35_433_480_192))).toBe('35,433,480,192 bytes');
});

it('count abbreviates as model cards do', () => {
  expect(plain(count(7_063_427_072))).toBe('7.06 B');
  expect(plain(count(20_979_712))).toBe('21.0 M');
  expect(count(12)).toBe('12');
});

it('percent stays within a bar', () => {
  expect(percent(1, 4)).toBe(25);
  expect(percent(5, 4)).toBe(100);
  expect(percent(1, 0)).toBe(0);
});

it('one unit serves a whole table', () => {
  expect(unitFor(5 * GIB, 10 * GIB).write(GIB / 1024)).toBe('1.0');
  expect(unitFor(5 * GIB, 10 * GIB).name).toBe('MiB');
  expect(unitFor(50 * GIB, 10 * GIB).write(GIB / 2)).toBe('0.50');
});
