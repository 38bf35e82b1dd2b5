// What somebody gave: dropped, chosen or pasted. Told by its content, not by its name.
import { reason } from '../format/reason';
import type { SourceFile } from '../wasm/imported';
import { isObject } from './json';
import type { Job } from './job.generated';
import { isLengths } from './lengths';
import { textOf } from './model';
import { hasKeys, isBraced, isScript } from './pasted';
import { runOf, type RunFile } from './runfile';

export interface TextFile extends SourceFile {
  text: string;
}

export type Dropped =
  | { kind: 'snapshot'; file: File }
  | { kind: 'job'; job: Job }
  | { kind: 'lengths'; text: string }
  /** A config.json or a graph. */
  | { kind: 'model'; file: TextFile }
  /** The file of DeepSpeed or accelerate. */
  | { kind: 'run'; file: TextFile; run: RunFile }
  /** What a trainer may know: the core tells. */
  | { kind: 'other'; file: TextFile };

const starts = (bytes: Uint8Array, text: string): boolean =>
  Array.from(text).every((char, i) => bytes[i] === char.charCodeAt(0));
/** An opcode, and the version that Python writes by itself since 3.0; torch.save's old format has 2. */
const isPickle = (bytes: Uint8Array): boolean => bytes[0] === 0x80 && (bytes[1] ?? 0) >= 3 && (bytes[1] ?? 0) <= 5;
/** Eight bytes of a length, then JSON. */
const isSafetensors = (bytes: Uint8Array): boolean => bytes[8] === 0x7b && bytes[6] === 0 && bytes[7] === 0;

const WEIGHTS = 'holds weights. What is needed is the small config.json beside them.';
const READ =
  'Drop a config.json, a trainer’s file or launch script, a DeepSpeed or accelerate configuration, a job, a graph file, lengths of samples, or a memory snapshot of PyTorch.';

/** The tree of JSON or YAML; a text that is neither is its own content. Throws where it means to be YAML and is not. */
async function contentOf(text: string, name: string): Promise<unknown> {
  if (/\.(ba)?sh$/i.test(name) || text.startsWith('#!')) return text;
  try {
    return JSON.parse(text);
  } catch {
    // YAML, a script, or what its reader complains about
  }
  const isYaml = /\.ya?ml$/i.test(name);
  if (!isYaml && !hasKeys(text) && !isBraced(text)) return text;
  const { readYaml } = await import('./yaml');
  try {
    const tree = readYaml(text);
    return isYaml || isObject(tree) ? tree : text;
  } catch (error) {
    if (!isYaml && (isScript(text) || isBraced(text))) return text;
    throw new Error(`${name}: ${reason(error)}`);
  }
}

function told(text: string, name: string, content: unknown): Dropped {
  const file = { name, text, content };
  const run = runOf(content);
  if (run) return { kind: 'run', file, run };
  if (!isObject(content)) return { kind: 'other', file };
  if (typeof content.version === 'number' && isObject(content.model))
    return { kind: 'job', job: content as unknown as Job };
  // Some trainers have a key of that name, too, beside one that names the model.
  const isModel = 'model_type' in content && isBraced(text) && !('base_model' in content || 'model' in content);
  return { kind: isModel || content.format === 'oometer-graph' ? 'model' : 'other', file };
}

/** Throws a sentence about what is none of these. */
export async function identify(file: File): Promise<Dropped> {
  const head = new Uint8Array(await file.slice(0, 4096).arrayBuffer());
  if (file.size === 0) throw new Error(`${file.name} is empty. ${READ}`);
  if (isPickle(head)) return { kind: 'snapshot', file };
  if (starts(head, 'PK') || starts(head, 'GGUF') || isSafetensors(head) || head[0] === 0x80)
    throw new Error(`${file.name} ${WEIGHTS}`);
  if (head.includes(0)) throw new Error(`${file.name} is not a text file. ${READ}`);
  const text = await textOf(file);
  if (isLengths(text) && !/\.ya?ml$/i.test(file.name)) return { kind: 'lengths', text };
  return told(text, file.name, await contentOf(text, file.name));
}
