// The widget for the npm package: npm/widget, beside the core that the package has already.
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { defineConfig, type Plugin } from 'vite';
import { models } from './vite.plugins';

const here = fileURLToPath(new URL('.', import.meta.url));
const scripts = ['oometer-core/oometer.mjs', 'oometer-core/parts.mjs'];

/** The parts lie in the package's `core` under their own names. */
function packagedCore(): Plugin {
  const first = 'oometer-core/oometer.wasm?url';
  return {
    name: 'packaged-core',
    enforce: 'pre',
    resolveId: (id) => (id === first ? '\0' + first : null),
    load: (id) =>
      id === '\0' + first
        ? 'export default new URL(/* @vite-ignore */ "../core/oometer.wasm", import.meta.url).href'
        : null,
  };
}

export default defineConfig(() => ({
  base: './',
  plugins: [packagedCore(), models()],
  publicDir: false as const,
  build: {
    outDir: '../npm/widget',
    emptyOutDir: true,
    target: 'es2022',
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rollupOptions: {
      input: resolve(here, 'src/widget/package.ts'),
      preserveEntrySignatures: 'strict' as const,
      external: scripts,
      output: {
        paths: Object.fromEntries(scripts.map((script) => [script, script.replace('oometer-core', '../core')])),
        entryFileNames: 'widget.mjs',
        chunkFileNames: '[name].mjs',
        assetFileNames: '[name][extname]',
        manualChunks: { main: ['src/widget/package.ts', 'src/wasm/oometer.ts'].map((file) => resolve(here, file)) },
      },
    },
  },
}));
