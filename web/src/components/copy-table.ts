import { html, type TemplateResult } from 'lit';
import { cellsOf, tabbed } from '../format/table';
import './copy';

/** The button that goes with a drawn table. */
export function copyTable(find: () => HTMLTableElement | null | undefined): TemplateResult {
  return html`<oometer-copy
    label="Copy table"
    .text=${() => {
      const table = find();
      return table ? tabbed(cellsOf(table)) : '';
    }}
  ></oometer-copy>`;
}
