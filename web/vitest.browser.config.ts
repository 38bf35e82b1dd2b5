import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';

const here = fileURLToPath(new URL('.', import.meta.url));

// The tests live in tests/web; their packages live here.
export default defineConfig({
  root: resolve(here, '..'),
  resolve: {
    alias: Object.fromEntries(
      ['playwright-core', 'axe-core', 'vitest'].map((name) => [name, resolve(here, 'node_modules', name)]),
    ),
  },
  test: { include: ['tests/web/**/*.test.ts'], environment: 'node', testTimeout: 30_000, hookTimeout: 60_000 },
});
