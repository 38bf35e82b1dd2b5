import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vite';
import { coreFolder, hubModels, laterParts, models, offerTool, preloadCore, readmeTables } from './vite.plugins';

const here = fileURLToPath(new URL('.', import.meta.url));

export default defineConfig(() => ({
  base: './', // works from any sub-path
  plugins: [models(), hubModels(), laterParts(), preloadCore(), readmeTables(), offerTool()],
  resolve: { alias: { 'oometer-core': coreFolder() } },
  server: { fs: { allow: ['..'] } },
  build: {
    outDir: '../dist',
    emptyOutDir: true,
    target: 'es2022',
    assetsInlineLimit: 0, // data: addresses would need room in the Content-Security-Policy
    modulePreload: { polyfill: false },
    rollupOptions: {
      input: ['index.html', 'method.html', 'accuracy.html', 'comparison.html', 'compare.html', 'embed.html'].map(
        (page) => resolve(here, page),
      ),
    },
  },
}));
