import { defineConfig } from 'vitest/config';
import { presetTraits } from './presets.plugin';

export default defineConfig({
  plugins: [presetTraits()],
  test: { include: ['src/**/*.test.ts'], environment: 'node' },
});
