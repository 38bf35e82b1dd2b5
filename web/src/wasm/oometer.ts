// The core in its two parts: what a first answer runs, and the rest. A page runs this script first, beside its own, which
// is still being read when the first part is compiled; so nothing here may import what the page imports, too. Workers
// start from it as well, so that what a browser has loaded already is all they need.
import create, { type Oometer } from 'oometer-core/oometer.mjs';
import oometer from 'oometer-core/oometer.wasm?url';
import { instantiate } from 'oometer-core/parts.mjs';
import rest from 'oometer-core/oometer.rest.wasm?url';
import { module } from './load';
import { serve } from './serve';

const compiledFirst = module(oometer);
const compiledRest = module(rest);

/** Both parts, compiled: workers are given the same, so that they fetch nothing. */
export const compiled = (): Promise<WebAssembly.Module[]> => Promise.all([compiledFirst(), compiledRest()]);
export const loadFirst = async (): Promise<Oometer> => instantiate(create, [await compiledFirst()]);
export const loadWhole = async (): Promise<Oometer> => instantiate(create, await compiled());

/** Where this script lies. */
export const script = import.meta.url;

if ('WorkerGlobalScope' in globalThis) serve((modules) => instantiate(create, modules));
else compiledFirst().catch(() => undefined); // whoever asks for it is told
