// A result as tables for a document or a spreadsheet.
import { layers, moduleTotal, totalSegments } from '../charts/stack';
import { applies, FIELDS, RARE, START, type Field } from '../state/fields';
import { choiceLabel } from '../state/labels';
import type { Result } from '../wasm/ask';
import { gibNumber } from './bytes';
import { FACTORS } from './factors';
import { markdown, type Cells } from './table';
import { verdict } from './words';

/** The settings as label and value, as the form shows them. */
export function settings({
  setup,
  model,
  gpu,
}: Pick<Result, 'setup' | 'model' | 'gpu'>): [label: string, value: string][] {
  const says = (field: Field): boolean => !RARE.includes(field) || setup[field.key] !== START[field.key];
  return FIELDS.filter((field) => field.kind !== 'config' && applies(field, model, setup) && says(field)).map(
    ({ key, label }) => {
      if (key === 'model') return [label, model.title];
      if (key === 'gpu') return [label, gpu.name];
      return [label, choiceLabel({ key }, setup[key])];
    },
  );
}

/** For a design document: the sentence, the settings, who holds the memory, and where to look again. */
export function asMarkdown(result: Result, link: string): string {
  const { report, gpu, count } = result;
  const words = verdict(report, gpu.name, count);
  const set: Cells = [['Setting', 'Value'], ...settings(result)];
  const held: Cells = [
    ['Held at the peak for', 'GiB'],
    ...totalSegments(report).map(({ label, bytes }) => [label, gibNumber(bytes, 2)]),
    ['Total', gibNumber(report.peak.total, 2)],
  ];
  const parts = [
    `**${words.headline}**: ${words.detail}\n`,
    markdown(set),
    markdown(held),
    `[oometer ${report.version}](${link})\n`,
  ];
  return parts.join('\n').replaceAll('\u00a0', ' ');
}

/** Every layer by factor, in bytes, and what no layer holds: the last column sums to the peak. */
export function asCells({ report }: Pick<Result, 'report'>): Cells {
  const { allocated, reserved, outside_allocator } = report.peak;
  const beyond = (name: string, bytes: number): string[] => [name, '', ...FACTORS.map(() => ''), String(bytes)];
  return [
    ['module', 'type', ...FACTORS.map(({ key }) => key), 'total'],
    ...layers(report.modules).map((module) => [
      module.path,
      module.type,
      ...FACTORS.map(({ key }) => String(module[key])),
      String(moduleTotal(module)),
    ]),
    beyond('(cached, unused)', reserved - allocated),
    beyond('(outside PyTorch)', outside_allocator),
  ];
}
