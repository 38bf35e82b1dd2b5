import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vite';
import { preloadCore, presetTraits } from './vite.plugins';

const here = fileURLToPath(new URL('.', import.meta.url));

// The compiled core lies outside this folder; `./dev build` makes it.
const core = resolve(here, process.env.OOMETER_WASM ?? '../build/wasm');

export default defineConfig(() => {
  if (!existsSync(`${core}/oometer.mjs`)) {
    throw new Error(`${core}/oometer.mjs is missing: run ./dev build in the repository`);
  }
  return {
    base: './', // works from any sub-path
    plugins: [presetTraits(), preloadCore()],
    resolve: { alias: { 'oometer-core': core } },
    server: { fs: { allow: ['..'] } },
    build: {
      outDir: '../dist',
      emptyOutDir: true,
      target: 'es2022',
      assetsInlineLimit: 0, // data: addresses would need room in the Content-Security-Policy
      modulePreload: { polyfill: false },
    },
  };
});
