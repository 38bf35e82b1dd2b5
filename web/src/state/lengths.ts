// How long samples are, as people have it: a list with a number for each sample, or lengths with how many samples have each.
import { isObject } from './json';

/** A length, and how many samples have it. */
export type Bar = readonly [tokens: number, samples: number];

const READ = 'Give one length a sample, or each length with how many samples have it, such as “512 × 300”.';
/** As many as the core takes of one length, and of different ones as a link has room for. */
const MOST = 2 ** 30;
const MOST_DIFFERENT = 4000;

const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;

function bar(value: unknown): Bar {
  const pair: unknown = Array.isArray(value) ? value : [value, 1];
  const [tokens, samples, more] = pair as unknown[];
  if (more !== undefined || !isCount(tokens) || !isCount(samples)) throw new Error(READ);
  if (tokens === 0) throw new Error('A sample has at least 1 token.');
  return [tokens, samples];
}

/** [512, 700], [[512, 300], ...], {"512": 300}, or one of these under a name of its own. */
function ofJson(json: unknown): Bar[] {
  if (Array.isArray(json)) return json.map(bar);
  if (!isObject(json)) throw new Error(READ);
  const { lengths, histogram } = json;
  if (lengths !== undefined || histogram !== undefined) return ofJson(lengths ?? histogram);
  return Object.entries(json).map(([tokens, samples]) => bar([Number(tokens), samples]));
}

/** A number a word; "512x300"; or lines of two numbers, below a heading. */
function ofText(text: string): Bar[] {
  const [head = '', ...lines] = text.split(/\r?\n/).filter((line) => line.trim() !== '');
  const isTable = /[a-z]/i.test(head) && !/\d/.test(head);
  if (isTable) return lines.map((line) => bar(ofRow(line)));
  return text
    .replaceAll(/\s*[x×*:]\s*/g, 'x')
    .split(/[\s,;]+/)
    .filter((word) => word !== '')
    .map((word) => bar(ofRow(word)));
}

function ofRow(row: string): number | number[] {
  const numbers = row.split(/[\s,;x]+/).map((word) => (/^\d+$/.test(word) ? Number(word) : NaN));
  return numbers.length === 1 ? (numbers[0] ?? NaN) : numbers;
}

/** What is pasted or dropped; throws a sentence. */
export function readLengths(text: string): Bar[] {
  let bars: Bar[];
  try {
    bars = ofJson(JSON.parse(text) as unknown);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    bars = ofText(text);
  }
  const counts = new Map<number, number>();
  for (const [tokens, samples] of bars) counts.set(tokens, (counts.get(tokens) ?? 0) + samples);
  const sorted = [...counts].filter(([, samples]) => samples > 0).sort(([a], [b]) => a - b);
  if (sorted.length === 0) throw new Error(READ);
  if (sorted.length > MOST_DIFFERENT || sorted.some(([, samples]) => samples > MOST))
    throw new Error(
      `These are more than ${MOST_DIFFERENT.toLocaleString('en-US')} different lengths. Round them, for example to multiples of 8.`,
    );
  return sorted;
}

/** Whether a text is of lengths, and of nothing else that people drop here. */
export const isLengths = (text: string): boolean =>
  /^\s*[[\d]/.test(text) || /^\s*\{\s*"(\d+|lengths|histogram)"\s*:/.test(text) || /^\s*"?(length|tokens)/i.test(text);

/** As a link holds them: "512x300-1024x5". */
export const packLengths = (bars: readonly Bar[]): string =>
  bars.map(([tokens, samples]) => `${tokens}x${samples}`).join('-');

/** What `packLengths` wrote; of anything else what can be read of it, which the core refuses. */
export const histogramOf = (packed: string): Bar[] =>
  packed === ''
    ? []
    : packed.split('-').map((one): Bar => {
        const [tokens, samples] = one.split('x').map(Number);
        return [tokens ?? NaN, samples ?? NaN];
      });

/** "1,204 samples of 64 to 4,096 tokens, 803 on average" */
export function describeLengths(packed: string): string {
  const bars = histogramOf(packed);
  const count = (value: number, of: string): string =>
    `${value.toLocaleString('en-US')} ${of}${value === 1 ? '' : 's'}`;
  const samples = bars.reduce((sum, [, one]) => sum + one, 0);
  const tokens = bars.reduce((sum, [length, one]) => sum + length * one, 0);
  const [least, most] = [bars[0]?.[0] ?? 0, bars.at(-1)?.[0] ?? 0];
  const range =
    least === most
      ? count(most, 'token')
      : `${least.toLocaleString('en-US')} to ${count(most, 'token')}, ${Math.round(tokens / samples).toLocaleString('en-US')} on average`;
  return `${count(samples, 'sample')} of ${range}`;
}
