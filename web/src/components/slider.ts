import { html, type TemplateResult } from 'lit';
import { live } from 'lit/directives/live.js';

/** Stops between a number and its double. */
const FINE = 4;
const MOST = 2 ** 17;

/**
 * A slider over the powers of two and a few stops between them. It is for the mouse and the finger: the number field
 * beside it does all of it for a keyboard, and a screen reader should not hear everything twice.
 */
export function slider(value: string, title: string, set: (value: string) => void): TemplateResult {
  const number = Math.min(MOST, Math.max(1, Number(value) || 1));
  return html`<input
    class="slider"
    type="range"
    aria-hidden="true"
    tabindex="-1"
    title=${title}
    min="0"
    max=${FINE * Math.log2(MOST)}
    step="1"
    .value=${live(String(Math.round(FINE * Math.log2(number))))}
    @input=${(event: Event) => {
      set(String(stop(Number((event.target as HTMLInputElement).value))));
    }}
  />`;
}

/** 0 → 1, 4 → 2, 5 → 2, …, 45 → 2432: whole, and round where numbers are large. */
export function stop(position: number): number {
  const exact = 2 ** (position / FINE);
  const step = Math.max(1, 2 ** (Math.floor(Math.log2(exact)) - 3));
  return Math.round(exact / step) * step;
}
