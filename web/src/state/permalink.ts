// The address of a view: `#v1?model=llava-1.5-13b&mbs=16/mbs=8`: what differs from the page's start in the setup that is
// shown, and after each slash in one that is pinned beside it.
//
// It stands in the fragment, which a browser never sends. Old links keep opening: a new version adds a reader here and
// samples to tests/permalinks, and the readers of the old ones stay.
import { FIELDS, START, type Field, type FieldKey, type Setup } from './fields';
import { LONGEST_PACKED } from './model';
import { unpackRun } from './runfile';

export const VERSION = 'v1';
const PREFIX = `#${VERSION}?`;

/** As many as stand side by side on a screen. */
export const MOST_PINS = 4;

/** Longer links than these are nobody's: settings take a few hundred characters, a packed config a few thousand. */
const LONGEST = 250_000;
const LONGEST_VALUE = 64;
const LONGEST_LIST = 1000;

/** What a link shows. */
export interface View {
  setup: Setup;
  pins: Setup[];
}

export interface Link extends View {
  /** What could not be read, as sentences; the rest of the link has been applied. */
  problems: string[];
}

/** What may stand in the fields whose choices the core knows. */
export type Known = Partial<Record<FieldKey, readonly string[]>>;

export function write(setup: Setup, pins: readonly Setup[] = []): string {
  const text = [setup, ...pins].map(differences).join('/');
  return text === '' ? '' : PREFIX + text;
}

/** What differs from the start; the shortest that tells two setups apart. */
export function differences(setup: Setup): string {
  return FIELDS.filter(({ key }) => setup[key] !== START[key])
    .map(({ key }) => `${key}=${encodeURIComponent(setup[key])}`)
    .join('&');
}

/** Never throws: whatever cannot be read is told in `problems`, and the page's start stands in for it. */
export function read(fragment: string, known: Known = {}): Link {
  const start = (...problems: string[]): Link => ({ setup: { ...START }, pins: [], problems });
  if (fragment === '' || fragment === '#') return start();
  if (fragment.length > LONGEST) return start('It is too long to be a link of this page.');
  const version = /^#(v\d{1,3})(\?|$)/.exec(fragment)?.[1];
  if (version === undefined) return start('It does not begin as a link of this page does.');
  if (version !== VERSION) {
    return start(`It was made by another version of this page (${version}; this one reads ${VERSION}).`);
  }
  const problems: string[] = [];
  const [first = '', ...rest] = fragment.slice(PREFIX.length).split('/');
  if (rest.length > MOST_PINS) problems.push(`It pins more than ${MOST_PINS} configurations.`);
  return {
    setup: readSetup(first, known, problems),
    pins: rest.slice(0, MOST_PINS).map((text) => readSetup(text, known, problems)),
    problems,
  };
}

function readSetup(text: string, known: Known, problems: string[]): Setup {
  const setup: Setup = { ...START };
  for (const part of text.split('&')) {
    if (part === '') continue;
    const problem = apply(setup, part, known);
    if (problem !== null) problems.push(problem);
  }
  return setup;
}

function apply(setup: Setup, part: string, known: Known): string | null {
  const [key = '', ...rest] = part.split('=');
  const target = FIELDS.find((candidate) => candidate.key === key);
  if (!target) return `It sets “${brief(key)}”, which this page does not know.`;
  let value: string;
  try {
    value = decodeURIComponent(rest.join('='));
  } catch {
    return `${target.label} cannot be read.`;
  }
  if (!accepts(target, value, known)) return `${target.label} cannot be “${brief(value)}”.`;
  setup[target.key] = value;
  return null;
}

function accepts(target: Field, value: string, known: Known): boolean {
  if (target.key === 'runfile' && value !== '' && unpackRun(value) === null) return false;
  if (target.kind === 'config') return value.length <= LONGEST_PACKED && /^[\w-]*$/.test(value);
  const allowed = target.choices ?? known[target.key];
  // A number that is wrong stays in its field, where the core says what is wrong with it.
  const longest = target.kind === 'names' ? LONGEST_LIST : LONGEST_VALUE;
  return allowed ? allowed.includes(value) : value.length <= longest && /^[\w.,+\- ]*$/.test(value);
}

function brief(text: string): string {
  return text.length > 40 ? text.slice(0, 40) + '…' : text;
}
