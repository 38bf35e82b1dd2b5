// What somebody dropped on the page: told by its first bytes, not by its name.
import { isObject } from './json';
import type { Job } from './job.generated';
import { textOf } from './model';

export type Dropped =
  | { kind: 'snapshot'; file: File }
  | { kind: 'job'; job: Job }
  /** A config.json, a graph, the file of DeepSpeed or accelerate, or lengths. */
  | { kind: 'text'; text: string; name: string };

const starts = (bytes: Uint8Array, text: string): boolean =>
  Array.from(text).every((char, i) => bytes[i] === char.charCodeAt(0));
/** An opcode, and the version that Python writes by itself since 3.0; torch.save's old format has 2. */
const isPickle = (bytes: Uint8Array): boolean => bytes[0] === 0x80 && (bytes[1] ?? 0) >= 3 && (bytes[1] ?? 0) <= 5;
/** Eight bytes of a length, then JSON. */
const isSafetensors = (bytes: Uint8Array): boolean => bytes[8] === 0x7b && bytes[6] === 0 && bytes[7] === 0;

const WEIGHTS = 'holds weights. What is needed is the small config.json beside them.';
const READ =
  'Drop a config.json, a DeepSpeed or accelerate configuration, a job, a graph file, lengths of samples, or a memory snapshot of PyTorch.';

/** Throws a sentence about what is none of these. */
export async function identify(file: File): Promise<Dropped> {
  const head = new Uint8Array(await file.slice(0, 4096).arrayBuffer());
  if (file.size === 0) throw new Error(`${file.name} is empty. ${READ}`);
  if (isPickle(head)) return { kind: 'snapshot', file };
  if (starts(head, 'PK') || starts(head, 'GGUF') || isSafetensors(head) || head[0] === 0x80)
    throw new Error(`${file.name} ${WEIGHTS}`);
  if (head.includes(0)) throw new Error(`${file.name} is not a text file. ${READ}`);
  const text = await textOf(file);
  try {
    const content: unknown = JSON.parse(text);
    if (isObject(content) && typeof content.version === 'number' && isObject(content.model))
      return { kind: 'job', job: content as unknown as Job };
  } catch {
    // YAML, or what its reader complains about
  }
  return { kind: 'text', text, name: file.name };
}
