import { existsSync, readFileSync, readdirSync, renameSync, statSync, writeFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import type { Oometer } from 'oometer-core/oometer.mjs';
import type { HtmlTagDescriptor, Plugin } from 'vite';
import type { HubModel } from './src/state/hub';

const here = fileURLToPath(new URL('.', import.meta.url));
const name = 'virtual:models';

/** The compiled core lies outside this folder; `./dev build` makes it. */
export function coreFolder(): string {
  const core = resolve(here, process.env.OOMETER_WASM ?? '../build/wasm');
  if (!existsSync(`${core}/oometer.mjs`)) {
    throw new Error(`${core}/oometer.mjs is missing: run ./dev build in the repository`);
  }
  return core;
}

const compiled = new Map<string, WebAssembly.Module>();

function compile(file: string): WebAssembly.Module {
  const module = compiled.get(file) ?? new WebAssembly.Module(readFileSync(file));
  compiled.set(file, module);
  return module;
}

const script = <T>(name: string): Promise<T> => import(pathToFileURL(`${coreFolder()}/${name}`).href) as Promise<T>;
const partsScript = (): Promise<typeof import('oometer-core/parts.mjs')> => script('parts.mjs');

/** The core in Node, of its first part and those of these names; null stands for all. */
async function coreOf(names: readonly string[] | null): Promise<Oometer> {
  const core = coreFolder();
  const { default: create } = await script<typeof import('oometer-core/oometer.mjs')>('oometer.mjs');
  const { instantiate } = await partsScript();
  const later = names ?? readdirSync(core).flatMap((file) => /^oometer\.(\w+)\.wasm$/.exec(file)?.[1] ?? []);
  const parts = later.map((part) => [part, compile(`${core}/oometer.${part}.wasm`)] as const);
  return instantiate(create, { first: compile(`${core}/oometer.wasm`), ...Object.fromEntries(parts) });
}

/** The core with all its parts, in Node. */
export const loadCore = (): Promise<Oometer> => coreOf(null);

/** Whether the first part knows the preset. */
async function isFirst(preset: string): Promise<boolean> {
  const core = await coreOf([]); // one that lacks something is spent
  try {
    core.estimate(JSON.stringify({ version: 1, model: { preset } }));
    return true;
  } catch {
    return false;
  }
}

/** The parts that an answer about the preset takes beside the first and the rest. */
async function partsOf(preset: string): Promise<string[]> {
  const { OF_REST } = await partsScript();
  for (const more: string[] = []; ;) {
    const core = await coreOf([...OF_REST, ...more]);
    try {
      core.estimate(JSON.stringify({ version: 1, model: { preset } }));
      return more;
    } catch (error) {
      if (!(error instanceof Error && 'part' in error && typeof error.part === 'string')) throw error;
      more.push(error.part);
    }
  }
}

interface Rows {
  first: object[];
  later: object[];
}

/** What the core says of its presets: asked for once, as each takes several instances, and kept beside it. */
async function presetRows(): Promise<Rows> {
  const file = `${coreFolder()}/models.json`;
  const made = [`${coreFolder()}/oometer.wasm`, fileURLToPath(import.meta.url)].map((from) => statSync(from).mtimeMs);
  if (existsSync(file) && statSync(file).mtimeMs > Math.max(...made))
    return JSON.parse(readFileSync(file, 'utf8')) as Rows;
  const core = await loadCore();
  const known = JSON.parse(core.presets()) as { models: { id: string }[] };
  const rows: Rows = { first: [], later: [] };
  for (const model of known.models) {
    const job = { model: { preset: model.id } };
    const row = { ...model, job: job.model, ...(JSON.parse(core.traits(JSON.stringify(job))) as object) };
    if (await isFirst(model.id)) rows.first.push(row);
    else rows.later.push({ ...row, parts: await partsOf(model.id) });
  }
  writeFileSync(`${file}.${process.pid}`, JSON.stringify(rows));
  renameSync(`${file}.${process.pid}`, file);
  return rows;
}

/**
 * The presets with their traits, which the core is asked at build: a page that has them draws its form at once. Only those
 * that the first part knows are in the page; the others are a file that it fetches after its first answer.
 */
export function models(): Plugin {
  let serves = false;
  return {
    name,
    configResolved({ command }) {
      serves = command === 'serve';
    },
    resolveId: (id) => (id === name ? '\0' + name : null),
    async load(id) {
      if (id !== '\0' + name) return null;
      const { first, later } = await presetRows();
      const source = JSON.stringify(later);
      const address = serves
        ? JSON.stringify(`data:application/json,${encodeURIComponent(source)}`)
        : `import.meta.ROLLUP_FILE_URL_${this.emitFile({ type: 'asset', name: 'models.json', source })}`;
      return `export const first=${JSON.stringify(first)};export const later=${address}`;
    },
  };
}

/**
 * Puts the core's later parts beside the first, under its name and with its hash, which the commit in it changes: the script
 * that knows the first one's address knows all, however many there are.
 */
export function laterParts(): Plugin {
  return {
    name: 'later-parts',
    generateBundle(_, bundle) {
      const first = Object.keys(bundle).find((file) => /oometer-[^/]*\.wasm$/.test(file));
      for (const file of readdirSync(coreFolder())) {
        const [, part] = /^oometer\.(\w+)\.wasm$/.exec(file) ?? [];
        if (!first || !part) continue;
        const fileName = first.replace(/oometer(?=[^/]*$)/, `oometer.${part}`);
        this.emitFile({ type: 'asset', fileName, source: readFileSync(`${coreFolder()}/${file}`) });
      }
    },
  };
}

/** The models that people use most, by their names on the Hugging Face hub. */
export function hubModels(): Plugin {
  const hub = 'virtual:hub-models';
  return {
    name: hub,
    resolveId: (id) => (id === hub ? '\0' + hub : null),
    async load(id) {
      if (id !== '\0' + hub) return null;
      const core = await loadCore();
      const reads = (config: unknown): boolean =>
        !('error' in JSON.parse(core.traits(JSON.stringify({ model: { config } }))));
      const rows = JSON.parse(readFileSync(resolve(here, '../presets/hub.json'), 'utf8')) as (HubModel & {
        source: string;
      })[];
      const models = rows.map((row) => ({ ...row, source: undefined, known: !row.config || reads(row.config) }));
      return `export default JSON.parse(${JSON.stringify(JSON.stringify(models))})`;
    },
  };
}

/**
 * Lets the browser fetch and compile the core while it still reads the page's own script, for the first answer waits for
 * both, and fetch at once what the page runs later: nothing is requested after the load.
 */
export function preloadCore(): Plugin {
  return {
    name: 'preload-core',
    transformIndexHtml: {
      order: 'post',
      handler: (html, { bundle, path }) => {
        if (!html.includes('<script')) return [];
        const embedded = path.endsWith('embed.html');
        const files = Object.values(bundle ?? {});
        const core = /\/oometer-[^/]*\.(js|wasm)$/;
        const details = files.find((file) => file.type === 'chunk' && file.name === 'details');
        const later = details?.type === 'chunk' && !embedded ? [details.fileName, ...details.imports] : [];
        return [
          ...files.flatMap(({ fileName }) => (core.test(fileName) ? early(fileName) : [])),
          ...later.flatMap((file) => (html.includes(file) ? [] : link(file, { rel: 'modulepreload' }))),
        ];
      },
    },
  };
}

/** What the page offers to whoever has another model: the tool that writes its graph, beside the page. */
export function offerTool(): Plugin {
  return {
    name: 'offer-tool',
    generateBundle() {
      const source = readFileSync(resolve(here, '../tools/export_graph.py'), 'utf8');
      this.emitFile({ type: 'asset', fileName: 'export_graph.py', source });
    },
  };
}

function early(file: string): HtmlTagDescriptor {
  if (file.endsWith('.wasm')) return link(file, { rel: 'preload', as: 'fetch', type: 'application/wasm' });
  const attrs = { type: 'module', async: true, fetchpriority: 'high', src: `./${file}` };
  return { tag: 'script', injectTo: 'head', attrs };
}

function link(file: string, attrs: Record<string, string>): HtmlTagDescriptor {
  return { tag: 'link', injectTo: 'head', attrs: { ...attrs, crossorigin: '', href: `./${file}` } };
}

/** Puts a table of the README where a page says `<!-- table:NAME -->`: figures that tools write have one home. */
export function readmeTables(): Plugin {
  return {
    name: 'readme-tables',
    transformIndexHtml: {
      order: 'pre',
      handler: (html) =>
        html.replace(/<!-- table:(\w+) -->/g, (_, table: string) => {
          const readme = readFileSync(resolve(here, '../README.md'), 'utf8');
          const found = new RegExp(`<!-- table:${table} -->\\n([^]*?)<!-- /table:${table} -->`).exec(readme)?.[1];
          if (found === undefined) throw new Error(`README.md has no table “${table}”`);
          return htmlTable(found);
        }),
    },
  };
}

/** A Markdown table and the paragraphs after it. */
function htmlTable(markdown: string): string {
  const lines = markdown.split('\n').map((line) => line.trim());
  const cells = (line: string): string[] =>
    line
      .slice(1, -1)
      .split('|')
      .map((cell) => escape(cell.trim()));
  const row = (line: string, tag: string): string =>
    `<tr>${cells(line)
      .map((cell) => `<${tag}>${cell}</${tag}>`)
      .join('')}</tr>`;
  const [head = '', , ...body] = lines.filter((line) => line.startsWith('|'));
  const rest = lines.filter((line) => line !== '' && !line.startsWith('|'));
  const rows = body.map((line) => row(line, 'td')).join('');
  return `<table><thead>${row(head, 'th')}</thead><tbody>${rows}</tbody></table><p>${rest.map(escape).join(' ')}</p>`;
}

function escape(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}
