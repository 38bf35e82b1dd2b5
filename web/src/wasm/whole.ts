// The whole core: for jobs that the first one does not carry, and for workers, which start from this very script.
import create from 'oometer-core/oometer.mjs';
import wasm from 'oometer-core/oometer.wasm?url';
// A copy of its own: a chunk shared with the first one would be one more file to wait for.
import { loader } from './load?whole';
import { serve } from './serve';

/** Where this script lies, for workers to start from. */
export const script = import.meta.url;

export const { compiled, instantiate, load } = loader(create, wasm);

if ('WorkerGlobalScope' in globalThis) serve(instantiate);
