import { expect, it } from 'vitest';
import { nextTheme } from './theme';

it('always changes what is seen first, then comes back to the system', () => {
  expect(nextTheme('system', false)).toBe('dark');
  expect(nextTheme('system', true)).toBe('light');
  expect(nextTheme('dark', false)).toBe('light');
  expect(nextTheme('light', false)).toBe('system');
});
