// The address of a setup: `#v1?model=llava-1.5-13b&mbs=16`, only what differs from the page's start.
//
// It stands in the fragment, which a browser never sends. Old links keep opening: a new version adds a reader here and
// samples to tests/permalinks, and the readers of the old ones stay.
import { FIELDS, START, type Field, type FieldKey, type Setup } from './fields';

export const VERSION = 'v1';
const PREFIX = `#${VERSION}?`;

/** A link longer than this is nobody's: the settings take a few hundred characters. */
const LONGEST = 4096;
const LONGEST_VALUE = 64;

export interface Link {
  setup: Setup;
  /** What could not be read, as sentences; the rest of the link has been applied. */
  problems: string[];
}

/** What may stand in the fields whose choices the core knows. */
export type Known = Partial<Record<FieldKey, readonly string[]>>;

export function write(setup: Setup): string {
  const parts = FIELDS.filter(({ key }) => setup[key] !== START[key]).map(
    ({ key }) => `${key}=${encodeURIComponent(setup[key])}`,
  );
  return parts.length > 0 ? PREFIX + parts.join('&') : '';
}

/** Never throws: whatever cannot be read is told in `problems`, and the page's start stands in for it. */
export function read(fragment: string, known: Known = {}): Link {
  const setup: Setup = { ...START };
  const problems: string[] = [];
  if (fragment === '' || fragment === '#') return { setup, problems };
  if (fragment.length > LONGEST) return { setup, problems: ['It is too long to be a link of this page.'] };
  const version = /^#(v\d{1,3})(\?|$)/.exec(fragment)?.[1];
  if (version === undefined) return { setup, problems: ['It does not begin as a link of this page does.'] };
  if (version !== VERSION) {
    return {
      setup,
      problems: [`It was made by another version of this page (${version}; this one reads ${VERSION}).`],
    };
  }
  for (const part of fragment.slice(PREFIX.length).split('&')) {
    if (part === '') continue;
    const problem = apply(setup, part, known);
    if (problem !== null) problems.push(problem);
  }
  return { setup, problems };
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
  const allowed = target.choices?.map((choice) => choice.value) ?? known[target.key];
  // A number that is wrong stays in its field, where the core says what is wrong with it.
  return allowed ? allowed.includes(value) : value.length <= LONGEST_VALUE && /^[\w.,+\- ]*$/.test(value);
}

function brief(text: string): string {
  return text.length > 40 ? text.slice(0, 40) + '…' : text;
}
