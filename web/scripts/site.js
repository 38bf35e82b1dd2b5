// What belongs to what in dist/: a page and every file that it leads to by name.
import { existsSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';

export const dist = new URL('../../dist/', import.meta.url).pathname;

/** `entry` and all scripts, styles, modules and data that it names, directly or not. */
export function filesOf(entry, found = new Set()) {
  if (found.has(entry)) return found;
  found.add(entry);
  if (!/\.(html|js|css)$/.test(entry)) return found;
  for (const [name] of readFileSync(join(dist, entry), 'utf8').matchAll(/[\w.-]+\.(?:js|css|wasm|json)\b/g)) {
    const file = `assets/${basename(name)}`;
    if (existsSync(join(dist, file))) filesOf(file, found);
  }
  return found;
}
