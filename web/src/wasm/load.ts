/** Compiles the module at this address. */
export async function compile(wasm: string): Promise<WebAssembly.Module> {
  const response = await fetch(wasm, { credentials: 'same-origin' });
  if (!response.ok) throw new Error(`${wasm}: ${response.status} ${response.statusText}`);
  // Compiled while it arrives, where the server says that it is WebAssembly; plain ones do not.
  if (response.headers.get('content-type') === 'application/wasm') return WebAssembly.compileStreaming(response);
  return WebAssembly.compile(await response.arrayBuffer());
}
