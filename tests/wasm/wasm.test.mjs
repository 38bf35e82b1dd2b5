// The WebAssembly module says what the command says, to the byte, for every job that the tests and presets hold.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { before, test } from "node:test";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { untimed } from "./untimed.mjs";

const root = new URL("../../", import.meta.url);
const native = new URL("build/native/oometer", root).pathname;
let oometer;

const built = (name) => new URL(`build/wasm/${name}`, root);
const { instantiate, OF_REST } = await import(built("parts.mjs"));
const { default: create } = await import(built("oometer.mjs"));

const families = readdirSync(built(".")).flatMap((file) => /^oometer\.(\w+)\.wasm$/.exec(file)?.[1] ?? []).filter((part) => !OF_REST.includes(part));

/** Each part, compiled once. */
const compiled = new Map();
function compile(part) {
  const file = part === "first" ? "oometer.wasm" : `oometer.${part}.wasm`;
  if (!compiled.has(part)) compiled.set(part, WebAssembly.compile(readFileSync(built(file))));
  return compiled.get(part);
}

/** The core of its first part, which is oometer.wasm, and of these, each oometer.PART.wasm. */
async function load(...names) {
  const parts = ["first", ...new Set(names.includes("rest") ? [...names, ...OF_REST] : names)];
  return instantiate(create, Object.fromEntries(await Promise.all(parts.map(async (part) => [part, await compile(part)]))));
}

before(async () => {
  oometer = await load("rest", ...families);
});

/** What the command says of each job, as the module writes it: its report, or its error. One process for all. */
function nativeReports(jobs) {
  const input = jobs.map((job) => `${job}\n`).join("");
  const { stdout, status, stderr } = spawnSync(native, ["estimate", "--jsonl"], { input, encoding: "utf8", maxBuffer: 1 << 29 });
  assert.ok(status === 0 || status === 2, stderr);  // 2: some job is refused
  return stdout.trimEnd().split("\n").map(untimed);
}

function cases() {
  const read = (path) => readFileSync(new URL(path, root), "utf8");
  const names = (folder, ending) => readdirSync(new URL(folder, root), { recursive: true }).filter((name) => name.endsWith(ending));
  return [
    ...names("tests/reference/", ".jsonl").flatMap((name) => read(`tests/reference/${name}`).trim().split("\n").map((line) => JSON.parse(line))).filter(({ job }) => job), // DeepSpeed's estimates are no jobs
    ...names("presets/jobs/", ".json").map((name) => ({ name, job: JSON.parse(read(`presets/jobs/${name}`)) })),
  ];
}

/** Of jobs of these names, a few hundred at a time: together their reports are longer than a text may be. */
function same(named) {
  for (let from = 0; from < named.length; from += 200) {
    const some = named.slice(from, from + 200).map(({ name, job }) => ({ name, job: JSON.stringify(job) }));
    const expected = nativeReports(some.map(({ job }) => job));
    assert.equal(expected.length, some.length);
    some.forEach(({ name, job }, i) => equal(oometer.estimate(job), expected[i], name));
  }
}

// Reports are long: a difference is shown where it begins.
function equal(wasm, expected, name) {
  if (wasm === expected) return;
  let at = 0;
  while (wasm[at] === expected[at]) ++at;
  const near = (text) => text.slice(Math.max(0, at - 80), at + 80);
  assert.equal(near(wasm), near(expected), `${name}, from character ${at}`);
}

test("the same report, of every reference case and example job", () => {
  same(cases());
});

test("the same report, of every model preset", () => {
  same(JSON.parse(oometer.presets()).models.map(({ id }) => ({ name: id, job: { version: 1, model: { preset: id } } })));
});

test("bad input is an error as a value, and the module lives on", () => {
  for (const job of ["", "{", "[]", "null", '{"version": 1}', "[".repeat(100000), '{"version": 1, "model": {"preset": "\ud800"}}']) {
    const { error } = JSON.parse(oometer.estimate(job));
    assert.deepEqual(Object.keys(error), ["code", "pointer", "message"]);
    assert.equal(spawnSync(native, ["estimate", "-"], { input: job }).status, 2);
  }
  assert.ok(JSON.parse(oometer.estimate('{"version": 1, "model": {"preset": "llava-1.5-7b"}}')).peak);
});

/** All cases of the first part's families, and a few of each other: each of these costs a core. */
function fewCases() {
  const seen = new Map();
  return cases().filter(({ job: { model } }) => {
    const type = model?.config?.model_type ?? model?.preset;
    seen.set(type, (seen.get(type) ?? 0) + 1);
    return /^(clip|llama|llava)/.test(type) || seen.get(type) <= 8;
  });
}

test("a part says the same, or which one is needed", async () => {
  const answered = [];
  const some = fewCases();
  for (const parts of [[], ["rest"]]) {
    let core = null;
    let answers = 0;
    for (const { name, job } of some) {
      core ??= await load(...parts);
      const { optimizer: _, ...training } = job.training ?? {};  // which most cases spell out, and most people do not
      const text = JSON.stringify({ ...job, training });
      try {
        assert.equal(core.estimate(text), oometer.estimate(text), name);
        ++answers;
      } catch (error) {
        if (error.name !== "PartNeeded") throw error;
        assert.ok(parts.length === 0 ? error.part === "rest" : families.includes(error.part), `${name}: ${error.part}`);
        core = null;  // it is spent
      }
    }
    answered.push(answers);
  }
  const [first, rest] = answered;
  // The plain jobs of CLIP, Llama and LLaVA, to which most new cases do not belong.
  assert.ok(first >= 80 && rest > 3 * first && rest < some.length, `${first} and ${rest} of ${some.length}`);
});

test("an answer needs its own families' parts alone", async () => {
  const liger = { training: { activation_checkpointing: "non-reentrant", liger: true } };
  const needed = async (preset, settings = liger) => {
    const parts = ["rest"];
    const text = JSON.stringify({ version: 1, model: { preset }, ...settings });
    for (;;) {
      const core = await load(...parts);
      try {
        assert.equal(core.estimate(text), oometer.estimate(text), preset);
        return parts;
      } catch (error) {
        if (error.name !== "PartNeeded") throw error;
        parts.push(error.part);
      }
    }
  };
  for (const preset of ["llava-1.5-7b", "llama-3-8b"]) assert.deepEqual(await needed(preset), ["rest"]);
  const zero2 = { parallel: { strategy: "deepspeed", zero_stage: 2, data: 8 } };
  assert.deepEqual(await needed("clip-vit-l-14-336", zero2), ["rest"]);
  const qwen3 = await needed("qwen3-0.6b");
  assert.ok(qwen3.includes("qwen3"));
  for (const part of ["deepseek", "idefics3", "nanovlm", "graph"]) assert.ok(families.includes(part) && !qwen3.includes(part), part);
});

test("a first answer does not need the rest", async () => {
  const first = await load();
  assert.deepEqual(JSON.parse(first.gpus()), JSON.parse(oometer.presets()).gpus);
  assert.equal(first.version(), oometer.version());
  const llava = { version: 1, model: { preset: "llava-1.5-7b" } };
  for (const job of [
    llava,
    { ...llava, training: { stage: "pretrain", attention: "eager" } },
    { ...llava, parallel: { strategy: "deepspeed", zero_stage: 2, data: 8 }, training: { activation_checkpointing: "non-reentrant" } },
    { version: 1, model: { preset: "llama-3-8b" }, training: { precision: "amp-bf16" } },
    { version: 1, model: { preset: "llama-3-8b" }, data: { micro_batch_size: 0 } },
  ])
    assert.equal(first.estimate(JSON.stringify(job)), oometer.estimate(JSON.stringify(job)));
  assert.throws(() => first.estimate(JSON.stringify({ ...llava, parallel: { strategy: "fsdp2", data: 8 } })), { name: "PartNeeded", part: "rest" });
});

test("the first part has nothing of a family of later answers", () => {
  const models = new URL("core/models/", root);
  const folders = readdirSync(models).filter((name) => existsSync(new URL(`${name}/family.cpp`, models)));
  const sourceOf = (folder) =>
    readdirSync(new URL(`${folder}/`, models)).map((name) => readFileSync(new URL(`${folder}/${name}`, models), "utf8")).join("");
  const all = readdirSync(models, { withFileTypes: true }).filter((one) => one.isDirectory()).map(({ name }) => name);
  // A tower without a family of its own is named by every model that may hold it.
  const early = all.filter((folder) => !families.includes(folder) || !folders.includes(folder)).map(sourceOf).join("");
  // So is one that a first family may hold (LLaVA's SigLIP): its config names it.
  const held = Array.from(early.matchAll(/#include "(models\/\w+\/config\.h)"/g), ([, header]) =>
    readFileSync(new URL(`core/${header}`, root), "utf8"),
  );
  const shared = early + held.join("");
  const first = readFileSync(built("oometer.wasm"), "latin1");
  const namesOf = (folder) => Array.from(sourceOf(folder).matchAll(/"([A-Z]\w{11,})"/g), ([, name]) => name);
  for (const folder of folders.filter((name) => families.includes(name))) {
    const names = namesOf(folder).filter((name) => !shared.includes(`"${name}"`));
    assert.ok(names.length > 0 || folder === "clip_vision", folder); // whose only class is CLIP's tower
    // A name may be the end of a longer one: MambaForCausalLM of FalconMambaForCausalLM.
    assert.deepEqual(names.filter((name) => first.includes(name) && !shared.includes(name)), [], folder);
  }
  assert.ok(namesOf("llama").every((name) => first.includes(name)));
  const { models: presets } = JSON.parse(oometer.presets());
  assert.deepEqual(presets.filter(({ id, title }) => /qwen|olmo|deepseek/.test(id) && first.includes(title)), []);
});

test("tensors are those of one module, and sum to it", () => {
  const path = "model.language_model.layers.3.mlp";
  const find = (module) => (module.path === path ? module : module.children.map(find).find(Boolean));
  const { parameters, gradients, optimizer_states, activations, temporaries, buffers_and_inputs } =
    find(JSON.parse(oometer.tree(example)).modules[0]);
  const tensors = JSON.parse(oometer.tensors(example, path));
  const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
  const held = [parameters, gradients, optimizer_states, activations, temporaries, buffers_and_inputs];
  assert.equal(sum(tensors.map(({ bytes }) => bytes)), sum(held));
  assert.equal(JSON.parse(oometer.tensors(example, "nowhere")).error.code, "invalid");
});

const errors = ["{", '{"version": 1, "model": {"preset": "llava-1.5-7b"}, "data": {"micro_batch_size": 0}}'];
const example = '{"version": 1, "model": {"preset": "llava-1.5-7b"}, "data": {"micro_batch_size": 8}, "training": {"stage": "finetune"}}';

test("a summary is the report's head", () => {
  const reports = cases().map(({ job }) => [job, JSON.parse(oometer.estimate(JSON.stringify(job)))]);
  for (const [job, { verdict, fits, headroom, peak, interval, gpu }] of reports.filter(([, { error }]) => !error)) {
    delete peak.least;  // many replays: of a whole report only
    const head = { verdict, fits, headroom, peak, interval: { of: interval.of, low: interval.low, high: interval.high }, gpu };
    assert.equal(oometer.summary(JSON.stringify(job)), JSON.stringify(head));
  }
  for (const job of errors) assert.equal(oometer.summary(job), oometer.estimate(job));
});

test("the tree is the report with every module", () => {
  const full = JSON.parse(oometer.tree(example));
  const report = JSON.parse(oometer.estimate(example));
  const depth = (module) => 1 + Math.max(0, ...module.children.map(depth));
  assert.ok(depth(full.modules[0]) > depth(report.modules[0]));
  const opened = full.modules[0];
  assert.equal(opened.activations, report.modules[0].activations);
  assert.deepEqual({ ...full, modules: [] }, { ...report, modules: [] });
  for (const job of errors) assert.equal(oometer.tree(job), oometer.estimate(job));
});

test("a series is the timeline in typed arrays, finer, with its peak", () => {
  const { columns, ops, modules, rows } = oometer.series(example);
  const { timeline, peak, events } = JSON.parse(oometer.estimate(example));
  assert.deepEqual(columns, timeline.columns);
  assert.ok(rows instanceof Float64Array);
  const points = rows.length / columns.length;
  assert.ok(Number.isInteger(points) && points > timeline.rows.length && points <= 2000);
  let highest = 0;
  for (let row = 0; row < points; ++row) {
    const [event, allocated, reserved, ...rest] = rows.subarray(row * columns.length, (row + 1) * columns.length);
    const [op, module, ...factors] = [...rest.slice(-2), ...rest.slice(0, -2)];
    assert.ok(op < ops.length && module < modules.length);
    assert.ok(event < events && allocated <= reserved);
    assert.equal(factors.reduce((sum, bytes) => sum + bytes, 0), allocated);
    highest = Math.max(highest, allocated);
  }
  assert.equal(highest, peak.allocated);
  for (const job of errors) assert.equal(oometer.series(job), oometer.estimate(job));
});

test("a snapshot is the command's, and nothing of it points into the heap", () => {
  const snapshot = oometer.snapshot(example);
  assert.ok(snapshot instanceof Uint8Array);
  assert.equal(snapshot.byteLength, snapshot.buffer.byteLength);
  const folder = mkdtempSync(join(tmpdir(), "oometer-"));
  try {
    execFileSync(native, ["trace", "-", "-o", join(folder, "job.pickle")], { input: example });
    assert.ok(readFileSync(join(folder, "job.pickle")).equals(snapshot));
  } finally {
    rmSync(folder, { recursive: true });
  }
  for (const job of errors) assert.equal(oometer.snapshot(job), oometer.estimate(job));
});

test("advice is the command's", () => {
  const expected = execFileSync(native, ["advise", "--json", "-"], { input: example, encoding: "utf8" }).trimEnd();
  assert.equal(oometer.advise(example), expected);
  for (const job of errors) assert.equal(oometer.advise(job), oometer.estimate(job));
});

test("which blocks to checkpoint is the command's", () => {
  const expected = execFileSync(native, ["checkpoints", "-"], { input: example, encoding: "utf8" }).trimEnd();
  assert.equal(oometer.checkpoints(example), expected);
  for (const job of errors) assert.equal(oometer.checkpoints(job), oometer.estimate(job));
});

test("presets are listed by name", () => {
  const { models, gpus } = JSON.parse(oometer.presets());
  assert.ok(models.some(({ id }) => id === "llava-1.5-7b"));
  assert.ok(gpus.length >= 40);
  assert.ok(gpus.every(({ usable_bytes }) => usable_bytes > 0));
});

test("many estimates do not grow the heap", () => {
  const job = '{"version": 1, "model": {"preset": "llava-1.5-13b"}, "data": {"micro_batch_size": 4}}';
  oometer.estimate(job);
  const before = oometer.heapBytes();
  for (let round = 0; round < 50; ++round) oometer.estimate(job);
  assert.equal(oometer.heapBytes(), before);
});
