// The core's parts are compiled when an answer first needs them.
import create from "./core/oometer.mjs";
import { OF_REST, instantiate } from "./core/parts.mjs";

/** What is wrong with a job: `pointer` says where (RFC 6901), `message` what was found and what was expected. */
export class JobError extends Error {
  constructor({ code, pointer, message, fixes = [] }) {
    super(pointer ? `${pointer}: ${message}` : message);
    Object.assign(this, { name: "JobError", code, pointer, fixes });
  }
}

const isNode = typeof process === "object" && Boolean(process.versions?.node);
const compiled = new Map();

async function bytes(name) {
  const url = new URL(`./core/${name}`, import.meta.url);
  if (!isNode || url.protocol !== "file:") return (await fetch(url)).arrayBuffer();
  const { readFile } = await import("node:fs/promises");
  return readFile(url);
}

function part(name) {
  const file = name === "first" ? "oometer.wasm" : `oometer.${name}.wasm`;
  if (!compiled.has(name)) compiled.set(name, bytes(file).then((code) => WebAssembly.compile(code)));
  return compiled.get(name);
}

const wanted = new Set(["first"]);
let core;

async function start() {
  const names = [...wanted];
  const modules = await Promise.all(names.map(part));
  return instantiate(create, Object.fromEntries(names.map((name, i) => [name, modules[i]])));
}

/** Asks a core that has the parts which the answer needs. One that lacks some is dropped: what the answer held is lost. */
async function ask(question) {
  for (;;) {
    const asked = (core ??= start());
    try {
      return question(await asked);
    } catch (error) {
      if (error?.name !== "PartNeeded" || wanted.has(error.part)) throw error;
      for (const name of OF_REST.includes(error.part) ? OF_REST : [error.part]) wanted.add(name);
      if (core === asked) core = undefined;
    }
  }
}

const text = (job) => (typeof job === "string" ? job : JSON.stringify(job));

async function answer(question) {
  const found = JSON.parse(await ask(question));
  if (found.error) throw new JobError(found.error);
  return found;
}

/** The whole report of a job. */
export const estimate = (job) => answer((core) => core.estimate(text(job)));
/** Its head alone, for sweeps over many jobs. */
export const summary = (job) => answer((core) => core.summary(text(job)));
/** Whether it fits, tight or not; with `strict` a tight fit does not. */
export async function check(job, { strict = false } = {}) {
  const { verdict } = await summary(job);
  return verdict === "fits" || (verdict === "tight" && !strict);
}
/** How far it can grow, what would make it fit, and the cost. */
export const advise = (job) => answer((core) => core.advise(text(job)));
/** The job on every GPU. */
export async function gpus(job) {
  const given = JSON.parse(text(job));
  const rows = [];
  for (const { id } of (await presets()).gpus)
    rows.push(await answer((core) => core.onGpu(JSON.stringify({ ...given, gpu: { name: id } }))));
  return { gpus: rows };
}
/** Models and GPUs that have a name. */
export const presets = () => answer((core) => core.presets());
/** A trainer's files, [{name, content}], as a job: `content` is a tree (YAML, JSON) or a text (shell script). */
export async function importFiles(files, { gpu = "", gpus = 0 } = {}) {
  const hub = JSON.parse(new TextDecoder().decode(await bytes("hub.json")));
  return answer((core) => core.importFiles(JSON.stringify({ files, hub, gpu, gpus })));
}
/** A memory snapshot for https://pytorch.org/memory_viz, a pickle. */
export async function snapshot(job) {
  const found = await ask((core) => core.snapshot(text(job)));
  if (typeof found === "string") throw new JobError(JSON.parse(found).error);
  return found;
}
/** "0.1.0+abc1234" */
export const version = () => ask((core) => core.version());
