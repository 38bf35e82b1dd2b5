// Takes the module's parts, as `./dev build` has put them together, into the package, and builds the widget beside them.
import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readdirSync, rmSync } from "node:fs";
import { fileURLToPath } from "node:url";

const here = new URL("./", import.meta.url);
const built = new URL("../build/wasm/", here);
if (!existsSync(new URL("oometer.wasm", built))) {
  console.error("build/wasm has no module: run ./dev build first");
  process.exit(1);
}
const web = fileURLToPath(new URL("../web/", here));
if (!existsSync(`${web}node_modules`)) {
  console.error("web has no node_modules: run ./dev build first");
  process.exit(1);
}
execFileSync("npm", ["run", "--silent", "package"], { cwd: web, stdio: ["ignore", "ignore", "inherit"] });
const core = new URL("core/", here);
rmSync(core, { recursive: true, force: true });
mkdirSync(core);
for (const name of readdirSync(built)) {
  if (/^(oometer|parts)(\.\w+)*\.(wasm|mjs|mts)$/.test(name)) cpSync(fileURLToPath(new URL(name, built)), fileURLToPath(new URL(name, core)));
}
cpSync(fileURLToPath(new URL("../presets/job.schema.json", here)), fileURLToPath(new URL("job.schema.json", here)));
cpSync(fileURLToPath(new URL("../presets/hub.json", here)), fileURLToPath(new URL("core/hub.json", here)));
