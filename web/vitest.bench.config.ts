import { mergeConfig } from 'vitest/config';
import browser from './vitest.browser.config';

// What `./dev bench` measures in a browser.
export default mergeConfig(browser, {
  test: {
    include: ['**/speed.bench.ts'],
    maxWorkers: 1,
    testTimeout: 600_000,
    reporters: [['default', { summary: false }]],
  },
});
