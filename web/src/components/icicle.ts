import { css, html, LitElement, nothing, type PropertyValues, type TemplateResult } from 'lit';
import { repeat } from 'lit/directives/repeat.js';
import { factorSegments } from '../charts/stack';
import { icicle, LEVELS, lineage, nameIn, type Cell } from '../charts/icicle';
import { exact, percent, size } from '../format/bytes';
import { shape } from '../format/words';
import { styles } from '../styles/inline';
import { fill, shared } from '../styles/shared';
import type { Report } from '../wasm/report';

/** Below these shares of the width a name, or a name and a size, would be cut to nothing. */
const NAMED = 6;
const SIZED = 11;

const OVERALL = 'Whole model';
const REST = 'the rest';

/** The module tree, each module as wide as what it holds and coloured by what for. One walks in and out again. */
export class OometerIcicle extends LitElement {
  static override properties = {
    report: { attribute: false },
    path: { state: true },
    active: { state: true },
  };
  declare report: Report | null;
  /** The module that has the whole width. */
  declare private path: string;
  /** The cell that arrow keys move from: one stop for the Tab key, as in any tree. */
  declare private active: string;

  constructor() {
    super();
    this.report = null;
    this.path = '';
    this.active = '';
  }

  static override styles = [
    shared,
    css`
      nav {
        display: flex;
        flex-wrap: wrap;
        align-items: center;
        gap: 0.15rem 0.3rem;
        min-height: 1.75rem;
        margin-bottom: 0.35rem;
        font-size: 0.8125rem;
      }
      nav button {
        min-height: 1.5rem;
        padding: 0 0.25rem;
        border: 0;
        background: none;
        color: var(--accent);
        text-decoration: underline;
        text-underline-offset: 2px;
      }
      .tree {
        position: relative;
        height: ${LEVELS * 3}rem; /* the same at every depth: what stands below does not move */
      }
      .cell {
        position: absolute;
        height: 3rem;
        padding: 0 1px 2px 0;
        cursor: pointer;
        outline-offset: -2px;
      }
      .cell.rest {
        cursor: default;
      }
      .inside {
        display: flex;
        flex-direction: column;
        height: 100%;
        overflow: hidden;
        border-radius: 3px;
        background: var(--surface-sunken);
      }
      .cell:not(.rest):hover .inside {
        box-shadow: inset 0 0 0 2px var(--accent);
      }
      .name {
        display: flex;
        gap: 0.4rem;
        height: 1.35rem;
        padding: 0 0.35rem;
        font-size: 0.75rem;
        line-height: 1.35rem;
        white-space: nowrap;
        overflow: hidden;
      }
      .name span:first-child {
        overflow: hidden;
        text-overflow: ellipsis;
      }
      .stack {
        display: flex;
        flex: 1;
        forced-color-adjust: none;
      }
      .stack span {
        flex: none;
      }
      ul {
        margin: 0.5rem 0 0;
        padding-left: 1.1rem;
        font-size: 0.8125rem;
      }
    `,
  ];

  override render(): TemplateResult | typeof nothing {
    const root = this.report?.modules[0];
    if (!root) return nothing;
    const line = lineage(root, this.path);
    const at = line.at(-1) ?? root;
    const cells = icicle(at);
    const active = cells.some((cell) => !cell.rest && cell.module.path === this.active) ? this.active : at.path;
    return html`
      <nav aria-label="Way into the model">
        ${
          line.length === 1
            ? html`<span class="soft">As wide as what it holds. Press a module to walk into it.</span>`
            : line.map((module, i) => this.way(module.path, line[i - 1]?.path ?? '', i === line.length - 1))
        }
      </nav>
      <div
        class="tree"
        role="tree"
        aria-label="Modules by what they hold at the peak. Enter walks into one, Escape out of it."
        @keydown=${(event: KeyboardEvent) => {
          this.key(event, cells, active);
        }}
      >
        ${repeat(
          cells,
          (cell) => cell.module.path + (cell.rest ? ' rest' : ''),
          (cell) => this.cell(cell, active),
        )}
      </div>
      ${at.children.length === 0 ? this.tensors(at.path) : nothing}
    `;
  }

  override updated(changed: PropertyValues): void {
    // After a walk the keyboard goes on from the cell that now stands first.
    if (changed.has('active') && this.renderRoot instanceof ShadowRoot && this.renderRoot.activeElement) {
      this.renderRoot.querySelector<HTMLElement>('.cell[tabindex="0"]')?.focus();
    }
  }

  private way(path: string, parent: string, here: boolean): TemplateResult {
    const name = nameIn(path, parent) || OVERALL;
    if (here) return html`<span>${name}</span>`;
    return html`<button
        @click=${() => {
          this.enter(path);
        }}
      >
        ${name}</button
      ><span aria-hidden="true">›</span>`;
  }

  private cell(cell: Cell, active: string): TemplateResult {
    const { module, level, left, width, total, rest } = cell;
    const name = rest ? REST : cell.name || OVERALL;
    const segments = factorSegments(module);
    const about = segments.map(({ label, bytes }) => `${label.toLowerCase()} ${size(bytes)}`).join(', ');
    const type = module.type && !rest ? `, ${module.type}` : '';
    const label = `${name} ${size(total)}${type}: ${about}`;
    const focusable = !rest && module.path === active;
    return html`<div
      class="cell ${rest ? 'rest' : ''}"
      role=${rest ? 'none' : 'treeitem'}
      aria-level=${rest ? nothing : level + 1}
      aria-label=${rest ? nothing : label}
      aria-expanded=${rest || module.children.length === 0 ? nothing : level + 1 < LEVELS ? 'true' : 'false'}
      tabindex=${rest ? nothing : focusable ? 0 : -1}
      data-path=${module.path}
      title="${label} (${exact(total)})"
      .style=${styles({ left: `${left.toFixed(3)}%`, width: `${width.toFixed(3)}%`, top: `${level * 3}rem` })}
      @focus=${() => {
        this.active = module.path;
      }}
      @click=${() => {
        if (!rest) this.enter(module.path);
      }}
    >
      <div class="inside" aria-hidden="true">
        ${width >= NAMED ? html`<div class="name"><span>${name}</span> ${width >= SIZED ? html`<span class="soft">${size(total)}</span>` : nothing}</div>` : nothing}
        <div class="stack">
          ${segments.map(
            ({ key, bytes }) =>
              html`<span
                .style=${styles({ width: `${percent(bytes, total).toFixed(2)}%`, background: fill(key) })}
              ></span>`,
          )}
        </div>
      </div>
    </div>`;
  }

  /** The tensors of one layer that are among the largest of the run. */
  private tensors(path: string): TemplateResult {
    const own = (this.report?.largest ?? []).filter(({ module }) => module === path || module.startsWith(path + '.'));
    if (own.length === 0) return html`<p class="small soft">None of the largest tensors at the peak is in here.</p>`;
    return html`<ul>
      ${own.map(
        (tensor) =>
          html`<li>
            ${size(tensor.bytes)}: ${tensor.role}, ${shape(tensor.shape)} ${tensor.dtype}, in ${tensor.module}
          </li>`,
      )}
    </ul>`;
  }

  private key(event: KeyboardEvent, cells: readonly Cell[], active: string): void {
    const real = cells.filter(({ rest }) => !rest);
    const at = real.find(({ module }) => module.path === active);
    if (!at) return;
    const beside = (step: number): Cell | undefined => {
      const level = real.filter((cell) => cell.level === at.level);
      return level[level.indexOf(at) + step];
    };
    const target = {
      ArrowLeft: () => beside(-1),
      ArrowRight: () => beside(1),
      ArrowUp: () => real.find(({ module, level }) => module.path === at.parent && level === at.level - 1),
      ArrowDown: () => real.find(({ parent, level }) => parent === at.module.path && level === at.level + 1),
      Home: () => real[0],
    }[event.key];
    if (target) {
      event.preventDefault();
      const cell = target();
      if (cell) this.active = cell.module.path;
    } else if (event.key === 'Enter' || event.key === ' ') {
      event.preventDefault();
      this.enter(at.module.path);
    } else if (event.key === 'Escape' || event.key === 'Backspace') {
      const root = this.report?.modules[0];
      const above = root ? lineage(root, this.path).at(-2) : undefined;
      if (above) {
        event.preventDefault();
        this.enter(above.path);
      }
    }
  }

  private enter(path: string): void {
    this.path = path;
    this.active = path;
  }
}

customElements.define('oometer-icicle', OometerIcicle);
