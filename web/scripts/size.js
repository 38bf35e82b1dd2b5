// Prints what the page and the widget weigh, compressed as browsers take it (brotli; gzip beside it), beside what was
// promised, and fails when one outgrows what it weighs today: a budget that only ever goes down, until the promise is kept.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import { dist, filesOf } from './site.js';

const CORE = /oometer-[^/]*\.(js|wasm)$/;
const weight = (files, compress) =>
  files.reduce((sum, file) => sum + compress(readFileSync(join(dist, file))).length, 0);

const page = [...filesOf('index.html')];
const parts = [
  ['core', page.filter((file) => CORE.test(file)), 200_000, 208_000],
  ['page: JS + CSS', page.filter((file) => /\.(js|css)$/.test(file) && !CORE.test(file)), 90_000, 90_000],
  ['page: everything', page, 250_000, 260_000],
  ['widget: everything', [...filesOf('widget.js')], 200_000, 215_000],
];
const kilobytes = (bytes) => (bytes / 1000).toFixed(1).padStart(6);
for (const [part, files, promise, budget] of parts) {
  const brotli = weight(files, brotliCompressSync);
  const gzip = weight(files, (data) => gzipSync(data, { level: 9 }));
  const kept = brotli <= promise ? 'met' : 'NOT MET';
  console.log(
    `${part.padEnd(20)} ${kilobytes(brotli)} kB brotli  (must: ${promise / 1000}, ${kept}), ${kilobytes(gzip)} kB gzip`,
  );
  if (brotli > budget) process.exitCode = 1;
}
