// Sizes as people read them. Binary units only: GPUs, PyTorch and nvidia-smi all count in GiB.

export const KIB = 1024;
export const MIB = 1024 ** 2;
export const GIB = 1024 ** 3;

/** Between a number and its unit: the two must not part at a line's end. */
const NBSP = '\u00a0';
const MINUS = '\u2212';

/** 1536 → "1,536". */
export const grouped = new Intl.NumberFormat('en-US');

/** 8589934592 → "8.0": for a table whose heading already says GiB. */
export function gibNumber(bytes: number, digits = 1): string {
  const text = (Math.abs(bytes) / GIB).toFixed(digits);
  const negative = bytes < 0 && Number(text) !== 0;
  return (negative ? MINUS : '') + text;
}

/** 8589934592 → "8.0 GiB". */
export function gib(bytes: number, digits = 1): string {
  return gibNumber(bytes, digits) + NBSP + 'GiB';
}

/** One unit for a whole table, so that its figures can be compared at a glance. */
export interface Unit {
  name: string;
  write: (bytes: number) => string;
}

/** GiB, or MiB where the whole is smaller than `small`. */
export function unitFor(whole: number, small: number): Unit {
  return whole < small
    ? { name: 'MiB', write: (bytes) => (bytes / MIB).toFixed(1) }
    : { name: 'GiB', write: (bytes) => gibNumber(bytes, 2) };
}

/** The unit that suits the size, three significant digits: "512 B", "1.50 MiB", "12.2 GiB". */
export function size(bytes: number): string {
  const magnitude = Math.abs(bytes);
  const steps: [number, string][] = [
    [GIB, 'GiB'],
    [MIB, 'MiB'],
    [KIB, 'KiB'],
  ];
  for (const [unit, name] of steps) {
    // From 999.5 of the unit below, three digits would read "1000".
    if (magnitude < 0.9995 * unit) continue;
    const value = magnitude / unit;
    const digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    return (bytes < 0 ? MINUS : '') + value.toFixed(digits) + NBSP + name;
  }
  return (bytes < 0 ? MINUS : '') + magnitude.toFixed(0) + NBSP + 'B';
}

/** 8589934592 → "8,589,934,592 bytes": the figure behind a rounded one. */
export function exact(bytes: number): string {
  return grouped.format(bytes) + NBSP + 'bytes';
}

/** 7063427072 → "7.06 B": how many parameters a model has. */
export function count(n: number): string {
  const steps: [number, string][] = [
    [1e12, 'T'],
    [1e9, 'B'],
    [1e6, 'M'],
    [1e3, 'k'],
  ];
  for (const [unit, name] of steps) {
    if (n >= unit) return (n / unit).toPrecision(3) + NBSP + name;
  }
  return String(n);
}

/** A share of a whole, for a bar's width. */
export function percent(part: number, whole: number): number {
  return whole > 0 ? Math.max(0, Math.min(100, (100 * part) / whole)) : 0;
}
