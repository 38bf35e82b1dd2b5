// The core, loaded once and then asked directly: an answer takes about a millisecond, less than a message to a worker.
import wasmAddress from 'oometer-core/oometer.wasm?url';
import { wrap, type Core } from './wrap';

export async function loadCore(): Promise<Core> {
  const bytes = fetch(wasmAddress).then((response) => {
    if (!response.ok) throw new Error(`${wasmAddress}: ${response.status}`);
    return response.arrayBuffer();
  });
  const { default: create } = await import('oometer-core/oometer.mjs');
  return wrap(await create({ wasmBinary: await bytes }));
}
