// Times as people read them.

const NBSP = '\u00a0';
const MINUS = '\u2212';

/** 0.4123 → "412 ms", 3.731 → "3.73 s", 754 → "12.6 min": three digits. */
export function seconds(value: number): string {
  const steps: [number, string][] = [
    [3600, 'h'],
    [60, 'min'],
    [1, 's'],
    [1e-3, 'ms'],
  ];
  const [unit, name] = steps.find(([least]) => value >= 0.9995 * least) ?? [1e-6, 'µs'];
  const count = value / unit;
  return count.toFixed(count < 9.995 ? 2 : count < 99.95 ? 1 : 0) + NBSP + name;
}

/** What a change does to the time of each token: "+26 % time", "−10 % time", "±0 % time"; "" where either is unknown. */
export function timeThen(now: number | null, then: number | null): string {
  if (!now || !then) return '';
  const percent = Math.round(100 * (now / then - 1));
  return `${percent < 0 ? MINUS : percent > 0 ? '+' : '±'}${Math.abs(percent).toLocaleString('en-US')}${NBSP}%${NBSP}time`;
}
