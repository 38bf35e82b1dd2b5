// Prints what the page and the widget weigh, compressed, and fails when one outgrows its budget.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { dist, filesOf } from './site.js';

const CORE = /oometer-[^/]*\.(js|wasm)$/;
const weight = (files) =>
  files.reduce((sum, file) => sum + gzipSync(readFileSync(join(dist, file)), { level: 9 }).length, 0);

const page = [...filesOf('index.html')];
const parts = [
  ['core', weight(page.filter((file) => CORE.test(file))), 200_000],
  ['page: JS + CSS', weight(page.filter((file) => /\.(js|css)$/.test(file) && !CORE.test(file))), 90_000],
  ['page: everything', weight(page), 250_000],
  ['widget: everything', weight([...filesOf('widget.js')]), 200_000],
];
for (const [part, bytes, limit] of parts) {
  console.log(`${part.padEnd(20)} ${(bytes / 1000).toFixed(1).padStart(6)} kB gzip of ${limit / 1000} kB`);
  if (bytes > limit) process.exitCode = 1;
}
