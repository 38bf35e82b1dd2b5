/** Round values from zero up to `top`, about `wanted` of them: 1, 2 or 5 times a power of ten. */
export function ticks(top: number, wanted = 4): number[] {
  if (!(top > 0)) return [0];
  const rough = top / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 5].find((factor) => factor * power >= rough) ?? 10) * power;
  return Array.from({ length: Math.floor(top / step + 1e-9) + 1 }, (_, i) => i * step);
}
