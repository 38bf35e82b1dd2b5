// A core comes in parts, so that an answer waits for no more than it runs: oometer.wasm, which first answers run and which
// works alone until one needs more; oometer.rest.wasm, which the others take, too, with oometer.presets.wasm, the models
// that later answers know by a name; oometer.FAMILY.wasm, one for each family of models, oometer.graph.wasm and oometer.importers.wasm.

/** The rest is several files, for none to be too large; who takes it loads all of them. */
export const OF_REST = ["rest", "advice", "distributed", "generation", "job", "kit", "loops", "nn", "ops", "optimizers", "peft", "presets"];

/** Thrown out of an answer that needs another part. The core it was asked of is spent: what that answer held is not freed. */
export class PartNeeded extends Error {
  name = "PartNeeded";
  constructor(part) {
    super(`this answer takes oometer.${part}.wasm`);
    this.part = part;
  }
}

/** What the first part is asked for by name, or, of its functions, by place in its table (split.mjs). */
function functionsOf(exports) {
  const table = Object.values(exports).find((its) => its instanceof WebAssembly.Table);
  return new Proxy({}, { get: (_, name) => exports[name] ?? table.get(Number(name)) });
}

/** A core: `create` is its script's, `modules` are its compiled parts by their names, `first` among them. */
export function instantiate(create, { first, rest, ...others }) {
  const lacking = (known) =>
    new Proxy(known, {
      get: (_, part) =>
        known[part] ?? {
          needed() {
            throw new PartNeeded(part);
          },
        },
    });
  const join = async (imports) => {
    const instance = await WebAssembly.instantiate(first, lacking(imports));
    const known = { first: functionsOf(instance.exports) };
    // Each puts its functions where those stand that ask for it; the rest brings those that ask for a family.
    for (const part of rest ? [rest, ...Object.values(others)] : []) await WebAssembly.instantiate(part, lacking(known));
    return instance;
  };
  return new Promise((done, fail) => {
    const instantiateWasm = (imports, received) => {
      join(imports).then(received, fail);
      return {};
    };
    create({ instantiateWasm }).then(done, fail);
  });
}
