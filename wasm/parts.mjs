// A core comes in two parts, so that a first answer waits for no more than it runs: oometer.wasm, and oometer.rest.wasm
// with the functions that few answers need. The first part works alone until an answer needs one of these.

/** Thrown out of an answer that needs the rest. The core it was asked of is spent: what that answer held is not freed. */
export class RestNeeded extends Error {
  name = "RestNeeded";
  message = "this answer takes the rest of the core";
}

/** A core: `create` is its script's, `parts` are its compiled modules, the first and perhaps the rest. */
export function instantiate(create, [first, rest]) {
  const placeholder = () => {
    throw new RestNeeded();
  };
  const placeholders = new Proxy({}, { get: () => placeholder });
  const join = async (imports) => {
    const instance = await WebAssembly.instantiate(first, { ...imports, rest: placeholders });
    // It puts its functions where the placeholders stand.
    if (rest) await WebAssembly.instantiate(rest, { first: instance.exports });
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
