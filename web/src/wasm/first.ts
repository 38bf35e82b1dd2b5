// The core that a first answer needs. A page runs this script first, beside its own, which is still being read when the
// core is compiled; so nothing here may import what the page imports, too.
import create from 'oometer-core/first.mjs';
import wasm from 'oometer-core/first.wasm?url';
import { loader } from './load';

const { compiled, load } = loader(create, wasm);
export { load };

compiled().catch(() => undefined); // whoever asks for it is told
