import { css, html, type TemplateResult } from 'lit';
import { live } from 'lit/directives/live.js';
import { ifDefined } from 'lit/directives/if-defined.js';

export interface Segmented {
  /** Of the group of radio buttons. */
  name: string;
  value: string;
  choices: readonly { value: string; label: string; about?: string }[];
  onChange: (value: string) => void;
}

/** A few choices side by side: radio buttons, as a keyboard knows them. */
export function segmented({ name, value, choices, onChange }: Segmented): TemplateResult {
  return html`<div class="segments">
    ${choices.map(
      (choice) => html`
        <label title=${ifDefined(choice.about)}>
          <input
            type="radio"
            name=${name}
            value=${choice.value}
            .checked=${live(value === choice.value)}
            @change=${() => {
              onChange(choice.value);
            }}
          /><span>${choice.label}</span>
        </label>
      `,
    )}
  </div>`;
}

export const segmentedStyles = css`
  .segments {
    display: flex;
    border: 1px solid var(--line-strong);
    border-radius: var(--radius);
    background: var(--surface);
  }
  .segments label {
    position: relative;
    flex: 1;
    font-weight: 400;
    font-size: 0.875rem;
    text-align: center;
    white-space: nowrap;
    cursor: pointer;
  }
  .segments label + label {
    border-left: 1px solid var(--line);
  }
  .segments span {
    display: block;
    padding: 0.3rem 0.5rem;
    border-radius: calc(var(--radius) - 2px);
  }
  .segments input {
    position: absolute;
    inset: 0;
    width: 100%;
    height: 100%;
    margin: 0;
    opacity: 0;
    cursor: pointer;
  }
  .segments input:checked + span {
    background: var(--accent);
    color: var(--accent-text);
    font-weight: 600;
  }
  .segments input:focus-visible + span {
    outline: 2px solid var(--accent);
    outline-offset: 3px;
  }
  @media (forced-colors: active) {
    .segments input:checked + span {
      outline: 2px solid Highlight;
    }
  }
`;
