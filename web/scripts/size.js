// Prints what the page and the widget weigh until their first answer, compressed as browsers take it (brotli; gzip beside
// it), beside what was promised, and fails when one weighs more. What comes after the first answer is weighed part by part.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import { dist, filesOf } from './site.js';

const CORE = /oometer-[^/]*\.(js|wasm)$/;
const named = (pattern) =>
  readdirSync(join(dist, 'assets'))
    .filter((file) => pattern.test(file))
    .map((file) => `assets/${file}`);
const LATER = named(
  /^(oometer\.\w+-.*\.wasm|(later|import|yaml|widget-views|words\.generated)-.*\.js|models-.*\.json)$/,
);
/** Without what comes later. */
const firstFilesOf = (entry) => [...filesOf(entry, new Set(LATER))].filter((file) => !LATER.includes(file));
const weight = (files, compress) =>
  files.reduce((sum, file) => sum + compress(readFileSync(join(dist, file))).length, 0);

const page = firstFilesOf('index.html');
const parts = [
  ['first core', page.filter((file) => CORE.test(file)), 170_000],
  ['page: JS + CSS', page.filter((file) => /\.(js|css)$/.test(file) && !CORE.test(file)), 90_000],
  ['page: everything', page, 235_000],
  ['widget: everything', firstFilesOf('widget.js'), 200_000],
  ...LATER.map((file) => [/[\w.]+/.exec(file.slice(7))[0], [file], 160_000]),
];
const kilobytes = (bytes) => (bytes / 1000).toFixed(1).padStart(6);
for (const [part, files, most] of parts) {
  const brotli = weight(files, brotliCompressSync);
  const gzip = weight(files, (data) => gzipSync(data, { level: 9 }));
  console.log(
    `${part.padEnd(20)} ${kilobytes(brotli)} kB brotli  (at most ${most / 1000}), ${kilobytes(gzip)} kB gzip`,
  );
  if (brotli > most) process.exitCode = 1;
}
