// The core with the operators of graphs: for a model that is one, and for workers that are asked about it.
import create from 'oometer-core/graph.mjs';
import wasm from 'oometer-core/graph.wasm?url';
// Copies of its own, as the whole one has them.
import { loader } from './load?graph';
import { serve } from './serve?graph';

export const script = import.meta.url;

export const { compiled, instantiate, load } = loader(create, wasm);

if ('WorkerGlobalScope' in globalThis) serve(instantiate);
