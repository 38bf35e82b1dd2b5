import { wrap, type Core } from '../wasm/wrap';

export async function loadCore(): Promise<Core> {
  const { load } = await import('../wasm/oometer');
  return wrap(load);
}
