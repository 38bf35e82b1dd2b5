// The npm package, packed and installed into a fresh folder, as a user has it.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { after, test } from "node:test";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

const npm = new URL("../../npm/", import.meta.url).pathname;
const folder = mkdtempSync(join(tmpdir(), "oometer-npm-"));
after(() => rmSync(folder, { recursive: true }));
const run = (program, args, cwd = folder) => execFileSync(program, args, { cwd, encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] });

const [packed] = JSON.parse(run("npm", ["pack", "--json", "--silent", "--pack-destination", folder], npm));
writeFileSync(join(folder, "package.json"), '{"name": "user", "private": true, "type": "module"}');
run("npm", ["install", "--offline", "--silent", "--no-audit", "--no-fund", join(folder, packed.filename)]);

test("it is the module's parts and little more", () => {
  const parts = packed.files.filter(({ path }) => path.endsWith(".wasm")).map(({ path }) => gzipSync(readFileSync(join(npm, path))).length);
  const sum = parts.reduce((a, b) => a + b, 0);
  assert.ok(parts.length > 1);
  assert.ok(statSync(join(folder, packed.filename)).size <= sum + 50_000);
});

test("it answers in a fresh folder", () => {
  writeFileSync(
    join(folder, "use.mjs"),
    `import { JobError, check, estimate, gpus, importFiles, presets, version } from "oometer";
     const job = { version: 1, model: { preset: "llava-1.5-7b" }, gpu: { name: "h100-80gb" } };
     const lora = { version: 1, model: { preset: "gemma-2-9b" }, training: { attention: "eager", lora: { rank: 8 } } };
     const refused = await estimate({ ...job, data: { micro_batch_size: 0 } }).catch((error) => error);
     const files = [{ name: "a.json", content: { per_device_train_batch_size: 2, num_train_epochs: 1, model_name_or_path: "Qwen/Qwen2.5-0.5B" } }];
     console.log(JSON.stringify({
       fits: await check(job), peak: (await estimate(job)).peak.total, other: (await estimate(lora)).peak.total,
       refused: [refused instanceof JobError, refused.pointer], rows: (await gpus(job)).gpus.length,
       batch: (await importFiles(files)).job.data.micro_batch_size, models: (await presets()).models.length, version: await version(),
     }));`,
  );
  const found = JSON.parse(run(process.execPath, ["use.mjs"]));
  assert.equal(found.fits, true);
  assert.ok(found.peak > 2 ** 30 && found.other > 2 ** 30 && found.rows > 10 && found.models > 10);
  assert.deepEqual(found.refused, [true, "/data/micro_batch_size"]);
  assert.equal(found.batch, 2);
  assert.match(found.version, /^\d+\.\d+\.\d+/);
});
