/** Compiles the module at this address, once, when it is asked for first. */
export function module(wasm: string): () => Promise<WebAssembly.Module> {
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
