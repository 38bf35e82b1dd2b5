// A core of compiled modules: each compiled once, for the page and for its workers.
import type { CreateOptions, Oometer } from 'oometer-core/oometer.mjs';
import { instantiate as put } from 'oometer-core/parts.mjs';

/** The first part, and perhaps the rest. */
export type Compiled = WebAssembly.Module[];

export interface Loader {
  /** Workers are given the same, so that they fetch nothing. */
  compiled: () => Promise<Compiled>;
  instantiate: (modules: Compiled) => Promise<Oometer>;
  load: () => Promise<Oometer>;
}

/** `create` is the core's own script, `parts` compile its modules. */
export function loader(
  create: (options: CreateOptions) => Promise<Oometer>,
  ...parts: (() => Promise<WebAssembly.Module>)[]
): Loader {
  const compiled = (): Promise<Compiled> => Promise.all(parts.map((part) => part()));
  const instantiate = (modules: Compiled): Promise<Oometer> => put(create, modules);
  return { compiled, instantiate, load: async () => instantiate(await compiled()) };
}

/** Compiles the module at this address when it is asked for first. */
export function part(wasm: string): () => Promise<WebAssembly.Module> {
  let compiling: Promise<WebAssembly.Module> | null = null;
  return () =>
    (compiling ??= compile(wasm).catch((error: unknown) => {
      compiling = null; // the next one tries again
      throw error;
    }));
}

async function compile(wasm: string): Promise<WebAssembly.Module> {
  const response = await fetch(wasm, { credentials: 'same-origin' });
  if (!response.ok) throw new Error(`${wasm}: ${response.status} ${response.statusText}`);
  // Compiled while it arrives, where the server says that it is WebAssembly; plain ones do not.
  if (response.headers.get('content-type') === 'application/wasm') return WebAssembly.compileStreaming(response);
  return WebAssembly.compile(await response.arrayBuffer());
}
