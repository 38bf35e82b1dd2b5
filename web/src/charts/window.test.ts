import { describe, expect, it } from 'vitest';
import { centred, moved, WHOLE, zoomed } from './window';

describe('the window on a picture', () => {
  it('is zoomed about a place that stays where it is', () => {
    const half = zoomed(WHOLE, 0.5, 25);
    expect(half).toEqual({ from: 12.5, to: 62.5 });
    expect((25 - half.from) / (half.to - half.from)).toBe(0.25);
    expect(zoomed(half, 2, 25)).toBe(WHOLE);
  });

  it('neither leaves the picture nor closes', () => {
    expect(zoomed({ from: 0, to: 10 }, 2, 10)).toEqual({ from: 0, to: 20 });
    expect(moved({ from: 80, to: 90 }, 5)).toEqual({ from: 90, to: 100 });
    expect(moved({ from: 10, to: 20 }, -5)).toEqual({ from: 0, to: 10 });
    const closest = zoomed({ from: 50, to: 50.1 }, 0.01, 50.05);
    expect(closest.to - closest.from).toBeCloseTo(0.1);
  });

  it('moves to where somebody points', () => {
    expect(centred({ from: 0, to: 10 }, 50)).toEqual({ from: 45, to: 55 });
    expect(centred({ from: 0, to: 10 }, 99)).toEqual({ from: 90, to: 100 });
  });
});
