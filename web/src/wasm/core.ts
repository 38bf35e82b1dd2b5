// The core, loaded once and then asked directly: an answer takes about a millisecond, less than a message to a worker.
import { wrap, type Core } from './wrap';

/** The module fetches oometer.wasm beside itself, and compiles it while it arrives. */
export async function loadCore(): Promise<Core> {
  const { default: create } = await import('oometer-core/oometer.mjs');
  return wrap(await create());
}
