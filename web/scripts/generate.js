// Makes what the page has of the core's table of settings: the types of a job, and of each setting what the form and
// permalinks use. In three modules, because the words and the command's options are loaded later.
import { readFileSync, writeFileSync } from 'node:fs';
import { compileFromFile } from 'json-schema-to-typescript';

const presets = new URL('../../presets/', import.meta.url).pathname;
const state = new URL('../src/state/', import.meta.url).pathname;
const by = (file) => `// Generated from presets/${file} by scripts/generate.js.\n`;

const types = await compileFromFile(`${presets}job.schema.json`, {
  additionalProperties: false,
  bannerComment: by('job.schema.json'),
  style: { singleQuote: true, printWidth: 120 },
});
writeFileSync(`${state}job.generated.ts`, types);

const { settings } = JSON.parse(readFileSync(`${presets}settings.json`, 'utf8'));
const write = (name, imports, content) => {
  const values = Object.entries(content).map(
    ([key, [type, value]]) => `export const ${key}: ${type} = ${JSON.stringify(value)};\n`,
  );
  writeFileSync(`${state}${name}.generated.ts`, by('settings.json') + imports + values.join(''));
};
/** The page's typography. */
const print = (text) => text.replace(/'/g, '’').replace(/\(IA\)\^3/g, 'IA³');

const sentence = (text) => print(text).replace(/\.?$/, '.');

/** How a permalink spells a value; null has no spelling of its own. */
const spelled = ({ link_values: [no, yes] = ['off', 'on'] }, value) =>
  value === true ? yes : value === false ? no : value === null ? null : String(value);

const choicesOf = (setting) => {
  const { types, choices, offers, default: usual } = setting;
  const none = types.includes('null') ? [null] : [];
  if (choices) return [...none, ...choices.map(({ value }) => value)];
  if (offers) return offers;
  return types.join() === 'boolean' ? [usual, !usual] : undefined;
};

const kindOf = ({ types, length }, choices) => {
  if (choices) return 'choice';
  if (types.includes('array')) return length === undefined ? 'names' : 'numbers';
  return types.includes('integer') || types.includes('number') ? 'count' : 'config';
};

const typeOf = ({ types }) => types.find((type) => type !== 'null');

const links = {};
const hints = {};
const units = {};
const labels = {};
const abouts = {};
for (const setting of settings) {
  if (setting.link === undefined) continue;
  for (const key of setting.link.split(' ')) {
    const choices = choicesOf(setting)?.map((value) => spelled(setting, value));
    const when = (setting.applies ?? []).map(({ setting: pointer, is, not }) => {
      const other = settings.find((candidate) => candidate.pointer === pointer);
      return [pointer, is !== undefined, ...(is ?? not).map((value) => spelled(other, value))];
    });
    const pointers = [...(links[key]?.pointers ?? []), setting.pointer];
    if (links[key]?.label) links[key].pointers = pointers;
    else {
      const [label, kind, type] = [print(setting.label ?? ''), kindOf(setting, choices), typeOf(setting)];
      links[key] = { pointers, label, kind, type, yes: setting.link_values?.[1], choices, when };
    }
    if (!setting.label) continue;
    hints[key] ??= sentence(setting.words.replace(/[;,] (null|absent|false)\b.*$/, ''));
    if (setting.unit) units[key] = setting.unit;
    if (typeOf(setting) === 'boolean')
      labels[key] = { [spelled(setting, false)]: 'Off', [spelled(setting, true)]: 'On' };
    for (const { value, label, words } of setting.choices ?? []) {
      if (label) (labels[key] ??= {})[value] = print(label);
      if (words) (abouts[key] ??= {})[value] = sentence(words);
    }
  }
}
const keys = Object.keys(links).map((key) => `'${key}'`);
write('settings', `import type { Setting } from './setting';\nexport type Link = ${keys.join(' | ')};\n`, {
  SETTINGS: ['Readonly<Record<Link, Setting>>', links],
});
const ofValues = 'Readonly<Record<string, Readonly<Record<string, string>>>>';
write('words', '', {
  HINTS: ['Readonly<Record<string, string>>', hints],
  UNITS: ['Readonly<Record<string, string>>', units],
  ABOUTS: [ofValues, abouts],
});
write('labels', '', { LABELS: [ofValues, labels] });
const options = settings
  .filter(({ option }) => option)
  .map(({ pointer, option, default: usual }) => [pointer, option, usual]);
write('options', '', {
  OPTIONS: ['readonly (readonly [pointer: string, option: string, usual?: unknown])[]', options],
});
const gpus = JSON.parse(readFileSync(`${presets}gpus.json`, 'utf8'));
const onDesks = gpus.filter(({ place }) => place === 'desk').map(({ id }) => id);
writeFileSync(
  `${state}desk.generated.ts`,
  `${by('gpus.json')}/** GPUs that stand on desks; the others are made for servers. */\nexport const DESK: ReadonlySet<string> = new Set(${JSON.stringify(onDesks)});\n`,
);
