import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';
import { models } from './vite.plugins';

const here = fileURLToPath(new URL('.', import.meta.url));

// The tests live in tests/web; their packages live here.
export default defineConfig({
  plugins: [models()],
  resolve: {
    alias: [
      { find: /^playwright-core$/, replacement: resolve(here, 'node_modules/playwright-core/index.mjs') },
      { find: /^axe-core$/, replacement: resolve(here, 'node_modules/axe-core/axe.js') },
      { find: /^vitest$/, replacement: resolve(here, 'node_modules/vitest/dist/index.js') },
    ],
  },
  server: { fs: { allow: ['..'] } },
  test: {
    dir: '../tests/web',
    environment: 'node',
    testTimeout: 120_000,
    hookTimeout: 120_000,
    expect: { poll: { timeout: 60_000 } }, // no test measures time: a slow machine only waits longer
    maxWorkers: '100%', // else one on two cores
  },
});
