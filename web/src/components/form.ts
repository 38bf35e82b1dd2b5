import { css, html, LitElement, nothing, type TemplateResult } from 'lit';
import { live } from 'lit/directives/live.js';
import { field, START, type Choice, type Field, type FieldKey, type Setup } from '../state/fields';
import { shared } from '../styles/shared';
import type { Catalogue, Gpu, Preset } from '../wasm/catalogue';

export type Errors = Partial<Record<FieldKey, string>>;

export interface Setting {
  key: FieldKey;
  value: string;
}

const TRAINING: FieldKey[] = ['checkpointing', 'parallel', 'precision', 'optimizer', 'impl', 'attention'];
const MORE: FieldKey[] = ['accumulate', 'clip', 'framework', 'torch', 'segments'];

/** Newest first: most people ask about what they can rent now. */
const ARCHITECTURES: [architecture: string, title: string][] = [
  ['blackwell', 'Blackwell'],
  ['hopper', 'Hopper'],
  ['ada', 'Ada'],
  ['ampere', 'Ampere'],
  ['turing', 'Turing'],
  ['volta', 'Volta'],
  ['pascal', 'Pascal'],
];

/** The settings. Labels and inputs share one root, which ids and aria attributes need. */
export class OometerForm extends LitElement {
  static override properties = {
    setup: { attribute: false },
    catalogue: { attribute: false },
    errors: { attribute: false },
  };
  declare setup: Setup;
  declare catalogue: Catalogue | null;
  declare errors: Errors;
  /** On a phone the first view is the verdict and the few settings that matter most. */
  private readonly roomy = matchMedia('(min-width: 60rem)').matches;

  constructor() {
    super();
    this.setup = { ...START };
    this.catalogue = null;
    this.errors = {};
  }

  static override styles = [
    shared,
    css`
      form {
        display: grid;
        gap: 0.9rem;
      }
      .field {
        display: grid;
        gap: 0.2rem;
        align-content: start;
        min-width: 0;
      }
      label,
      legend {
        padding: 0;
        font-size: 0.8125rem;
        font-weight: 600;
      }
      fieldset {
        min-width: 0;
        margin: 0;
        padding: 0;
        border: 0;
      }
      input[type='number'],
      select {
        width: 100%;
        min-width: 0;
        height: 2.125rem;
        padding: 0 0.5rem;
        border: 1px solid var(--line-strong);
        border-radius: var(--radius);
        background: var(--surface);
        color: var(--text);
        font: inherit;
        font-size: 0.9375rem;
        font-variant-numeric: tabular-nums;
      }
      [aria-invalid='true'] {
        border: 2px solid var(--over);
      }
      .hint {
        margin: 0;
        color: var(--text-soft);
        font-size: 0.75rem;
        line-height: 1.4;
      }
      .error {
        margin: 0;
        color: var(--over);
        font-size: 0.8125rem;
        line-height: 1.4;
        overflow-wrap: anywhere;
      }
      .pair,
      .triple {
        display: grid;
        gap: 0.6rem;
      }
      .pair {
        grid-template-columns: minmax(0, 1fr) minmax(0, 1fr);
      }
      .pair.device {
        grid-template-columns: minmax(0, 1fr) 4.5rem;
      }
      .triple {
        grid-template-columns: repeat(3, minmax(0, 1fr));
        align-items: end;
      }
      .triple .field {
        align-content: end;
      }
      .wide {
        grid-column: 1 / -1;
      }
      .segments {
        display: flex;
        margin-top: 0.2rem;
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
        cursor: pointer;
      }
      .segments label + label {
        border-left: 1px solid var(--line);
      }
      .segments span {
        display: block;
        padding: 0.3rem 0.25rem;
        border-radius: calc(var(--radius) - 2px);
      }
      .segments input {
        position: absolute;
        inset: 0;
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
      details {
        border-top: 1px solid var(--line);
        padding-top: 0.6rem;
      }
      summary {
        min-height: 1.75rem;
        font-size: 0.875rem;
        font-weight: 600;
        cursor: pointer;
      }
      details[open] > summary {
        margin-bottom: 0.6rem;
      }
      .gist {
        color: var(--text-soft);
        font-size: 0.8125rem;
        font-weight: 400;
      }
      details[open] .gist {
        display: none;
      }
      @media (forced-colors: active) {
        .segments input:checked + span {
          outline: 2px solid Highlight;
        }
      }
    `,
  ];

  override render(): TemplateResult {
    const preset = this.preset();
    return html`
      <form
        autocomplete="off"
        @submit=${(event: Event) => {
          event.preventDefault();
        }}
      >
        ${this.select('model', this.models(), preset?.description)} ${this.segments('stage')}
        <div class="pair device">
          ${this.select('gpu', this.gpus(), this.gpuHint())} ${this.number('gpus')} ${this.error(['gpu', 'gpus'])}
        </div>
        <div class="triple">
          ${this.number('mbs')} ${this.applies('seq') ? this.number('seq') : nothing}
          ${this.applies('images') ? this.number('images') : nothing} ${this.error(['mbs', 'seq', 'images'])}
        </div>
        ${this.group('Training set-up', TRAINING, this.roomy)} ${this.group('More', MORE, false)}
      </form>
    `;
  }

  /** Brings a setting into view, for whoever follows an error to it. */
  reveal(key: FieldKey): void {
    const control = this.renderRoot.querySelector<HTMLElement>(`[data-key="${key}"]`);
    const details = control?.closest('details');
    if (details) details.open = true;
    control?.focus();
  }

  private preset(): Preset | undefined {
    return this.catalogue?.models.find(({ id }) => id === this.setup.model);
  }

  private applies(key: FieldKey): boolean {
    const preset = this.preset();
    return preset === undefined || field(key).applies?.(preset) !== false;
  }

  private group(title: string, keys: FieldKey[], open: boolean): TemplateResult {
    const hasError = keys.some((key) => this.errors[key] !== undefined);
    const gist = keys.map((key) => this.gist(key)).filter((text) => text !== '');
    return html`
      <details ?open=${open || hasError}>
        <summary>${title} <span class="gist">${gist.join(', ')}</span></summary>
        <div class="pair">
          ${keys.map((key) => {
            const wide = key !== 'optimizer' && key !== 'impl' && key !== 'accumulate' && key !== 'clip';
            const control =
              field(key).kind === 'count' ? this.number(key) : this.select(key, options(field(key).choices ?? []));
            return html`<div class=${wide ? 'wide' : ''}>${control} ${this.error([key])}</div>`;
          })}
        </div>
      </details>
    `;
  }

  /** What stands in a closed group, in a word or two. */
  private gist(key: FieldKey): string {
    const value = this.setup[key];
    const label = field(key).choices?.find((choice) => choice.value === value)?.label ?? value;
    if (key === 'checkpointing') return value === 'none' ? 'no checkpointing' : 'checkpointing';
    if (key === 'parallel') return value === 'none' ? '' : label.replace('DeepSpeed ', '');
    if (key === 'torch') return `PyTorch ${value}`;
    if (key === 'impl' || key === 'framework') return value;
    if (key === 'accumulate' || key === 'clip' || key === 'segments' || key === 'attention') {
      return value === START[key] ? '' : `${field(key).label.toLowerCase()} ${label}`;
    }
    return label;
  }

  private select(key: FieldKey, content: TemplateResult | TemplateResult[], hint = field(key).hint): TemplateResult {
    return html`
      <div class="field">
        <label for=${key}>${field(key).label}</label>
        <select
          id=${key}
          data-key=${key}
          .value=${live(this.setup[key])}
          aria-invalid=${this.invalid(key)}
          aria-describedby=${this.described(key, hint)}
          @change=${(event: Event) => {
            this.set(key, (event.target as HTMLSelectElement).value);
          }}
        >
          ${content}
        </select>
        ${hint ? html`<p class="hint" id="${key}-hint">${hint}</p>` : nothing}
      </div>
    `;
  }

  private number(key: FieldKey): TemplateResult {
    const { label, hint } = field(key);
    return html`
      <div class="field" title=${hint ?? nothing}>
        <label for=${key}>${label}</label>
        <input
          id=${key}
          data-key=${key}
          type="number"
          inputmode="numeric"
          min="1"
          step="1"
          .value=${live(this.setup[key])}
          aria-invalid=${this.invalid(key)}
          aria-describedby=${this.described(key)}
          @input=${(event: Event) => {
            this.set(key, (event.target as HTMLInputElement).value);
          }}
        />
        ${hint ? html`<p class="hidden" id="${key}-hint">${hint}</p>` : nothing}
      </div>
    `;
  }

  private segments(key: FieldKey): TemplateResult {
    return html`
      <fieldset aria-describedby=${this.described(key)}>
        <legend>${field(key).label}</legend>
        <div class="segments" aria-invalid=${nothing}>
          ${(field(key).choices ?? []).map(
            ({ value, label }) => html`
              <label>
                <input
                  type="radio"
                  name=${key}
                  value=${value}
                  data-key=${this.setup[key] === value ? key : nothing}
                  .checked=${live(this.setup[key] === value)}
                  @change=${() => {
                    this.set(key, value);
                  }}
                /><span>${label}</span>
              </label>
            `,
          )}
        </div>
        ${this.error([key])}
      </fieldset>
    `;
  }

  private models(): TemplateResult {
    const models = this.catalogue?.models ?? [];
    if (models.length === 0) return html`<option value=${this.setup.model}>…</option>`;
    return html`${[...models]
      .sort((a, b) => Number(b.images) - Number(a.images))
      .map(({ id, title }) => this.option({ value: id, label: title }, 'model'))}`;
  }

  private gpus(): TemplateResult {
    const gpus = this.catalogue?.gpus ?? [];
    if (gpus.length === 0) return html`<option value=${this.setup.gpu}>…</option>`;
    const groups = ARCHITECTURES.map(([architecture, title]): [string, Gpu[]] => [
      title,
      gpus.filter((gpu) => gpu.architecture === architecture),
    ]);
    const listed = groups.flatMap(([, members]) => members);
    groups.push(['AMD and others', gpus.filter((gpu) => !listed.includes(gpu))]);
    return html`${groups
      .filter(([, members]) => members.length > 0)
      .map(
        ([title, members]) =>
          html`<optgroup label=${title}>
            ${members.map(({ id, name }) => this.option({ value: id, label: name }, 'gpu'))}
          </optgroup>`,
      )}`;
  }

  private gpuHint(): string | undefined {
    const gpu = this.catalogue?.gpus.find(({ id }) => id === this.setup.gpu);
    if (!gpu) return undefined;
    const known = `${(gpu.usable_bytes / 1024 ** 3).toFixed(2)} GiB usable, ${gpu.basis}`;
    return gpu.calibrated ? known : `${known}; its libraries’ share is a guess`;
  }

  // Options render after their select: `selected` says which one from the start, `.value` from then on.
  private option({ value, label }: Choice, key: FieldKey): TemplateResult {
    return html`<option value=${value} ?selected=${this.setup[key] === value}>${label}</option>`;
  }

  private error(keys: FieldKey[]): TemplateResult[] {
    return keys
      .filter((key) => this.errors[key] !== undefined)
      .map((key) => html`<p class="error wide" id="${key}-error">${field(key).label}: ${this.errors[key]}</p>`);
  }

  private invalid(key: FieldKey): 'true' | 'false' {
    return this.errors[key] === undefined ? 'false' : 'true';
  }

  private described(key: FieldKey, hint = field(key).hint): string | typeof nothing {
    const ids = [this.errors[key] === undefined ? '' : `${key}-error`, hint ? `${key}-hint` : ''].filter(Boolean);
    return ids.length > 0 ? ids.join(' ') : nothing;
  }

  private set(key: FieldKey, value: string): void {
    this.dispatchEvent(new CustomEvent<Setting>('setting', { detail: { key, value } }));
  }
}

function options(choices: readonly Choice[]): TemplateResult {
  return html`${choices.map(({ value, label }) => html`<option value=${value}>${label}</option>`)}`;
}

export type { Field };

customElements.define('oometer-form', OometerForm);
