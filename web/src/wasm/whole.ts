// The whole core as oometer.ts has the first one, for jobs that that one does not carry. The build makes one script of this file and the core's own: the
// page loads it, and starts its workers from that same address. So nothing here may import what the page imports, too.
import create, { type Oometer } from 'oometer-core/oometer.mjs';
import wasm from 'oometer-core/oometer.wasm?url';
// A copy of its own: a chunk that both share would be one more file to wait for.
import { serve } from './serve?whole';

/** Where this script lies, for workers to start from. */
export const script = import.meta.url;

let compiling: Promise<WebAssembly.Module> | null = null;

/** Compiled once; workers are given the same, so that they fetch nothing. */
export function compiled(): Promise<WebAssembly.Module> {
  return (compiling ??= compile().catch((error: unknown) => {
    compiling = null; // the next one tries again
    throw error;
  }));
}

async function compile(): Promise<WebAssembly.Module> {
  const response = await fetch(wasm, { credentials: 'same-origin' });
  if (!response.ok) throw new Error(`oometer.wasm: ${response.status} ${response.statusText}`);
  // Compiled while it arrives, where the server says that it is WebAssembly; plain ones do not.
  if (response.headers.get('content-type') === 'application/wasm') return WebAssembly.compileStreaming(response);
  return WebAssembly.compile(await response.arrayBuffer());
}

export function instantiate(module: WebAssembly.Module): Promise<Oometer> {
  return new Promise((done, fail) => {
    create({
      instantiateWasm(imports, received) {
        WebAssembly.instantiate(module, imports).then(received, fail);
        return {};
      },
    }).then(done, fail);
  });
}

if ('WorkerGlobalScope' in globalThis) serve(instantiate);
