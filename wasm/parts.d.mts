import type { CreateOptions, Oometer } from './oometer.mjs';

/**
 * Thrown, by its name, out of an answer that needs oometer.PART.wasm, where a core was put together without it. That core
 * is to be dropped: what the answer held is not freed.
 */
export class PartNeeded extends Error {
  name: 'PartNeeded';
  part: string;
}

/** The parts that the rest is, itself among them: who takes it loads all of them. */
export const OF_REST: readonly string[];

/** Compiled parts by their names: `first` is oometer.wasm, any other NAME is oometer.NAME.wasm. */
export interface Modules {
  first: WebAssembly.Module;
  [part: string]: WebAssembly.Module;
}

/** The core from its parts, in a browser, a worker or Node, with `create` from oometer.mjs. */
export function instantiate(
  create: (options: CreateOptions) => Promise<Oometer>,
  modules: Readonly<Modules>,
): Promise<Oometer>;
