// The npm package, packed and installed into a fresh folder, as a user has it.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { after, test } from "node:test";
import { tmpdir } from "node:os";
import { extname, join } from "node:path";
import { gzipSync } from "node:zlib";
import { chromium } from "../../web/node_modules/playwright-core/index.mjs";

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

test("its widget is an element of a page that has nothing else of oometer", async () => {
  writeFileSync(
    join(folder, "index.html"),
    `<!doctype html><title>A page</title><script type="module" src="node_modules/oometer/widget/widget.mjs"></script>
     <oometer-widget job="#v1?mbs=16&amp;seq=1024">Computing</oometer-widget>
     <oometer-widget view="full" job='{"version": 1, "model": {"preset": "gemma-2-9b"}, "training": {"attention": "eager", "lora": {"rank": 8}}}'></oometer-widget>`,
  );
  const types = { ".html": "text/html", ".mjs": "text/javascript", ".wasm": "application/wasm", ".json": "application/json" };
  const server = createServer(async (request, response) => {
    const path = request.url === "/" ? "/index.html" : request.url;
    const content = await readFile(join(folder, path)).catch(() => null);
    response.writeHead(content ? 200 : path === "/favicon.ico" ? 204 : 404, { "content-type": types[extname(path)] ?? "text/plain" });
    response.end(content);
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium-headless-shell";
  const browser = await chromium.launch({ executablePath, args: ["--headless", "--no-sandbox", "--disable-gpu"] });
  try {
    const page = await browser.newPage();
    const complaints = [];
    page.on("console", (message) => ["error", "warning"].includes(message.type()) && complaints.push(message.text()));
    page.on("pageerror", (error) => complaints.push(error.message));
    await page.goto(`http://127.0.0.1:${server.address().port}/`);
    await page.waitForFunction(() => [...document.querySelectorAll("oometer-widget")].every(({ report }) => report), null, { timeout: 120_000 });
    const shown = await page.evaluate(() => [...document.querySelectorAll("oometer-widget")].map((one) => one.report.peak.total));
    assert.ok(shown.every((total) => total > 2 ** 30));
    await page.locator("oometer-holders").waitFor();
    assert.equal(await page.locator("oometer-widget a").count(), 0); // it knows of no page to lead to
    assert.deepEqual(complaints, []);
  } finally {
    await browser.close();
    server.closeAllConnections();
    server.close();
  }
});
