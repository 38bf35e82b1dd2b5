import { html, type TemplateResult } from 'lit';
import { explain, hasSite } from '../format/links';

/** A word or number that leads to its explanation. It opens beside the page, whose settings stay as they are. */
export function term(topic: string, content: unknown, title?: string): TemplateResult {
  if (!hasSite()) return html`<span title=${title ?? ''}>${content}</span>`;
  return html`<a
    class="term"
    href=${explain(topic)}
    target="_blank"
    rel="noopener"
    title=${title ?? 'How this is calculated'}
    >${content}</a
  >`;
}
