import { html, type TemplateResult } from 'lit';

/** A dotted name, or words with some, that may break after dots and underscores, and copies as it is; numbers stay whole. */
export function breakable(name: string): TemplateResult[] {
  return name.split(/(?<=[._])(?=\D)|(?<=\D[._])/).map((part, i) => (i === 0 ? html`${part}` : html`<wbr />${part}`));
}
