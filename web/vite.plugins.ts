import { readdirSync, readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Plugin } from 'vite';
import { traits } from './src/state/model';

const here = fileURLToPath(new URL('.', import.meta.url));
const folder = resolve(here, '../presets/models');
const name = 'virtual:preset-traits';

interface ModelFile {
  id: string;
  config: Record<string, unknown>;
  defaults?: { sequence_length?: number };
}

/** What the form needs to know of each preset, read from presets/models at build: the configs themselves stay out. */
export function presetTraits(): Plugin {
  return {
    name,
    resolveId: (id) => (id === name ? '\0' + name : null),
    load(id) {
      if (id !== '\0' + name) return null;
      const models = readdirSync(folder)
        .filter((file) => file.endsWith('.json'))
        .map((file) => JSON.parse(readFileSync(`${folder}/${file}`, 'utf8')) as ModelFile)
        .map(({ id, config, defaults }) => [
          id,
          { ...traits(config), sequence_length: defaults?.sequence_length ?? null },
        ]);
      return `export default ${JSON.stringify(Object.fromEntries(models))}`;
    },
  };
}

/** Lets the browser fetch the core while it still reads the page's own script: the first answer waits for both. */
export function preloadCore(): Plugin {
  return {
    name: 'preload-core',
    transformIndexHtml: {
      order: 'post',
      handler: (_html, { bundle }) =>
        Object.keys(bundle ?? {}).flatMap((file) => {
          const href = `./${file}`;
          if (/oometer-[^/]*\.wasm$/.test(file)) {
            const attrs = { rel: 'preload', as: 'fetch', type: 'application/wasm', crossorigin: '', href };
            return [{ tag: 'link', injectTo: 'head' as const, attrs }];
          }
          if (/oometer-[^/]*\.js$/.test(file)) {
            return [{ tag: 'link', injectTo: 'head' as const, attrs: { rel: 'modulepreload', crossorigin: '', href } }];
          }
          return [];
        }),
    },
  };
}
