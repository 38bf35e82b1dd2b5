// What the page knows of a model, and one's own models: a Hugging Face config.json, or a graph of operators as
// tools/export_graph.py writes it; pasted or dropped.
import type { Traits } from 'oometer-core/oometer.mjs';
import { isObject } from './json';
import { UNKNOWN } from './traits';

export interface Model extends Traits {
  /** A preset's name, or an own model's packed config. */
  id: string;
  title: string;
  description: string;
  /** How a job names it; null where only its name is known: a link's file that is not here. */
  job: { preset: string } | OwnModel | null;
  /** Of a preset of later answers: the core's parts that its family takes. */
  parts?: readonly string[];
}

type Json = Readonly<Record<string, unknown>>;
export type OwnModel = { name: string } & ({ config: Json } | { graph: Json });

/** Longer than any config.json. */
const LONGEST = 1 << 18;
/** Longer than graphs of thousands of operators; a link's few bytes must not unpack to gigabytes. */
const LONGEST_GRAPH = 1 << 24;
const LONGEST_NAME = 80;
const TOO_LONG = 'That is too long to be a config.json: it is the small file beside the weights.';

/** A file's text, unless it is larger than what is taken: weights are not read. */
export async function textOf(file: File): Promise<string> {
  if (file.size > LONGEST_GRAPH) throw new Error(TOO_LONG);
  return file.text();
}

const isList = Array.isArray as (value: unknown) => value is readonly unknown[];

/**
 * The model of a pasted text or a dropped file; throws a sentence for the person who gave it. Whether it is a model's
 * config, and one that is known, the core says.
 */
export function readConfig(text: string, file = ''): OwnModel {
  const isGraph = /^\s*\{\s*"format"\s*:\s*"oometer-graph"/.test(text);
  if (text.length > (isGraph ? LONGEST_GRAPH : LONGEST)) throw new Error(TOO_LONG);
  let config: unknown;
  try {
    config = JSON.parse(text);
  } catch {
    throw new Error(
      isGraph
        ? 'That is a graph file that is cut off or changed: it is no longer JSON. Take the whole file, or write it again.'
        : 'That is not JSON: a config.json begins with { and ends with }.',
    );
  }
  if (!isObject(config)) throw new Error('That is JSON, but no object: a config.json begins with { and ends with }.');
  if (config.format === 'oometer-graph') {
    const [root] = isList(config.modules) ? config.modules : [];
    const type = isList(root) && typeof root[1] === 'string' ? root[1] : 'graph';
    return { name: (file.replace(/\.json$/i, '') || type).slice(0, LONGEST_NAME), graph: config };
  }
  const kind = typeof config.model_type === 'string' ? config.model_type : 'config.json';
  const path = typeof config._name_or_path === 'string' ? config._name_or_path : '';
  // "config.json" is everybody's name; a folder's or the hub's says more.
  const named = /^config(\s*\(\d+\))?\.json$/i.test(file) ? '' : file.replace(/\.json$/i, '');
  return { name: (named || path || kind).slice(0, LONGEST_NAME), config };
}

/** `traits`: as the core tells them. */
export function ownModel(id: string, own: OwnModel, traits: Traits): Model {
  const isGraph = 'graph' in own;
  const kind = isGraph
    ? 'graph of operators'
    : typeof own.config.model_type === 'string'
      ? own.config.model_type
      : 'model';
  return {
    id,
    title: own.name,
    description: isAside(id)
      ? `Your own ${kind}: too large for a link, which holds everything but the file`
      : own.name.includes('/')
        ? `${kind}, by its config.json`
        : `Your own ${kind}`,
    job: own,
    ...traits,
  };
}

/** As much as a link has room for. */
export const LONGEST_PACKED = 40_000;

/** What links hold instead of a larger model: `file-1x2y3z-NAME`. */
const ASIDE = /^file-[0-9a-z]+-/;
export const isAside = (id: string): boolean => ASIDE.test(id);

/** A number of the text that another text hardly has (FNV-1a), in base 36. */
function digest(text: string): string {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; ++i) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  return (hash >>> 0).toString(36);
}

/** The value by which links name a model: all of it, packed, or its name where that is too long. */
export async function idOf(own: OwnModel): Promise<string> {
  const packed = await pack(own);
  if (packed.length <= LONGEST_PACKED) return packed;
  return `file-${digest(JSON.stringify(own))}-${own.name.replaceAll(/[^\w-]+/g, '_')}`;
}

/** A large model of which a link brought the name alone. */
export function absentModel(id: string): Model {
  const title = id.replace(ASIDE, '');
  return {
    id,
    title,
    description: 'Its file is not here',
    job: null,
    ...UNKNOWN,
  };
}

/** An own model as text for a link: its JSON, deflated, in base64url. */
export async function pack(own: OwnModel): Promise<string> {
  const stream = new Blob([JSON.stringify(own)]).stream().pipeThrough(new CompressionStream('deflate'));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const binary = Array.from(bytes, (byte) => String.fromCharCode(byte)).join('');
  return btoa(binary).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '');
}

/** Rejects what `pack` did not write. */
export async function unpack(packed: string): Promise<OwnModel> {
  const binary = atob(packed.replaceAll('-', '+').replaceAll('_', '/'));
  const bytes = Uint8Array.from(binary, (char) => char.charCodeAt(0));
  const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate')).getReader();
  const decoder = new TextDecoder('utf-8', { fatal: true });
  let text = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    text += decoder.decode(value, { stream: true });
    if (text.length > LONGEST_GRAPH) {
      await reader.cancel();
      throw new Error('too long');
    }
  }
  const own: unknown = JSON.parse(text);
  if (!isObject(own) || typeof own.name !== 'string') throw new Error('no model');
  const name = own.name.slice(0, LONGEST_NAME);
  if (isObject(own.graph)) return { name, graph: own.graph };
  if (!isObject(own.config) || text.length > LONGEST) throw new Error('no model');
  return { name, config: own.config };
}
