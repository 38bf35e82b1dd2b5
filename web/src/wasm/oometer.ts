// The core in its two parts: what a first answer runs, and the rest. A page runs this script first, beside its own, which
// is still being read when the first part is compiled; so nothing here may import what the page imports, too. Workers
// start from it as well, so that what a browser has loaded already is all they need.
import create from 'oometer-core/oometer.mjs';
import oometer from 'oometer-core/oometer.wasm?url';
import rest from 'oometer-core/oometer.rest.wasm?url';
import { loader, part } from './load';
import { serve } from './serve';

const firstPart = part(oometer);
export const first = loader(create, firstPart);
export const whole = loader(create, firstPart, part(rest));

/** Where this script lies. */
export const script = import.meta.url;

if ('WorkerGlobalScope' in globalThis) serve(whole.instantiate);
else firstPart().catch(() => undefined); // whoever asks for it is told
