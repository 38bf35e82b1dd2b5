import { expect, it } from 'vitest';
import { amount, cost } from './amount';

it('a figure has three digits, or is whole', () => {
  expect(amount(0.0000283194)).toBe('0.0000283');
  expect(amount(1.089)).toBe('1.09');
  expect(amount(99.96)).toBe('100');
  expect(amount(17284.8)).toBe('17,285');
  expect(amount(0)).toBe('0');
});

it('a cost is what is known of energy and price', () => {
  expect(cost({ energy_kwh: 17284.8, price: 66480 })).toBe('17,285\u00a0kWh, price\u00a066,480');
  expect(cost({ price: 0.5 })).toBe('price\u00a00.5');
  expect(cost({})).toBe('');
});
