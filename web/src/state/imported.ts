// What the page does with a trainer's files before it asks the core, and with what the core says of them.
import type { Missing, SourceFile, Unmodelled } from '../wasm/imported';
import type { Job } from './job.generated';
import { at, isObject } from './json';

const lastPart = (path: string): string => path.replace(/\/+$/, '').replace(/^.*\//, '');

/** The models of a catalogue that the files may name, by the last part of their ids as the core finds them: the whole is long to read. */
export function namedIn<Named extends { id: string }>(
  files: readonly SourceFile[],
  catalogue: readonly Named[],
): readonly Named[] {
  const text = JSON.stringify(files).toLowerCase();
  return catalogue.filter(({ id }) => text.includes(lastPart(id).toLowerCase()));
}

/** Whether a file is what others name or leave open. */
export function isWanted({ name, content }: SourceFile, { kind, name: wanted }: Missing): boolean {
  if (kind === 'config.json') return isObject(content) && typeof content.model_type === 'string';
  return kind === 'file' && wanted !== '' && lastPart(wanted) === lastPart(name);
}

/** A variable of a script that people can say: others are what a command would print. */
export const isVariable = ({ kind, name }: Missing): boolean => kind === 'variable' && /^[A-Za-z_]\w*$/.test(name);

const quoted = (value: string): string => `'${value.replaceAll("'", "'\\''")}'`;

/** The script with these assignments ahead, in its first line: all others keep their numbers. */
function assigned(script: string, variables: ReadonlyMap<string, string>): string {
  const words = [...variables].map(([name, value]) => `${name}=${quoted(value)}`).join('; ');
  if (words === '') return script;
  return script.startsWith('#') ? script.replace(/^.*/, words) : `${words}; ${script}`;
}

/** The files with what somebody said of variables that a script does not set. */
export const withVariables = (
  files: readonly SourceFile[],
  variables: ReadonlyMap<string, string>,
): readonly SourceFile[] =>
  files.map(({ name, content, text }) => ({
    name,
    content: typeof content === 'string' ? assigned(content, variables) : content,
    ...(text === undefined || typeof content === 'string' ? {} : { text }),
  }));

/** On how many GPUs a job runs. */
export function gpusOf(job: Job): number {
  const counts = ['/parallel/data', '/parallel/accelerate_config/num_processes', '/gpu/count'];
  return counts.map((pointer) => at(job, pointer)).find((count) => typeof count === 'number') ?? 1;
}

/** "/training/lora/rank" → "training.lora.rank" */
export const nameOf = (pointer: string): string => pointer.slice(1).replaceAll('/', '.');

const LONGEST = 60;

/** A value in a table. */
export function shortly(value: unknown): string {
  if (value === null || value === undefined) return '';
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  return text.length > LONGEST ? `${text.slice(0, LONGEST - 1)}…` : text;
}

export const EFFECTS: Record<Unmodelled['effect'], string> = {
  more: 'may need more',
  unknown: 'effect unknown',
  either: 'may need more or less',
  less: 'may need less',
};

/** What may need more comes first. */
export function byEffect(all: readonly Unmodelled[]): readonly Unmodelled[] {
  const order = Object.keys(EFFECTS);
  return [...all].sort((a, b) => order.indexOf(a.effect) - order.indexOf(b.effect));
}
