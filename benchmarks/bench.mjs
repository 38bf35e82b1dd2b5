// Prints every number that the project promises about its speed and size: `./dev bench`.
import { execFileSync, spawnSync } from "node:child_process";
import { readFileSync, readdirSync } from "node:fs";
import { brotliCompressSync, gzipSync } from "node:zlib";

const root = new URL("..", import.meta.url);
const file = (path) => new URL(path, root);
const jobs = JSON.parse(readFileSync(file("benchmarks/jobs.json")));

// FakeTensor, the reference tool that runs the real model on tensors without storage: seconds for one iteration of
// LLaVA-1.5 7B. Live where PyTorch is at hand, else the figure recorded on a developer's machine.
const RECORDED_FAKE_TENSOR_S = 2.6;

function fakeTensor() {
  const live = spawnSync("python3", [file("benchmarks/fake_tensor.py").pathname], { encoding: "utf8" });
  return live.status === 0
    ? { seconds: Number(live.stdout), source: "measured now" }
    : { seconds: RECORDED_FAKE_TENSOR_S, source: "recorded on a developer's machine; PyTorch is not installed here" };
}

function median(call) {
  const times = [];
  for (const end = performance.now() + 2000; times.length < 5 || performance.now() < end; ) {
    const start = performance.now();
    call();
    times.push(performance.now() - start);
  }
  return times.sort((a, b) => a - b)[Math.floor(times.length / 2)];
}

const { default: create } = await import(file("build/wasm/oometer.mjs"));
const { instantiate } = await import(file("build/wasm/parts.mjs"));
const later = readdirSync(file("build/wasm")).filter((name) => /^oometer\.\w+\.wasm$/.test(name));
const compiled = (name) => new WebAssembly.Module(readFileSync(file(`build/wasm/${name}`)));
const modules = { first: compiled("oometer.wasm"), ...Object.fromEntries(later.map((name) => [name.split(".")[1], compiled(name)])) };

const { medians: native, parts, plans } = JSON.parse(
  execFileSync(file("build/native/benchmarks/oometer-bench").pathname, [file("benchmarks/jobs.json").pathname]),
);
const oometer = await instantiate(create, modules);
// What must hold was promised; an aim is our own.
const judge = (value, limit, word = "must") => (limit === undefined ? "" : `  (${word}: ${limit}, ${value <= limit ? "met" : "NOT MET"})`);

console.log(`One whole answer: two iterations, allocator, report. Median milliseconds; WebAssembly in Node ${process.version}.\n`);
for (const { name, job, limit_ms: limits = {}, aim_ms: aims = {} } of jobs) {
  const text = JSON.stringify(job);
  const wasm = median(() => oometer.estimate(text));
  console.log(`${name}  (${JSON.parse(oometer.estimate(text)).events} events)`);
  console.log(`  native       ${native[name].toFixed(3).padStart(8)}${judge(native[name], limits.native)}${judge(native[name], aims.native, "aim")}`);
  console.log(`  WebAssembly  ${wasm.toFixed(3).padStart(8)}${judge(wasm, limits.wasm)}`);
}
console.log(`A graph of 1,000 layers, from its file's text, native: ${native.graph.toFixed(3)}${judge(native.graph, 50)}`);
console.log(`\nParts of the first, native: ${Object.entries(parts).map(([part, ms]) => `${part} ${ms.toFixed(3)}`).join(", ")}`);

// Time must grow with the layers and no faster: what a layer more costs, between each depth and the next.
const depths = jobs.filter((entry) => entry.layers);
const grown = depths.slice(1).map(({ name, layers }, i) => {
  const cost = (native[name] - native[depths[i].name]) / (layers - depths[i].layers);
  return `${depths[i].layers} to ${layers} ${(1000 * cost).toFixed(1)}`;
});
console.log(`Microseconds for a layer more: ${grown.join(", ")}`);

// As the blocks of a chain: their optimal checkpoints take a time that grows with them and no faster.
const perBlock = Object.entries(plans).map(([blocks, ms]) => `${blocks} ${((1e6 * ms) / blocks).toFixed(1)}`);
console.log(`Nanoseconds a block, for the checkpoints of least memory in a chain of: ${perBlock.join(", ")}`);

const { seconds, source } = fakeTensor();
const ratio = (2 * seconds * 1000) / native[jobs[0].name];
console.log(`\nFakeTensor, LLaVA-1.5 7B: ${seconds.toFixed(2)} s an iteration (${source}).`);
console.log(`oometer is ${Math.round(ratio).toLocaleString("en")} times faster for the same two iterations  (must: 1,000, ${ratio >= 1000 ? "met" : "NOT MET"})`);

const kilobytes = (names, compress) =>
  names.reduce((sum, name) => sum + compress(readFileSync(file(`build/wasm/${name}`))).length, 0) / 1000;
for (const [title, limit, ...names] of [
  ["The module of a first answer and its glue", 170, "oometer.wasm", "oometer.mjs", "parts.mjs"],
  ...later.map((name) => [`${name}, loaded afterwards`, 160, name]),
]) {
  const brotli = kilobytes(names, brotliCompressSync);
  const gzip = kilobytes(names, (bytes) => gzipSync(bytes, { level: 9 }));
  console.log(`${title}, kB: ${brotli.toFixed(1)} brotli${judge(brotli, limit)}, ${gzip.toFixed(1)} gzip`);
}

for (const { name, job, limit_heap_mb: limit } of jobs.filter((entry) => entry.limit_heap_mb)) {
  const fresh = await instantiate(create, modules);
  const idle = fresh.heapBytes();
  fresh.estimate(JSON.stringify(job));
  const heap = fresh.heapBytes() / 1e6;
  console.log(`Peak heap, ${name}, MB: ${heap.toFixed(1)}${judge(heap, limit)}; ${(idle / 1e6).toFixed(1)} before`);
}
