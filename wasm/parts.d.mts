import type { CreateOptions, Oometer } from './oometer.mjs';

/**
 * Thrown, by its name, out of an answer that needs oometer.rest.wasm, where a core was put together without it. That
 * core is to be dropped: what the answer held is not freed.
 */
export class RestNeeded extends Error {
  name: 'RestNeeded';
}

/**
 * The core from its compiled modules, in a browser, a worker or Node: `instantiate(create, [first, rest])` with `create`
 * from oometer.mjs, the modules of oometer.wasm and oometer.rest.wasm; or without the rest, for answers as simple as a
 * page's first.
 */
export function instantiate(
  create: (options: CreateOptions) => Promise<Oometer>,
  parts: readonly WebAssembly.Module[],
): Promise<Oometer>;
