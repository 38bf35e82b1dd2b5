// Writes dist/sw.js: what the page needs without a network, under a name that changes with it.
import { createHash } from 'node:crypto';
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { OF_REST } from '../../wasm/parts.mjs';
import { dist, filesOf } from './site.js';

const pages = ['method.html', 'accuracy.html', 'comparison.html', 'compare.html'];
// Of the core's later parts the rest's files alone: those of families are kept once they are asked for.
const isOfRest = (file) => OF_REST.some((part) => file.startsWith(`oometer.${part}-`));
const rest = readdirSync(join(dist, 'assets')).filter(isOfRest);
const named = pages.reduce((found, page) => filesOf(page, found), filesOf('index.html'));
const files = [...named, ...rest.map((file) => `assets/${file}`)].sort();
const hash = createHash('sha256');
for (const file of files) hash.update(file).update(readFileSync(join(dist, file)));

// The folder's own address is a page, too.
const kept = ['./', ...files.map((file) => `./${file}`)].map((file) => `'${file}'`).join(', ');
const template = readFileSync(new URL('../src/offline/sw.js', import.meta.url), 'utf8');
const worker = template.replace('__VERSION__', hash.digest('hex').slice(0, 12)).replace("'__FILES__'", kept);
writeFileSync(join(dist, 'sw.js'), worker);
