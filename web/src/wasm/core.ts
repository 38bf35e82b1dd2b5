// The core, loaded once and then asked directly: an answer takes about a millisecond, less than a message to a worker.
import { wrap, type Core } from './wrap';

export async function loadCore(): Promise<Core> {
  const { compiled, instantiate } = await import('./oometer');
  return wrap(await instantiate(await compiled()));
}
