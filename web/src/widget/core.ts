// The core as a widget carries it: a smaller module, with what one answer takes.
import create from 'oometer-core/widget.mjs';
import wasm from 'oometer-core/widget.wasm?url';
import { loader } from '../wasm/load';
import { wrap, type Core } from '../wasm/wrap';

const { load } = loader(create, wasm);

export async function loadCore(): Promise<Core> {
  return wrap(await load(), async () => (await import('../wasm/whole')).load());
}
