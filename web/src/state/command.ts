// The command that asks the same in a terminal.
import type { Job } from './job.generated';
import { at, isObject, keys } from './json';
import { OPTIONS } from './options.generated';

/** Parts of a job that the command reads from files. */
const FILES: readonly [pointer: string, option: string][] = [
  ['/model/config', '--config config.json'],
  ['/model/graph', '--graph model.json'],
  ['/parallel/ds_config', '--ds-config ds_config.json'],
  ['/parallel/accelerate_config', '--accelerate-config accelerate.json'],
];

/** Takes the value out, and the objects that are empty without it. */
function take(job: Record<string, unknown>, [key = '', ...rest]: readonly string[]): void {
  const value = job[key];
  if (rest.length > 0 && isObject(value)) take(value, rest);
  if (rest.length === 0 || (isObject(value) && Object.keys(value).length === 0)) Reflect.deleteProperty(job, key);
}

/** What no option says goes ahead of them, as a job of its own. */
export function command(job: Job): string {
  const words: string[] = [];
  const unsaid = structuredClone<unknown>(job) as Record<string, unknown>;
  for (const pointer of ['/version', '/model/name']) take(unsaid, keys(pointer));
  for (const [pointer, file] of FILES) {
    if (at(job, pointer) === undefined) continue;
    words.push(file);
    take(unsaid, keys(pointer));
  }
  // What a plain loop leaves out, a trainer has defaults of its own for.
  const byTrainer = at(job, '/training/loop') !== undefined;
  for (const [pointer, option, usual] of OPTIONS) {
    const value = at(job, pointer);
    take(unsaid, keys(pointer));
    if (value === undefined || value === null || (value === usual && !byTrainer)) continue;
    const empty = typeof value === 'object' && Object.keys(value).length === 0;
    if (!empty) words.push(value === true ? option : `${option} ${word(value)}`);
  }
  const options = words.join(' ');
  if (Object.keys(unsaid).length === 0) return `oometer estimate ${options}`;
  return `echo ${word(unsaid)} | oometer estimate - ${options}`;
}

/** Settings are plain words; whatever is not must not become a second command. */
function word(value: unknown): string {
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  return /^[\w.,:+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
