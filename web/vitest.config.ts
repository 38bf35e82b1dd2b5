import { defineConfig } from 'vitest/config';
import { models } from './vite.plugins';

export default defineConfig({
  plugins: [models()],
  server: { fs: { allow: ['..'] } },
  test: { include: ['src/**/*.test.ts'], environment: 'node' },
});
