// The core as a widget carries it: a smaller module, with what one answer takes.
import type { Estimator } from 'oometer-core/oometer.mjs';
import create from 'oometer-core/widget.mjs';
import wasm from 'oometer-core/widget.wasm?url';
import { wrap, type Core } from '../wasm/wrap';

export async function loadCore(): Promise<Core> {
  const response = await fetch(wasm, { credentials: 'same-origin' });
  if (!response.ok) throw new Error(`widget.wasm: ${response.status} ${response.statusText}`);
  let module: Estimator = await create({ wasmBinary: await response.arrayBuffer() });
  return wrap(
    () => module,
    async () => {
      const { compiled, instantiate } = await import('../wasm/whole');
      module = await instantiate(await compiled());
    },
  );
}
