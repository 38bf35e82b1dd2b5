import { html, type TemplateResult } from 'lit';
import { live } from 'lit/directives/live.js';
import { LAST_STOP, positionOf, stop } from '../state/stops';

/**
 * A slider over counts. It is for the mouse and the finger: the number field beside it does all of it for a keyboard,
 * and a screen reader should not hear everything twice.
 */
export function slider(value: string, title: string, set: (value: string) => void): TemplateResult {
  return html`<input
    class="slider"
    type="range"
    name="slider"
    aria-hidden="true"
    tabindex="-1"
    title=${title}
    min="0"
    max=${LAST_STOP}
    step="1"
    .value=${live(String(positionOf(value)))}
    @input=${(event: Event) => {
      set(String(stop(Number((event.target as HTMLInputElement).value))));
    }}
  />`;
}
