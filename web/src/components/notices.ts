import { html, nothing, type TemplateResult } from 'lit';
import { field, type FieldKey } from '../state/fields';
import type { Fix } from '../state/fixes';
import type { Trouble } from '../wasm/ask';

/** More would push the answer out of sight. */
const MOST = 8;

export interface Notices {
  /** Why the core could not be loaded, or "". */
  broken: string;
  /** What could not be read of the link. */
  problems: readonly string[];
  /** Why the present settings have no answer. */
  trouble: Trouble | null;
  /** Whether an earlier answer is still shown. */
  answered: boolean;
  /** What would give them one. */
  fixes: readonly Fix[];
  onFix: (fix: Fix) => void;
  onReveal: (key: FieldKey) => void;
  onStartAgain: () => void;
}

/** What went wrong, in words, each with a way on. */
export function notices(all: Notices): TemplateResult {
  return html`${broken(all)} ${badLink(all)} ${noAnswer(all)}`;
}

function broken({ broken }: Notices): TemplateResult | typeof nothing {
  if (!broken) return nothing;
  return html`<div class="notice error">
    <p>
      The calculator could not be loaded (${broken}). It needs a browser with WebAssembly, and the file oometer.wasm
      beside this page.
      <button
        @click=${() => {
          location.reload();
        }}
      >
        Try again
      </button>
    </p>
  </div>`;
}

function badLink({ problems, onStartAgain }: Notices): TemplateResult | typeof nothing {
  if (problems.length === 0) return nothing;
  return html`<div class="notice" role="alert">
    <p>This link could not be read completely; the rest of it is shown.</p>
    <ul>
      ${problems.slice(0, MOST).map((problem) => html`<li>${problem}</li>`)}
    </ul>
    <button @click=${onStartAgain}>Start from the example</button>
  </div>`;
}

function noAnswer(all: Notices): TemplateResult | typeof nothing {
  const { trouble, fixes, answered, onReveal, onStartAgain, onFix } = all;
  if (!trouble) return nothing;
  const { key, message } = trouble;
  if (trouble.elsewhere) return html`<div class="notice" role="status"><p>${message}</p></div>`;
  return html`<div class="notice error" id="trouble">
    <p>
      No answer for these settings. ${key ? html`<strong>${field(key).label}:</strong>` : nothing} ${message}
      ${answered ? html`<span class="soft">Below is the last answer; it cannot be used or shared.</span>` : nothing}
    </p>
    <p class="buttons">
      ${fixes.map(
        (fix, i) =>
          html`<button
            class=${i === 0 ? 'fix' : ''}
            @click=${() => {
              onFix(fix);
            }}
          >
            ${fix.words}
          </button>`,
      )}
      ${
        key
          ? html`<button
              @click=${() => {
                onReveal(fixes[0]?.key ?? key);
              }}
            >
              Go to the field
            </button>`
          : html`<button @click=${onStartAgain}>Start from the example</button>`
      }
    </p>
  </div>`;
}
