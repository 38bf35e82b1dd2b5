// The core as a widget carries it: a smaller module, with what one answer takes.
import type { Estimator } from 'oometer-core/oometer.mjs';
import create from 'oometer-core/widget.mjs';
import wasm from 'oometer-core/widget.wasm?url';
import { wrap, type Core } from '../wasm/wrap';

export async function loadCore(): Promise<Core> {
  const response = await fetch(wasm, { credentials: 'same-origin' });
  if (!response.ok) throw new Error(`widget.wasm: ${response.status} ${response.statusText}`);
  const first: Estimator = await create({ wasmBinary: await response.arrayBuffer() });
  return wrap(first, async () => (await import('../wasm/whole')).load());
}
