import { html, type TemplateResult } from 'lit';

/** A dotted name that may break after its dots and underscores, and copies as it is. */
export function breakable(name: string): TemplateResult[] {
  return name.split(/(?<=[._])/).map((part, i) => (i === 0 ? html`${part}` : html`<wbr />${part}`));
}
