// Cuts the linked core into parts, so that whoever asks loads what the answer runs and little more: oometer.wasm has what
// first answers run (profile.mjs); oometer.FAMILY.wasm what only that folder of core/models defines, oometer.ROOM.wasm the
// same of each of ROOMS, oometer.presets.wasm of the models of later answers; oometer.rest.wasm all else. wasm-split cuts
// a module's functions in two, so that it is cut again and again; data follows the functions that refer to it.
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
/** Folders of core whose functions, but for those of first answers, are a part of their own. */
const ROOMS = ["advice", "distributed", "generation", "graph", "importers", "job", "models/kit", "nn", "ops", "peft", "time", "train/loops", "train/optimizers"];

// --- which function belongs where --------------------------------------------------------------------------------------

const nameOf = (room) => room.split("/").at(-1);
const roomOf = (file) => ROOMS.filter((room) => file.includes(`/core/${room}/`)).map(nameOf)[0];

/** By function: the later part whose objects alone define it. */
const home = new Map();
const files = readdirSync(out, { recursive: true }).filter((name) => name.endsWith(".o"));
for (const line of lines(run(nm, "--defined-only", "-A", ...files.map((name) => join(out, name))))) {
  const [, file, name] = /^(.*?): \S+ \S (.*)$/.exec(line) ?? [];
  const part = /\/core\/models\/(\w+)\/|\/generated\/(presets)\./.exec(file)?.slice(1).find(Boolean) ?? roomOf(file) ?? rest;
  // The C++ library's archive, which is not among them, uses its own functions as well.
  const isLibrary = /^_ZNK?St3__2/.test(name) && !name.includes("7oometer");
  if (name) home.set(name, !isLibrary && (home.get(name) ?? part) === part ? part : rest);
}
/** Link-time optimisation numbers those of one file that others have, too; a name that is unique ends with a number as well. */
const partOf = (name) => home.get(name) ?? home.get(name.replace(/\.\d+(\.llvm\.\d+)?$/, "")) ?? rest;

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
  const before = names;
  names = functionsOf(left, `${left}.symbols`).map((number) => (moves(before[number]) ? "" : before[number]));
  whole = left;
}

for (const name of readdirSync(out)) if (/^oometer\..*\.wasm$/.test(name)) rmSync(join(out, name)); // of folders that are gone
// What a family of the first part has besides is for everyone, too.
const rooms = new Set(ROOMS.map(nameOf));
const early = new Set([...first].map(partOf).filter((part) => !rooms.has(part))).add(rest);
const later = new Set(names.map(partOf).filter((part) => !early.has(part)));
/** Where a function belongs that first answers do not run. */
const laterPartOf = (name) => (later.has(partOf(name)) ? partOf(name) : rest);
const moved = names.filter((name) => !first.has(name)).map(laterPartOf);
const size = (part) => moved.filter((its) => its === part).length;
// The rest first, for the others call it: by the table, then, and not by functions that stay behind. Then the largest, so
// that little is cut again.
const order = [...later].sort((a, b) => size(b) - size(a) || (a < b ? -1 : 1));
for (const part of [rest, ...order]) cut(part, (name) => name !== "" && !first.has(name) && laterPartOf(name) === part);

// --- which data belongs where ------------------------------------------------------------------------------------------

// Data comes with the functions that refer to it, or to data that does: in the rest where several later parts do. Every
// number that may be an address counts as one, so that a mistake leaves data in too early a part. What nothing refers to,
// as far as that is seen, stays in the first.

const textOf = (file) => binaryen("wasm-dis", file);
const DATA = /^ \(data (?:\$(\S+) )?\(i32\.const (\d+)\) "(.*)"\)\n/gm;
const texts = new Map([["first", textOf(whole)], ...[rest, ...later].map((part) => [part, textOf(`${part}.wasm`)])]);

/** The bytes of a string of the text format. */
function bytesOf(text) {
  const plain = { t: "\t", n: "\n", r: "\r" };
  const byte = (_, hex, char) => (hex ? String.fromCharCode(parseInt(hex, 16)) : (plain[char] ?? char));
  return Buffer.from(text.replaceAll(/\\(?:([0-9a-f]{2})|(.))/g, byte), "latin1");
}

const wholeText = textOf("oometer.wasm");
/** What has a name of its own, in address order; the optimiser has left pieces NAME, NAME.1 ... without the zeros between. */
const data = [];
for (const [, name, address, text] of wholeText.matchAll(DATA)) {
  const piece = { at: Number(address), bytes: bytesOf(text) };
  const last = data.at(-1);
  if (last && name === `${last.name}.${last.pieces.length}`) last.pieces.push(piece);
  else data.push({ name, pieces: [piece], parts: new Set() });
}
const startOf = ({ pieces }) => pieces[0].at;
const endOf = ({ pieces }) => pieces.at(-1).at + pieces.at(-1).bytes.length;

/**
 * What an address lies in: between two, it may be among the zeros of either, but not at the end of constants, whose zeros
 * nobody reads by themselves. An object that is all zeros, and so not there, may lie there too.
 */
function dataAt(address) {
  if (!(address >= startOf(data[0]) && address <= endOf(data.at(-1)))) return [];
  let low = 0;
  for (let high = data.length; high - low > 1; ) {
    const middle = (low + high) >> 1;
    if (startOf(data[middle]) <= address) low = middle;
    else high = middle;
  }
  if (address < endOf(data[low])) return [data[low]];
  return data.slice(low, low + 2).filter((datum) => startOf(datum) > address || !datum.name?.startsWith(".rodata"));
}

/** Its words. */
function pointersIn(datum) {
  const start = startOf(datum) & ~3;
  const words = new Uint32Array((endOf(datum) - start + 3) >> 2);
  const bytes = new Uint8Array(words.buffer); // of a little-endian machine, as the module is
  for (const piece of datum.pieces) bytes.set(piece.bytes, piece.at - start);
  return [...words];
}

for (const [part, text] of texts) {
  const code = text.replaceAll(DATA, "");
  const numbers = new Set(Array.from(code.matchAll(/(?:\(i32\.const |offset=)(\d+)/g), ([, number]) => Number(number)));
  const found = [...numbers].flatMap(dataAt);
  for (const datum of found) {
    if (datum.parts.has(part)) continue;
    datum.parts.add(part);
    found.push(...pointersIn(datum).flatMap(dataAt));
  }
}
function homeOf({ parts }) {
  if (parts.size === 0 || parts.has("first")) return "first";
  return parts.size === 1 ? [...parts][0] : rest;
}

/** The data of a part: short zeros that are nobody's join two pieces, for a segment has a head of its own. */
function dataOf(part) {
  const segments = [];
  let last = null;
  for (const datum of data) {
    if (homeOf(datum) !== part) last = null;
    else
      for (const { at, bytes } of datum.pieces) {
        const between = last ? at - last.at - last.bytes.length : Infinity;
        if (between <= 8) last.bytes = Buffer.concat([last.bytes, Buffer.alloc(between), bytes]);
        else segments.push((last = { at, bytes }));
      }
  }
  const hex = (bytes) => Array.from(bytes, (byte) => `\\${byte.toString(16).padStart(2, "0")}`).join("");
  return segments.map(({ at, bytes }) => ` (data (i32.const ${at}) "${hex(bytes)}")\n`);
}

// --- what the first part is called by ------------------------------------------------------------------------------------

// Its functions that later parts call stand at the end of the table, which takes half the bytes of exports: parts.mjs finds
// them there by their places, in the order of their numbers, which packs best.
const EXPORT = /^ \(export "([^"]+)" \(func (\S+)\)\)\n/gm;
const TABLE = /^ \(table (\S+) (\d+) \d+ /m;
const ofGlue = new Set(Array.from(wholeText.matchAll(EXPORT), ([, name]) => name));
let firstText = texts.get("first");
const numberOf = new Map(Array.from(firstText.matchAll(/^ \((?:import .* \()?func (\$[^\s)]+)/gm), ([, func], i) => [func, i]));
const called = Array.from(firstText.matchAll(EXPORT), ([, name, func]) => ({ name, func }))
  .filter(({ name }) => !ofGlue.has(name))
  .sort((a, b) => numberOf.get(a.func) - numberOf.get(b.func));
const [, table, end] = TABLE.exec(firstText);
const placeOf = new Map(called.map(({ name }, i) => [name, Number(end) + i]));
const length = Number(end) + called.length;
firstText = firstText
  .replaceAll(EXPORT, (line, name) => (placeOf.has(name) ? "" : line))
  .replace(TABLE, ` (table ${table} ${length} ${length} `)
  .replace(/\)\s*$/, ` (elem $called (i32.const ${end}) ${called.map(({ func }) => func).join(" ")})\n)\n`);
const asked = (_, begin, name, end) => begin + (placeOf.get(name) ?? name) + end;
for (const part of [rest, ...later])
  texts.set(part, texts.get(part).replaceAll(/^( \(import "first" ")([^"]+)(" \(func )/gm, asked));

// --- what is written ----------------------------------------------------------------------------------------------------

function write(text, file) {
  writeFileSync("part.wat", text);
  binaryen("wasm-as", "part.wat", "-o", file);
}
/** The table has grown since: a module that imports it says how long it is, and not how long at most. */
const [, , places] = TABLE.exec(firstText);
const anyTable = (text) => text.replace(/^( \(import .* \(table \S+) \d+ \d+ /m, `$1 ${places} `);
const afterImports = /^( \(import .*\n)(?! \(import)/m;
const [, memory] = /^ \(export "(\w+)" \(memory /m.exec(texts.get("first"));
const [, pages] = /^ \(memory \S+ (.*)\)$/m.exec(texts.get("first"));
/** A later part with its data and what else belongs after its imports. */
function complete(part, ...more) {
  const text = anyTable(texts.get(part));
  const own = /^ \(import .* \(memory /m.test(text) ? [] : [` (import "first" "${memory}" (memory $memory ${pages}))\n`];
  return text.replace(afterImports, (line) => [line, ...own, ...more, ...dataOf(part)].join(""));
}

for (const part of later) write(complete(part), join(out, `oometer.${part}.wasm`));

// Each place in the table of a function of a later part has an import of its own, "PART" "PLACE". One for all functions of
// a type does: without the rest, whatever is missing asks for the rest, which has those that ask for a family. (Binaryen's
// --duplicate-import-elimination leaves them as they are.)
const placed = /^ \(import "(\w+)" "(\d+)" \(func (\S+)( .*)?\)\)\n/gm;
const oneOfType = new Map();
const same = new Map();
const firstCode = firstText.replaceAll(placed, (_line, _part, _place, name, type = "") => {
  if (oneOfType.has(type)) {
    same.set(name, oneOfType.get(type));
    return "";
  }
  oneOfType.set(type, name);
  return ` (import "${rest}" "needed" (func ${name}${type}))\n`;
});
write(
  firstCode
    .replaceAll(DATA, "")
    .replace(/^ \(memory .*\n/m, (line) => [line, ...dataOf("first")].join(""))
    .replaceAll(/\$fimport\$\d+/g, (name) => same.get(name) ?? name),
  join(out, "oometer.wasm"),
);

const imports = new Set();
const elements = [];
for (const [, part, place, , type = ""] of firstText.matchAll(placed)) {
  if (part === rest) continue;
  const name = `$${part}${type.replaceAll(/\W+/g, "_")}`;
  imports.add(` (import "${part}" "needed" (func ${name}${type}))\n`);
  elements.push(` (elem $at${place} (i32.const ${place}) ${name})\n`);
}
write(complete(rest, ...imports, ...elements), join(out, "oometer.rest.wasm"));
