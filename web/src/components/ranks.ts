import { html, nothing, type TemplateResult } from 'lit';
import { exact, gibNumber } from '../format/bytes';
import type { RankRow, Report } from '../wasm/report';

/** Each rank that was run, where they differ. */
export function byRank(ranks: readonly RankRow[], { peak }: Report): TemplateResult | typeof nothing {
  if (ranks.length === 0) return nothing;
  return html`<section aria-labelledby="ranks">
    <h2 id="ranks">By rank</h2>
    <p class="small soft">
      Ranks hold different parts of the model, so their peaks differ. The verdict is the worst one’s.
    </p>
    <table aria-labelledby="ranks">
      <thead>
        <tr>
          <th scope="col">Rank</th>
          <th scope="col" class="number">Allocated, GiB</th>
          <th scope="col" class="number">Reserved, GiB</th>
        </tr>
      </thead>
      <tbody>
        ${ranks.map(
          ({ rank, allocated, reserved, fits }) =>
            html`<tr>
              <th scope="row">
                ${rank}${fits ? '' : ', does not fit'}${allocated === peak.allocated && reserved === peak.reserved ? ', shown' : ''}
              </th>
              <td class="number" title=${exact(allocated)}>${gibNumber(allocated, 2)}</td>
              <td class="number" title=${exact(reserved)}>${gibNumber(reserved, 2)}</td>
            </tr>`,
        )}
      </tbody>
    </table>
  </section>`;
}
