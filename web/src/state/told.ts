// Settings in words, as the form calls them.
import { FIELDS, labelOf, type Setup } from './fields';
import { choiceLabel } from './labels';

/** A setting and its value: "Micro-batch 4", "Parallelism DDP"; of a model or a file only that it is another. */
function one(field: (typeof FIELDS)[number], setup: Setup): string {
  const label = labelOf(field, setup);
  if (field.kind === 'catalogue' || field.kind === 'config') return `another ${label.toLowerCase()}`;
  return `${label} ${choiceLabel(field, setup[field.key]) || 'none'}`;
}

/** What `to` has otherwise than `from`; "" where nothing is. */
export function told(from: Setup, to: Setup): string {
  return FIELDS.filter(({ key }) => from[key] !== to[key])
    .map((field) => one(field, to))
    .join(', ');
}
