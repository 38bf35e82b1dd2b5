// Prints what the page and the widget weigh, compressed as browsers take it (brotli; gzip beside it), and fails when one
// outgrows its budget.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import { dist, filesOf } from './site.js';

const CORE = /oometer-[^/]*\.(js|wasm)$/;
const weight = (files, compress) =>
  files.reduce((sum, file) => sum + compress(readFileSync(join(dist, file))).length, 0);

const page = [...filesOf('index.html')];
const parts = [
  ['core', page.filter((file) => CORE.test(file)), 200_000],
  ['page: JS + CSS', page.filter((file) => /\.(js|css)$/.test(file) && !CORE.test(file)), 90_000],
  ['page: everything', page, 250_000],
  ['widget: everything', [...filesOf('widget.js')], 200_000],
];
const kilobytes = (bytes) => (bytes / 1000).toFixed(1).padStart(6);
for (const [part, files, limit] of parts) {
  const brotli = weight(files, brotliCompressSync);
  const gzip = weight(files, (data) => gzipSync(data, { level: 9 }));
  console.log(`${part.padEnd(20)} ${kilobytes(brotli)} of ${limit / 1000} kB brotli, ${kilobytes(gzip)} kB gzip`);
  if (brotli > limit) process.exitCode = 1;
}
