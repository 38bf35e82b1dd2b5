import { describe, expect, it } from 'vitest';
import { parting, readHistory, type Large } from './history';
import { PickleError, readPickle } from './pickle';
import { MALICIOUS, PROTOCOL_2, SNAPSHOT } from './snapshot.fixture';

const MIB = 1 << 20;
const bytes = (base64: string): Uint8Array => Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
const code = (...parts: (number | string)[]): Uint8Array =>
  Uint8Array.from(
    parts.flatMap((part) => (typeof part === 'number' ? [part] : Array.from(part, (letter) => letter.charCodeAt(0)))),
  );

describe('a pickle', () => {
  it('is read as Python wrote it, in old and new protocols', () => {
    expect(readPickle(bytes(SNAPSHOT))).toEqual(readPickle(bytes(PROTOCOL_2)));
    expect(readPickle(code(0x80, 4, 0x4a, 0xfe, 0xff, 0xff, 0xff, '.'))).toBe(-2);
    expect(readPickle(code(0x80, 4, 0x8a, 1, 0xff, '.'))).toBe(-1);
    expect(readPickle(code(0x80, 4, 0x47, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0, '.'))).toBe(1.5);
  });

  it('tells how far it is', () => {
    const told: number[] = [];
    readPickle(bytes(SNAPSHOT), (read) => told.push(read));
    expect(told[told.length - 1]).toBe(bytes(SNAPSHOT).length);
  });

  it('runs nothing: whatever names code is refused, with its place', () => {
    expect(() => readPickle(bytes(MALICIOUS))).toThrow(/asks to run Python code.*at byte \d+/);
    for (const opcode of 'cRbioPQ\x81\x82\x92\x93')
      expect(() => readPickle(code(0x80, 4, opcode))).toThrow(PickleError);
    expect(() => readPickle(code(0x80, 4, '}', 0x8c, 9, '__proto__', '}s.'))).toThrow(/not one of a snapshot/);
  });

  it('that is cut off or damaged anywhere is an error, never a loop or a crash', () => {
    const whole = bytes(SNAPSHOT);
    for (let length = 0; length < whole.length; length += 7)
      expect(() => readPickle(whole.subarray(0, length))).toThrow(PickleError);
    for (let i = 0; i < whole.length; i += 3) {
      const broken = whole.slice();
      broken[i] = ((broken[i] ?? 0) + 97) % 256;
      try {
        readHistory(readPickle(broken));
      } catch (error) {
        expect(error).toBeInstanceOf(Error);
      }
    }
    expect(() => readPickle(code('not a pickle'))).toThrow(PickleError);
    expect(() => readPickle(code(0x80, 4, 'h', 5, '.'))).toThrow(/damaged/);
  });
});

describe('a history', () => {
  it('is followed from its end back to its beginning, and on to its peak', () => {
    const history = readHistory(readPickle(bytes(SNAPSHOT)));
    expect(history.peak).toEqual({ allocated: 10 * MIB + 512, reserved: 40 * MIB, event: 4 });
    expect(history.curve[0]).toEqual({ event: 0, allocated: 3 * MIB, reserved: 20 * MIB });
    expect(history.holders).toEqual([{ where: 'model.py: forward', bytes: 10 * MIB + 512 }]);
    expect(history.large.map(({ bytes }) => bytes)).toEqual([8 * MIB + 512, 2 * MIB]);
    expect(history.notes).toEqual([]);
  });

  it('without a trace, or of something else, says so', () => {
    const state = { segments: [{ device: 0, total_size: 5, blocks: [] }], device_traces: [[]] };
    expect(readHistory(state).notes.join()).toMatch(/No history was recorded/);
    expect(readHistory(state).peak.reserved).toBe(5);
    for (const other of [null, 3, 'x', [], {}, { segments: [] }])
      expect(() => readHistory(other)).toThrow(/no memory snapshot/);
  });

  it('of several devices is that of the busiest', () => {
    const event = { action: 'alloc', addr: 1, size: MIB, stream: 0 };
    const history = readHistory({ segments: [], device_traces: [[event], [event, { ...event, addr: 2 }]] });
    expect(history.device).toBe(1);
    expect(history.notes.join()).toMatch(/Several devices/);
  });
});

describe('two runs', () => {
  const run = (...sizes: number[]): Large[] =>
    sizes.map((size, event) => ({ event, bytes: size * MIB, where: String(size) }));

  it('are the same until they part', () => {
    expect(parting(run(1, 2, 3, 4), run(1, 2, 3, 4))).toEqual({ same: 4, of: 4, first: null });
    const apart = parting(run(1, 2, 3, 9, 4, 5, 6), run(1, 2, 3, 4, 5, 6));
    expect(apart.same).toBe(6);
    expect(apart.first?.measured?.where).toBe('9');
    expect(apart.first?.simulated?.where).toBe('4');
  });

  it('may begin at different moments', () => {
    expect(parting(run(3, 4, 5, 6), run(1, 2, 3, 4, 5, 6))).toMatchObject({ same: 4, of: 4, first: null });
    expect(parting(run(7), run(1, 2))).toMatchObject({ same: 0, first: { measured: { where: '7' } } });
    expect(parting([], run(1))).toMatchObject({ same: 0, of: 0 });
  });
});
