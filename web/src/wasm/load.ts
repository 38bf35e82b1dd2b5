// A core of the build: compiled once, for the page and for its workers.
import type { CreateOptions } from 'oometer-core/oometer.mjs';

export interface Loader<M> {
  /** Workers are given the same, so that they fetch nothing. */
  compiled: () => Promise<WebAssembly.Module>;
  instantiate: (module: WebAssembly.Module) => Promise<M>;
  load: () => Promise<M>;
}

/** `create` is the core's own script, `wasm` the address of its module. */
export function loader<M>(create: (options: CreateOptions) => Promise<M>, wasm: string): Loader<M> {
  let compiling: Promise<WebAssembly.Module> | null = null;
  const compiled = (): Promise<WebAssembly.Module> =>
    (compiling ??= compile(wasm).catch((error: unknown) => {
      compiling = null; // the next one tries again
      throw error;
    }));
  const instantiate = (module: WebAssembly.Module): Promise<M> =>
    new Promise((done, fail) => {
      create({
        instantiateWasm(imports, received) {
          WebAssembly.instantiate(module, imports).then(received, fail);
          return {};
        },
      }).then(done, fail);
    });
  return { compiled, instantiate, load: async () => instantiate(await compiled()) };
}

async function compile(wasm: string): Promise<WebAssembly.Module> {
  const response = await fetch(wasm, { credentials: 'same-origin' });
  if (!response.ok) throw new Error(`${wasm}: ${response.status} ${response.statusText}`);
  // Compiled while it arrives, where the server says that it is WebAssembly; plain ones do not.
  if (response.headers.get('content-type') === 'application/wasm') return WebAssembly.compileStreaming(response);
  return WebAssembly.compile(await response.arrayBuffer());
}
