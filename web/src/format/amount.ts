// Figures that may be tiny or huge: a step's price, a training's energy.
import type { Cost } from '../wasm/report';

const NBSP = '\u00a0';

/** 0.0000283 → "0.0000283", 17285.4 → "17,285": three digits, or a whole number. */
export function amount(value: number): string {
  return value.toLocaleString('en-US', value < 100 ? { maximumSignificantDigits: 3 } : { maximumFractionDigits: 0 });
}

/** "17,285 kWh, price 66,480": what is known of the two. */
export function cost({ energy_kwh: energy, price }: Cost): string {
  const parts = [
    ...(energy === undefined ? [] : [`${amount(energy)}${NBSP}kWh`]),
    ...(price === undefined ? [] : [`price${NBSP}${amount(price)}`]),
  ];
  return parts.join(', ');
}
