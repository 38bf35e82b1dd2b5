// The widget beside the site: dist/widget.js, which fetches only the core's first part, and the rest for a job or a view
// that needs it.
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vite';
import { coreFolder, laterParts, models } from './vite.plugins';

const here = fileURLToPath(new URL('.', import.meta.url));

export default defineConfig(() => ({
  base: './',
  plugins: [models(), laterParts()],
  resolve: { alias: { 'oometer-core': coreFolder() } },
  publicDir: false as const,
  build: {
    outDir: '../dist',
    emptyOutDir: false, // the site is there already
    target: 'es2022',
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rollupOptions: {
      input: resolve(here, 'src/widget/main.ts'),
      // Nothing imports widget.js itself, so that a page may load it under any address, such as widget.js?v=2.
      preserveEntrySignatures: 'strict' as const,
      output: {
        entryFileNames: 'widget.js',
        chunkFileNames: 'assets/widget-[name]-[hash].js',
        manualChunks: { main: ['src/widget/main.ts', 'src/wasm/oometer.ts'].map((file) => resolve(here, file)) },
      },
    },
  },
}));
