/** The core of oometer as a module: `const oometer = await create(); JSON.parse(oometer.estimate(job))`. */
export interface Oometer {
  /** A job (JSON, version 1) in; its report, or `{"error": {"code", "pointer", "message"}}`, out. Never throws. */
  estimate(job: string): string;
  /** `{"models": [{id, title, description}], "gpus": [{id, name, vendor, architecture, usable_bytes, basis, calibrated}]}` */
  presets(): string;
  /** "0.1.0+abc1234": the project's version and the commit it was built from. */
  version(): string;
  /** Bytes that the module has taken from its host so far; memory is never given back, so this is the peak. */
  heapBytes(): number;
}

export interface CreateOptions {
  /** The bytes of oometer.wasm. Needed in Node; a browser or a worker fetches the file beside the module itself. */
  wasmBinary?: ArrayBuffer | Uint8Array;
  /** Where a browser finds a file of the module, if not beside it. */
  locateFile?(path: string, prefix: string): string;
}

export default function create(options?: CreateOptions): Promise<Oometer>;
