// YAML as trainers read it, into the values of JSON. Loaded only once somebody gives such a file.
import { LineCounter, parseDocument, type ScalarTag, type YAMLError } from 'yaml';

/** A trainer's file has some thousand characters; more is none. */
const LONGEST = 1 << 20;
const MOST_LEVELS = 64;
/** Copies of what an alias stands for, those inside copies counted each time. */
const MOST_ALIASES = 100;

const plain = (tag: string, test: RegExp, resolve: (word: string) => unknown): ScalarTag => ({
  tag,
  default: true,
  test,
  resolve,
});
const number = (word: string): number => Number(word.replaceAll('_', ''));

/**
 * What a word without quotes is: YAML 1.1's truths ("yes", "on"), but "1e-5" is a number and a date a text: so trainers, who
 * convert what they read, end up with it, and so the command reads it (scalar_of in core/importers/keys.cpp).
 */
const WORDS = [
  plain('tag:yaml.org,2002:null', /^(?:~|null|none)?$/i, () => null),
  plain('tag:yaml.org,2002:bool', /^(?:true|yes|on)$/i, () => true),
  plain('tag:yaml.org,2002:bool', /^(?:false|no|off)$/i, () => false),
  plain('tag:yaml.org,2002:int', /^[-+]?\d[\d_]{0,30}$/, number),
  plain('tag:yaml.org,2002:float', /^[-+]?(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:e[-+]?\d+)?$/i, number),
];

function levels(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0;
  return 1 + Math.max(0, ...Object.values(value).map(levels));
}

/** The parser's words, or ours where those speak of its options. */
function words({ code, message }: YAMLError, key: string): string {
  if (code === 'DUPLICATE_KEY') return `the key “${key}” stands here twice.`;
  if (code === 'MULTIPLE_DOCS') return 'a second document begins. Expected one in a file.';
  if (code === 'NON_STRING_KEY')
    return 'expected a name as key. A template such as {{ name }} has to be filled in first.';
  if (code === 'RESOURCE_EXHAUSTION') return `there are more than ${MOST_LEVELS} levels.`;
  return message.replace(/[^.]$/, '$&.');
}

/** The tree of a YAML file. Throws a sentence that begins with the line and column where there is one. */
export function readYaml(text: string): unknown {
  if (text.length > LONGEST) throw new Error('That is more than 1 MiB, which no trainer’s file has.');
  const lineCounter = new LineCounter();
  const fail = (at: number, message: string): never => {
    const { line, col } = lineCounter.linePos(at);
    throw new Error(`Line ${line}, column ${col}: ${message}`);
  };
  try {
    const options = { version: '1.1', schema: 'failsafe', customTags: WORDS, merge: true, stringKeys: true } as const;
    const document = parseDocument(text, { ...options, lineCounter, prettyErrors: false });
    const [error] = document.errors;
    if (error) fail(error.pos[0], words(error, /^[^:\s]*/.exec(text.slice(error.pos[0]))?.[0] ?? ''));
    const tree: unknown = document.toJS({ maxAliasCount: MOST_ALIASES });
    if (levels(tree) > MOST_LEVELS) throw new RangeError();
    return tree;
  } catch (error) {
    if (error instanceof RangeError) throw new Error(`That has more than ${MOST_LEVELS} levels.`);
    if (!(error instanceof ReferenceError)) throw error;
    const alias = /: (\S+)$/.exec(error.message)?.[1];
    if (alias === undefined) throw new Error('Its aliases (*name) repeat more than any trainer’s file does.');
    return fail(text.indexOf(`*${alias}`), `nothing above has the anchor “&${alias}”.`);
  }
}
