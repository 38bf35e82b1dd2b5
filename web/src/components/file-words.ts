// Two answers about a trainer's files: what would help in their own words, and two trainings side by side.
import { html, nothing, type TemplateResult } from 'lit';
import { size } from '../format/bytes';
import { nameOf, shortly } from '../state/imported';
import type { FileChange, FileComparison } from '../wasm/imported';
import { breakable } from './breakable';
import './copy';

const VERDICTS = { fits: 'fits', tight: 'tight', 'does-not-fit': 'does not fit' } as const;

/** What helps: null while it is not known. */
export function inWords(changes: readonly FileChange[] | null): TemplateResult {
  if (changes === null) return html`<p role="status">Trying …</p>`;
  if (changes.length === 0) return html`<p>The trainer has no key that would save memory here.</p>`;
  return html`<div class="scroll" tabindex="0" role="group" aria-labelledby="in-words">
    <table aria-labelledby="in-words">
      <thead>
        <tr>
          <th scope="col">Set</th>
          <th scope="col">Saves</th>
          <th scope="col">Peak</th>
          <th scope="col">Costs</th>
          <th scope="col">Patch</th>
        </tr>
      </thead>
      <tbody>
        ${changes.map(
          ({ words, saves, peak, verdict, costs, patches }) =>
            html`<tr>
              <th scope="row">${words.map((word) => html`<code>${breakable(word)}</code><br />`)}</th>
              <td>${size(saves)}</td>
              <td>${size(peak)}, ${VERDICTS[verdict]}</td>
              <td>${costs}</td>
              <td>
                <oometer-copy
                  label="Copy"
                  .text=${() => (patches.length > 0 ? patches.join('') : words.join('\n'))}
                ></oometer-copy>
              </td>
            </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

const signed = (bytes: number | null): string =>
  bytes === null ? 'no job' : `${bytes < 0 ? '\u2212' : '+'}${size(Math.abs(bytes))}`;

/** In what two trainings differ, and what each difference costs. */
export function sideBySide({ first, second, differences, together }: FileComparison): TemplateResult {
  const matter = differences.filter(({ alone, on_the_top: top }) => alone !== 0 || top !== 0);
  const rest = differences.filter((one) => !matter.includes(one));
  return html`<p class="verdict" role="status">
      <strong class=${first.verdict}>${first.trainer}: ${size(first.peak)}, ${VERDICTS[first.verdict]}</strong>;
      <strong class=${second.verdict}>${second.trainer}: ${size(second.peak)}, ${VERDICTS[second.verdict]}</strong>
    </p>
    <div class="scroll" tabindex="0" role="group" aria-labelledby="differences">
      <h3 id="differences">What differs</h3>
      <table aria-labelledby="differences">
        <thead>
          <tr>
            <th scope="col">Setting</th>
            <th scope="col">First</th>
            <th scope="col">Second</th>
            <th scope="col">By itself</th>
            <th scope="col">With all others</th>
          </tr>
        </thead>
        <tbody>
          ${matter.map(
            ({ pointer, first: was, second: is, alone, on_the_top: top }) =>
              html`<tr>
                <th scope="row"><code>${breakable(nameOf(pointer))}</code></th>
                <td>${shortly(was)}</td>
                <td>${shortly(is)}</td>
                <td>${signed(alone)}</td>
                <td>${signed(top)}</td>
              </tr>`,
          )}
          <tr>
            <th scope="row" colspan="3">Only together</th>
            <td>${signed(together)}</td>
            <td></td>
          </tr>
          <tr>
            <th scope="row" colspan="3">In all</th>
            <td>${signed(second.peak - first.peak)}</td>
            <td></td>
          </tr>
        </tbody>
      </table>
      ${
        rest.length === 0
          ? nothing
          : html`<p class="small">
              Different, without effect on memory:
              ${rest.map(({ pointer }, i) => html`${i === 0 ? nothing : ', '}<code>${nameOf(pointer)}</code>`)}
            </p>`
      }
    </div>`;
}
