// Cuts the linked core into parts, so that whoever asks loads what the answer runs and little more: oometer.wasm has what
// first answers run (profile.mjs); oometer.FAMILY.wasm what only that folder of core/models defines, oometer.graph.wasm
// the same of core/graph; oometer.rest.wasm all else. wasm-split cuts a module in two, so that it is cut again and again.
//   node split.mjs BINARYEN NM OUT      where oometer.wasm with its names and oometer.profile are; all objects lie below OUT
import { execFileSync } from "node:child_process";
import { readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const [tools, nm, out] = process.argv.slice(2);
const FEATURES = ["bulk-memory", "mutable-globals", "nontrapping-float-to-int", "sign-ext"].map((name) => `--enable-${name}`);
const run = (tool, ...given) => execFileSync(tool, given, { encoding: "utf8", maxBuffer: 2 ** 30 });
const binaryen = (tool, ...given) => run(join(tools, tool), ...FEATURES, ...given);
const lines = (text) => text.trimEnd().split("\n");
const rest = "rest";

// --- which function belongs where --------------------------------------------------------------------------------------

/** By function: the later part whose objects alone define it. */
const home = new Map();
const files = readdirSync(out, { recursive: true }).filter((name) => name.endsWith(".o"));
for (const line of lines(run(nm, "--defined-only", "-A", ...files.map((name) => join(out, name))))) {
  const [, file, name] = /^(.*?): \S+ \S (.*)$/.exec(line) ?? [];
  const part = /\/core\/models\/(\w+)\//.exec(file)?.[1] ?? /\/core\/(graph)\//.exec(file)?.[1] ?? rest;
  if (name) home.set(name, (home.get(name) ?? part) === part ? part : rest);
}
/** Link-time optimisation numbers those of one file that others have, too. */
const partOf = (name) => home.get(name.replace(/\.\d+(\.llvm\.\d+)?$/, "")) ?? rest;

/** The functions of a module, as a map of symbols ("INDEX:NAME" a line) has them; those imported are left out. */
function functionsOf(wasm, map) {
  const imported = binaryen("wasm-dis", wasm).match(/^ \(import "[^"]*" "[^"]*" \(func /gm)?.length ?? 0;
  return lines(readFileSync(map, "utf8")).slice(imported).map((line) => line.slice(line.indexOf(":") + 1));
}

binaryen("wasm-opt", "oometer.wasm", "--symbolmap=oometer.symbols", "-o", "whole.wasm"); // which has no names any more
let whole = "whole.wasm";
let names = functionsOf(whole, "oometer.symbols");
const ran = new Uint32Array(readFileSync("oometer.profile").buffer.slice(8)); // after a hash of the module, when each ran first
if (ran.length !== names.length) throw new Error("oometer.profile is not of oometer.wasm");
const first = new Set(names.filter((_, i) => ran[i] !== 0));

// --- cutting -----------------------------------------------------------------------------------------------------------

/** Moves the functions that `moves` says into part.wasm. What is left calls them by the table, and may be cut again. */
function cut(part, moves) {
  const left = `without.${part}.wasm`;
  writeFileSync("functions", names.flatMap((name, i) => (moves(name) ? [i] : [])).join("\n"));
  binaryen(
    ...["wasm-split", whole, "--split-funcs=@functions", "--import-namespace=first", `--placeholder-namespace=${part}`],
    ...["--symbolmap", "-o1", left, "-o2", `${part}.wasm`],
  );
  // A function that was moved leaves one of its number behind if another part calls it: that calls it by the table.
  const moved = names;
  names = functionsOf(left, `${left}.symbols`).map((number) => (moves(moved[number]) ? "" : moved[number]));
  whole = left;
}

for (const name of readdirSync(out)) if (/^oometer\..*\.wasm$/.test(name)) rmSync(join(out, name)); // of folders that are gone
// What a family of the first part has besides is for everyone, too.
const early = new Set([...first].map(partOf)).add(rest);
const later = new Set(names.map(partOf).filter((part) => !early.has(part)));
for (const part of [...later].sort()) cut(part, (name) => name !== "" && partOf(name) === part);
cut(rest, (name) => name !== "" && !first.has(name));

// --- what is written ----------------------------------------------------------------------------------------------------

const textOf = (file) => binaryen("wasm-dis", file);
function write(text, file) {
  writeFileSync("part.wat", text);
  binaryen("wasm-as", "part.wat", "-o", file);
}
/** The table has grown since: no module that imports it says how long it is at most. */
const anyTable = (text) => text.replace(/^( \(import .* \(table \S+ \d+) \d+ /m, "$1 ");

for (const part of later) write(anyTable(textOf(`${part}.wasm`)), join(out, `oometer.${part}.wasm`));

// Each place in the table of a function of a later part has an import of its own, "PART" "PLACE". One for all functions of
// a type does: without the rest, whatever is missing asks for the rest, which has those that ask for a family.
const firstText = textOf(whole);
write(firstText.replaceAll(/^( \(import) "\w+" "\d+" \(func/gm, `$1 "${rest}" "needed" (func`), "first.wasm");
binaryen("wasm-opt", "first.wasm", "--duplicate-import-elimination", "-o", join(out, "oometer.wasm"));

const imports = new Set();
const elements = [];
for (const [, part, place, type = ""] of firstText.matchAll(/^ \(import "(\w+)" "(\d+)" \(func \S+( .*)?\)\)$/gm)) {
  if (part === rest) continue;
  const name = `$${part}${type.replaceAll(/\W+/g, "_")}`;
  imports.add(` (import "${part}" "needed" (func ${name}${type}))\n`);
  elements.push(` (elem $at${place} (i32.const ${place}) ${name})\n`);
}
const afterImports = /^( \(import .*\n)(?! \(import)/m;
const restText = anyTable(textOf("rest.wasm")).replace(afterImports, (line) => line + [...imports, ...elements].join(""));
write(restText, join(out, "oometer.rest.wasm"));
