import { wrap, type Core } from '../wasm/wrap';

export async function loadCore(): Promise<Core> {
  const { loadFirst, loadWhole } = await import('../wasm/oometer');
  return wrap(loadFirst, loadWhole);
}
