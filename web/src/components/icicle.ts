import { css, html, LitElement, nothing, type PropertyValues, type TemplateResult } from 'lit';
import { repeat } from 'lit/directives/repeat.js';
import { factorSegments, REST } from '../charts/stack';
import { asOne, icicle, LEVELS, lineage, nameIn, type Cell } from '../charts/icicle';
import { exact, percent, size } from '../format/bytes';
import type { Job } from '../state/job.generated';
import { styles } from '../styles/inline';
import { fill, shared } from '../styles/shared';
import type { PageCore } from '../wasm/core';
import type { Module, Report } from '../wasm/report';
import { tensorTable } from './tensor-table';

/** Below these shares of the width a name, or a name and a size, would be cut to nothing. */
const NAMED = 6;
const SIZED = 11;

/** As many as anybody reads. */
const MOST_TENSORS = 40;

const OVERALL = 'Whole model';

/** The module tree, each module as wide as what it holds and coloured by what for. One walks in and out again. */
export class OometerIcicle extends LitElement {
  static override properties = {
    report: { attribute: false },
    core: { attribute: false },
    job: { attribute: false },
    path: { state: true },
    active: { state: true },
  };
  declare report: Report | null;
  /** What knows the model below its layers, and the report's job; without them one walks as far as the report goes. */
  declare core: PageCore | null;
  declare job: Job | null;
  /** The module that has the whole width. */
  declare private path: string;
  /** The whole tree, asked of the core once a job. */
  private asked: { job: Job; root: Module } | null = null;
  /** The cell that arrow keys move from: one stop for the Tab key, as in any tree. */
  declare private active: string;

  constructor() {
    super();
    this.report = null;
    this.core = null;
    this.job = null;
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
      .scroll {
        max-height: 20rem;
        margin-top: 0.75rem;
        overflow: auto;
      }
    `,
  ];

  /** From the whole model down to what has the whole width. */
  private line(): Module[] {
    const { report, path, core, job } = this;
    const root = asOne(report?.modules ?? []);
    if (!root) return [];
    const line = lineage(root, path);
    const below = path !== '' && !line.at(-1)?.children.length;
    const found = path === '' || line.length > 1;
    if ((found && !below) || !core || !job) return line;
    if (this.asked?.job !== job) {
      const tree = this.ask(() => core.tree(job));
      if (!tree) return line;
      this.asked = { job, root: asOne(tree) ?? root };
    }
    return lineage(this.asked.root, path);
  }

  override render(): TemplateResult | typeof nothing {
    const line = this.line();
    const [root] = line;
    if (!root) return nothing;
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
      ${this.asked?.root === root || at.children.length === 0 ? this.tensors(at.path) : nothing}
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

  /** What the core says; null where that takes the whole one, which is then asked when it is there. */
  private ask<T>(what: (core: PageCore, job: Job) => T | null): T | null {
    const { core, job } = this;
    if (!core || !job) return null;
    const said = what(core, job);
    if (said === null)
      core.loadWhole().then(
        () => {
          this.requestUpdate();
        },
        () => undefined, // what is known stays
      );
    return said;
  }

  /** What a layer or less holds, tensor by tensor; without a core, what of it is among the largest of all. */
  private tensors(path: string): TemplateResult {
    const all =
      this.ask((core, job) => core.tensors(job, path)) ??
      (this.report?.largest ?? []).filter(({ module }) => module === path || module.startsWith(path + '.'));
    if (all.length === 0) return html`<p class="small soft">No tensor at the peak is its own.</p>`;
    const shown = all.slice(0, MOST_TENSORS);
    const rest = all.slice(MOST_TENSORS).reduce((sum, { bytes }) => sum + bytes, 0);
    return html`<div class="scroll" tabindex="0" role="group" aria-label="Tensors of ${path}">
        ${tensorTable(shown, `Tensors of ${path}`, (module) => (module === path ? 'itself' : nameIn(module, path)))}
      </div>
      ${rest > 0 ? html`<p class="small soft">And ${all.length - MOST_TENSORS} smaller ones of ${size(rest)}.</p>` : nothing}`;
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
      const above = this.line().at(-2);
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
