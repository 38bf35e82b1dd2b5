// The core in its parts: what a first answer runs, and others by their names. A page runs this script first,
// beside its own, which is still being read when the first part is compiled; so nothing here may import what the page
// imports, too. Workers start from it as well, so that what a browser has loaded already is all they need.
import create, { type Oometer } from 'oometer-core/oometer.mjs';
import first from 'oometer-core/oometer.wasm?url';
import { instantiate, OF_REST, type Modules } from 'oometer-core/parts.mjs';
import { compile } from './load';
import { serve } from './serve';

/** The others lie beside the first, under a like name (laterParts in vite.plugins.ts). */
const addressOf = (part: string): string =>
  part === 'first' ? first : first.replace(/oometer(?=[^/]*$)/, `oometer.${part}`);

/** What is compiled, or being compiled. */
const modules = new Map<string, Promise<WebAssembly.Module>>();

function module(part: string): Promise<WebAssembly.Module> {
  const known = modules.get(part);
  if (known) return known;
  const compiling = compile(addressOf(part)).catch((error: unknown) => {
    modules.delete(part); // the next one tries again
    throw error;
  });
  modules.set(part, compiling);
  return compiling;
}

/** The parts of these names, compiled. */
async function compiled(names: readonly string[]): Promise<Modules> {
  const parts = new Set(names.includes('rest') ? [...names, ...OF_REST] : names);
  const entries = [...parts].map(async (part) => [part, await module(part)] as const);
  return Object.assign({ first: await module('first') }, Object.fromEntries(await Promise.all(entries)));
}

/** A core of the first part and those of these names. */
export const load = async (parts: readonly string[]): Promise<Oometer> => instantiate(create, await compiled(parts));

/** All that is compiled by now and the rest, for workers, so that they fetch nothing that the page has. */
export const shared = (): Promise<Modules> => compiled(['rest', ...modules.keys()]);

/** Where this script lies. */
export const script = import.meta.url;

const keep = (given: Modules): void => {
  for (const [part, known] of Object.entries(given)) modules.set(part, Promise.resolve(known));
};

if ('WorkerGlobalScope' in globalThis) serve(keep, load);
else module('first').catch(() => undefined); // the error is reported when it is used
