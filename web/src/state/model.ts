// What the page knows of a model, and one's own models: a Hugging Face config.json, pasted or dropped.
import { isObject } from './json';

/** What the form needs to know of a model to show the fields that mean something for it. */
export interface Traits {
  /** Whether it reads text. */
  text: boolean;
  /** Whether images stand as tokens among its text, so that a sample may hold any number of them. */
  images: boolean;
  /** Whether an image's size decides how many tokens it takes (Qwen-VL, LLaVA-NeXT). */
  sizes?: boolean;
  /** Whether it takes images of any size, and videos (Qwen-VL). */
  resizes?: boolean;
  /** Whether its processor cuts large images into tiles (SmolVLM, Idefics3). */
  splits?: boolean;
}

export interface Model extends Traits {
  /** A preset's name, or an own model's packed config. */
  id: string;
  title: string;
  description: string;
  /** The length that people train it with, where it reads text and that is known. */
  sequence_length: number | null;
  /** How a job names it. */
  job: { preset: string } | OwnModel;
}

export interface OwnModel {
  name: string;
  config: Readonly<Record<string, unknown>>;
}

/** Longer than any config.json; a link's few bytes must not unpack to gigabytes. */
const LONGEST = 1 << 18;
const LONGEST_NAME = 80;
const TOO_LONG = 'That is too long to be a config.json: it is the small file beside the weights.';

/** A file's text, unless it is larger than what is taken: weights are not read. */
export async function textOf(file: File): Promise<string> {
  if (file.size > LONGEST) throw new Error(TOO_LONG);
  return file.text();
}

/** Reads a Hugging Face config.json. */
export function traits(config: Readonly<Record<string, unknown>>): Traits {
  return {
    text: 'vocab_size' in config || 'text_config' in config,
    images: 'image_token_index' in config || 'image_token_id' in config,
    ...(/^(smolvlm|idefics3)$/.test(String(config.model_type)) ? { splits: true } : {}),
    ...(/^qwen2.*_vl$/.test(String(config.model_type)) ? { images: true, text: true, sizes: true, resizes: true } : {}),
    ...(config.model_type === 'llava_next' ? { sizes: true } : {}),
  };
}

/**
 * The model of a pasted text or a dropped file; throws a sentence for the person who gave it. Whether it is a model's
 * config, and one that is known, the core says.
 */
export function readConfig(text: string, file = ''): OwnModel {
  if (text.length > LONGEST) throw new Error(TOO_LONG);
  let config: unknown;
  try {
    config = JSON.parse(text);
  } catch {
    throw new Error('That is not JSON: a config.json begins with { and ends with }.');
  }
  if (!isObject(config)) throw new Error('That is JSON, but no object: a config.json begins with { and ends with }.');
  const kind = typeof config.model_type === 'string' ? config.model_type : 'config.json';
  const path = typeof config._name_or_path === 'string' ? config._name_or_path : '';
  // "config.json" is everybody's name; a folder's or the hub's says more.
  const named = /^config(\s*\(\d+\))?\.json$/i.test(file) ? '' : file.replace(/\.json$/i, '');
  return { name: (named || path || kind).slice(0, LONGEST_NAME), config };
}

export function ownModel(id: string, own: OwnModel): Model {
  const kind = typeof own.config.model_type === 'string' ? own.config.model_type : 'model';
  return {
    id,
    title: own.name,
    description: `Your own ${kind}`,
    sequence_length: null,
    job: own,
    ...traits(own.config),
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
    if (text.length > LONGEST) {
      await reader.cancel();
      throw new Error('too long');
    }
  }
  const own: unknown = JSON.parse(text);
  if (!isObject(own) || !isObject(own.config) || typeof own.name !== 'string') throw new Error('no model');
  return { name: own.name.slice(0, LONGEST_NAME), config: own.config };
}
