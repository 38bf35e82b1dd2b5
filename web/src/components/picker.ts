import { css, html, LitElement, nothing, type PropertyValues, type TemplateResult } from 'lit';
import { live } from 'lit/directives/live.js';
import { fields, shared } from '../styles/shared';

export interface Item {
  value: string;
  label: string;
  group: string;
  /** What else one may search for. */
  keywords: string;
  /** What choosing it would give, in a few words. */
  note: string;
}

/** A list that one can search: the combobox of the ARIA practices, with the label in the same root. */
export class OometerPicker extends LitElement {
  static override properties = {
    label: {},
    value: {},
    shown: {},
    hint: {},
    error: {},
    items: { attribute: false },
    nothing: { attribute: false },
    open: { state: true },
    query: { state: true },
    active: { state: true },
  };
  declare label: string;
  declare value: string;
  /** What stands in the closed field; an own model is in no list. */
  declare shown: string;
  declare hint: string;
  declare error: string;
  declare items: readonly Item[];
  /** What is said where no entry is as typed. */
  declare nothing: (query: string) => TemplateResult | string;
  declare private open: boolean;
  /** Null until something is typed: the whole list is offered. */
  declare private query: string | null;
  declare private active: string;

  constructor() {
    super();
    this.label = '';
    this.value = '';
    this.shown = '';
    this.hint = '';
    this.error = '';
    this.items = [];
    this.nothing = () => 'No match.';
    this.open = false;
    this.query = null;
    this.active = '';
  }

  static override styles = [
    shared,
    fields,
    css`
      :host {
        display: grid;
        gap: 0.2rem;
        align-content: start;
        min-width: 0;
      }
      label {
        font-size: 0.8125rem;
        font-weight: 600;
      }
      .box {
        position: relative;
      }
      input[role='combobox'] {
        padding-right: 1.6rem;
        text-overflow: ellipsis;
      }
      .arrow {
        position: absolute;
        top: 0.75rem;
        right: 0.7rem;
        width: 0.45rem;
        height: 0.45rem;
        border: solid var(--text-soft);
        border-width: 0 1.5px 1.5px 0;
        transform: rotate(45deg);
        pointer-events: none;
      }
      .list {
        position: absolute;
        z-index: 5;
        top: calc(100% + 3px);
        left: 0;
        width: max(100%, var(--list-width, 100%));
        max-height: 22rem;
        margin: 0;
        padding: 0.25rem;
        overflow-y: auto;
        border: 1px solid var(--line-strong);
        border-radius: var(--radius);
        background: var(--surface);
        box-shadow: 0 6px 24px rgb(0 0 0 / 18%);
      }
      .group {
        padding: 0.4rem 0.5rem 0.15rem;
        color: var(--text-soft);
        font-size: 0.75rem;
      }
      .option {
        display: flex;
        justify-content: space-between;
        align-items: baseline;
        gap: 0.75rem;
        padding: 0.25rem 0.5rem;
        border-radius: 4px;
        font-size: 0.8125rem;
        cursor: pointer;
      }
      .option[aria-selected='true'] {
        font-weight: 600;
      }
      .option.active {
        background: var(--surface-sunken);
        box-shadow: inset 2px 0 0 var(--accent);
      }
      .note {
        flex: none;
        color: var(--text-soft);
        font-size: 0.75rem;
        font-weight: 400;
      }
      .none {
        padding: 0.4rem 0.5rem;
        color: var(--text-soft);
        font-size: 0.875rem;
      }
      .hint,
      .error {
        margin: 0;
        font-size: 0.75rem;
        line-height: 1.4;
        overflow-wrap: anywhere;
      }
      .hint {
        color: var(--text-soft);
      }
      .error {
        color: var(--over);
        font-size: 0.8125rem;
      }
    `,
  ];

  override focus(): void {
    this.renderRoot.querySelector('input')?.focus();
  }

  override render(): TemplateResult {
    const found = this.open ? this.found() : [];
    const described = [this.error && 'error', this.hint && 'hint'].filter(Boolean).join(' ');
    return html`
      <label for="input">${this.label}</label>
      <div class="box">
        <input
          id="input"
          role="combobox"
          aria-expanded=${this.open ? 'true' : 'false'}
          aria-controls="list"
          aria-autocomplete="list"
          aria-activedescendant=${this.open && found.length > 0 ? `option-${this.active}` : nothing}
          aria-invalid=${this.error ? 'true' : 'false'}
          aria-describedby=${described || nothing}
          autocomplete="off"
          spellcheck="false"
          .value=${live(this.query ?? this.shown)}
          @click=${this.show}
          @input=${this.type}
          @keydown=${this.key}
          @blur=${this.close}
        />
        <span class="arrow"></span>
        <div id="list" class="list" role="listbox" aria-label=${this.label} ?hidden=${!this.open}>
          ${this.groups(found)}
          ${this.open && found.length === 0 ? html`<div class="none" @mousedown=${keep}>${this.nothing(this.query ?? '')}</div>` : nothing}
        </div>
      </div>
      ${this.error ? html`<p class="error" id="error">${this.label}: ${this.error}</p>` : nothing}
      ${this.hint ? html`<p class="hint" id="hint">${this.hint}</p>` : nothing}
    `;
  }

  override updated(changed: PropertyValues): void {
    if (this.open && (changed.has('active') || changed.has('open'))) {
      this.renderRoot.querySelector('.active')?.scrollIntoView({ block: 'nearest' });
    }
  }

  private groups(found: readonly Item[]): TemplateResult[] {
    const titles = [...new Set(found.map(({ group }) => group))];
    return titles.map(
      (title) => html`
        <div role="group" aria-label=${title}>
          <div class="group" role="presentation">${title}</div>
          ${found.filter(({ group }) => group === title).map((item) => this.option(item))}
        </div>
      `,
    );
  }

  private option({ value, label, note }: Item): TemplateResult {
    return html`<div
      id="option-${value}"
      class="option ${value === this.active ? 'active' : ''}"
      role="option"
      aria-selected=${value === this.value ? 'true' : 'false'}
      @mousedown=${keep}
      @click=${() => {
        this.pick(value);
      }}
    >
      <span>${label}</span><span class="note">${note}</span>
    </div>`;
  }

  private found(): Item[] {
    const words = (this.query ?? '').toLowerCase().split(/\s+/).filter(Boolean);
    return this.items.filter(({ label, group, keywords }) => {
      const text = `${label} ${group} ${keywords}`.toLowerCase();
      return words.every((word) => text.includes(word));
    });
  }

  private readonly show = (): void => {
    if (this.open) return;
    this.open = true;
    this.query = null;
    this.active = this.value;
    this.renderRoot.querySelector('input')?.select();
    this.dispatchEvent(new CustomEvent<boolean>('open', { detail: true }));
  };

  private readonly close = (): void => {
    if (this.open) this.dispatchEvent(new CustomEvent<boolean>('open', { detail: false }));
    this.open = false;
    this.query = null;
  };

  private readonly type = (event: Event): void => {
    this.show();
    this.query = (event.target as HTMLInputElement).value;
    this.active = this.found()[0]?.value ?? '';
  };

  private readonly key = (event: KeyboardEvent): void => {
    const move = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 }[event.key];
    if (move !== undefined) {
      event.preventDefault();
      if (!this.open) {
        this.show();
        return;
      }
      const found = this.found();
      const at = found.findIndex(({ value }) => value === this.active) + move;
      this.active = found[Math.max(0, Math.min(found.length - 1, at))]?.value ?? '';
    } else if (event.key === 'Enter' && this.open) {
      event.preventDefault();
      if (this.found().some(({ value }) => value === this.active)) this.pick(this.active);
    } else if (event.key === 'Escape' && this.open) {
      event.preventDefault();
      this.close();
    }
  };

  private pick(value: string): void {
    this.close();
    this.dispatchEvent(new CustomEvent<string>('pick', { detail: value }));
  }
}

/** The field keeps the focus, or its list would close before the click. */
function keep(event: Event): void {
  event.preventDefault();
}

customElements.define('oometer-picker', OometerPicker);
