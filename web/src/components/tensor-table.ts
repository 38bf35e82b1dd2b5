import { html, type TemplateResult } from 'lit';
import { exact, size } from '../format/bytes';
import { shape } from '../format/words';
import type { LargeTensor } from '../wasm/report';
import { breakable } from './breakable';

/** Tensors, one a row; `named` is what a module is called there. */
export function tensorTable(
  tensors: readonly LargeTensor[],
  label: string,
  named: (module: string) => string = (module) => module,
): TemplateResult {
  return html`<table aria-label=${label}>
    <thead>
      <tr>
        <th scope="col" class="number">Size</th>
        <th scope="col">Shape</th>
        <th scope="col">Type</th>
        <th scope="col">Module</th>
        <th scope="col">What it is</th>
      </tr>
    </thead>
    <tbody>
      ${tensors.map(
        (tensor) => html`
          <tr>
            <td class="number" title=${exact(tensor.bytes)}>${size(tensor.bytes)}</td>
            <td class="shape">${shape(tensor.shape)}</td>
            <td>${tensor.dtype}</td>
            <td class="module"><code>${tensor.module === '' ? '–' : breakable(named(tensor.module))}</code></td>
            <td>${tensor.role}${tensor.flat ? ', in a flat buffer' : ''}</td>
          </tr>
        `,
      )}
    </tbody>
  </table>`;
}
