import { wrap, type Core } from '../wasm/wrap';

export async function loadCore(): Promise<Core> {
  const { first, whole } = await import('../wasm/oometer');
  return wrap(first.load, whole.load);
}
