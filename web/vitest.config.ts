import { defineConfig } from 'vitest/config';
import { presetTraits } from './vite.plugins';

export default defineConfig({
  plugins: [presetTraits()],
  server: { fs: { allow: ['..'] } },
  test: { include: ['src/**/*.test.ts'], environment: 'node' },
});
