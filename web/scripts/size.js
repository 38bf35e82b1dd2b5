// Prints what the page weighs, compressed, and fails when it outgrows its budget.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';

const dist = new URL('../../dist/', import.meta.url).pathname;
const budget = { 'page (JS + CSS)': 60_000, everything: 250_000 };
const sizes = { 'page (JS + CSS)': 0, core: 0, everything: 0 };

for (const name of readdirSync(dist, { recursive: true })) {
  if (!/\.(html|js|mjs|css|wasm|svg)$/.test(name)) continue;
  const bytes = gzipSync(readFileSync(join(dist, name)), { level: 9 }).length;
  sizes.everything += bytes;
  if (/oometer[^/]*\.(js|mjs|wasm)$/.test(name)) sizes.core += bytes;
  else if (/\.(js|mjs|css)$/.test(name)) sizes['page (JS + CSS)'] += bytes;
}
for (const [part, bytes] of Object.entries(sizes)) {
  const limit = budget[part];
  console.log(
    `${part.padEnd(16)} ${(bytes / 1000).toFixed(1).padStart(6)} kB gzip${limit ? ` of ${limit / 1000} kB` : ''}`,
  );
  if (limit && bytes > limit) process.exitCode = 1;
}
