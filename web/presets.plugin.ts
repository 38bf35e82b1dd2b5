import { readdirSync, readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Plugin } from 'vite';
import { traits } from './src/state/traits';

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
