// A stacked bar of plain boxes: widths in percent, a gap between neighbours so that they part without colour too.
import { html, type TemplateResult } from 'lit';
import { exact, gib, percent } from '../format/bytes';
import { styles } from '../styles/inline';
import { fill } from '../styles/shared';
import type { Segment } from './stack';

/** Thinner than this, a box would be drawn wider than it is; the table has its figure. */
const THINNEST = 0.12;

export function bar(segments: readonly Segment[], whole: number): TemplateResult {
  return html`<div class="bar" aria-hidden="true">
    ${segments
      .filter(({ bytes }) => percent(bytes, whole) >= THINNEST)
      .map(
        ({ key, label, bytes }) =>
          html`<span
            class="segment"
            title="${label}: ${gib(bytes, 2)} (${exact(bytes)})"
            .style=${styles({ width: `${percent(bytes, whole).toFixed(3)}%`, background: fill(key) })}
          ></span>`,
      )}
  </div>`;
}
