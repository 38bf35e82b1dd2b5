import { html, LitElement, nothing, type TemplateResult } from 'lit';
import { gib, gibNumber, percent } from '../format/bytes';
import { VERDICTS } from '../format/words';
import { field, labelOf, type Setup } from '../state/fields';
import { cellOf, ranges, runs, type Axis, type Cells, type Grid, type Run } from '../state/sweep';
import { styles } from '../styles/inline';
import { shared } from '../styles/shared';
import type { Result } from '../wasm/ask';
import type { Gpu } from '../wasm/catalogue';
import { copyTable } from './copy-table';
import { mapStyles } from './sweep-styles';

type Says = Run['says'];

const SAYS: Record<Says, string> = { ...VERDICTS, refused: 'no answer', unknown: 'not computed' };
const SHOWN: readonly Says[] = ['fits', 'tight', 'does-not-fit', 'refused'];
/** Shares of the map, in percent, that a word needs. */
const WORD = { width: 12, height: 5 };

/** The map of a sweep: a colour, a pattern and words for each stretch of cells that say the same, and its table. */
export class OometerSweepMap extends LitElement {
  static override properties = {
    base: { attribute: false },
    grid: { attribute: false },
    cells: { attribute: false },
    known: { attribute: false },
    running: { attribute: false },
    setup: { attribute: false },
    former: {},
    gpus: { attribute: false },
    cursor: { state: true },
  };
  declare base: Result | null;
  declare grid: Grid | null;
  declare cells: Readonly<Cells>;
  /** How many cells are known: the cells themselves are filled in place. */
  declare known: number;
  declare running: boolean;
  /** The page's present settings, which may be a cell. */
  declare setup: Setup | null;
  /** What was set otherwise when it was swept: then its cells are to be read, not to be used. */
  declare former: string;
  declare gpus: readonly Gpu[];
  declare private cursor: number | null;

  constructor() {
    super();
    this.base = null;
    this.grid = null;
    this.cells = [];
    this.known = 0;
    this.running = false;
    this.setup = null;
    this.former = '';
    this.gpus = [];
    this.cursor = null;
  }

  static override styles = [shared, mapStyles];

  override render(): TemplateResult | typeof nothing {
    const { grid } = this;
    if (!grid) return nothing;
    const found = runs(this.cells, grid);
    return html`
      <p class="readout small" aria-live="polite">
        ${this.cursor === null ? this.about() : this.tell(grid, this.cursor)}
      </p>
      ${this.former ? html`<p class="former small">Of earlier settings (${this.former}). Sweep again to use a cell.</p>` : nothing}
      <div class="map ${this.former ? 'old' : ''}">
        <div class="up" aria-hidden="true">${this.scale(grid.rows)}</div>
        ${this.picture(found, grid)}
        <div class="across" aria-hidden="true">${this.scale(grid.columns)}</div>
      </div>
      <ul class="legend">
        ${SHOWN.map((says) => {
          const count = found.reduce((sum, run) => sum + (run.says === says ? run.to - run.from + 1 : 0), 0);
          return html`<li><span class="swatch ${says}"></span>${SAYS[says]}: ${count.toLocaleString('en-US')}</li>`;
        })}
      </ul>
      ${this.running ? nothing : this.table(found, grid)}
    `;
  }

  private picture(found: readonly Run[], grid: Grid): TemplateResult {
    const across = this.called(grid.columns);
    return html`<div
      class="cells"
      role="application"
      aria-roledescription="map"
      tabindex="0"
      aria-label="What fits, by ${this.called(grid.rows)} and ${across}. Arrows move, Enter uses a cell; the table below says the same."
      @pointermove=${(event: PointerEvent) => {
        this.cursor = cellUnder(event, grid);
      }}
      @pointerleave=${() => {
        this.cursor = null;
      }}
      @click=${(event: MouseEvent) => {
        this.use(cellUnder(event, grid));
      }}
      @keydown=${(event: KeyboardEvent) => {
        this.key(event, grid);
      }}
    >
      ${found.map(
        (run) =>
          html`<div class="run ${run.says}" .style=${styles(place(run, grid))}>
            ${!this.former && hasRoom(run, grid) ? SAYS[run.says] : ''}
          </div>`,
      )}
      ${this.former ? nothing : this.mark('now', this.setup && cellOf(this.setup, grid), grid)}
      ${this.mark('cursor', this.cursor, grid)}
    </div>`;
  }

  private scale(axis: Axis): TemplateResult {
    return html`<span>${this.name(axis, 0)}</span>
      <strong>${this.called(axis)}</strong>
      <span>${this.name(axis, axis.values.length - 1)}</span>`;
  }

  private table(found: readonly Run[], { rows, columns }: Grid): TemplateResult {
    return html`<details>
      <summary>As a table</summary>
      <div class="scroll" tabindex="0" role="group" aria-label="Sweep, as a table">
        <table aria-label="Sweep">
          <thead>
            <tr>
              <th scope="col">${this.called(rows)}</th>
              ${SHOWN.map((says) => html`<th scope="col">${this.called(columns)}: ${SAYS[says]}</th>`)}
            </tr>
          </thead>
          <tbody>
            ${rows.values.map((_, i) => {
              const row = found.filter((run) => run.row === i);
              return html`<tr>
                <th scope="row">${this.name(rows, i)}</th>
                ${SHOWN.map((says) => html`<td>${ranges(row, says, (column) => this.name(columns, column)) || '–'}</td>`)}
              </tr>`;
            })}
          </tbody>
        </table>
      </div>
      <div class="tools">${copyTable(() => this.renderRoot.querySelector('table'))}</div>
    </details>`;
  }

  /** What else the sweep is about, which may not be what is set now. */
  private about(): string {
    const { base, grid } = this;
    if (!base) return '';
    const gpus = grid?.rows.key === 'gpu' ? `${base.count} of each GPU` : `${base.count} × ${base.gpu.name}`;
    return `${base.model.title}, ${gpus}.`;
  }

  private tell({ rows, columns }: Grid, index: number): string {
    const width = columns.values.length;
    const cell = this.cells[index];
    const row = `${this.called(rows)} ${this.name(rows, Math.floor(index / width))}`;
    const where = `${row}, ${this.called(columns).toLowerCase()} ${this.name(columns, index % width)}`;
    if (!cell) return `${where}: ${SAYS[cell === null ? 'refused' : 'unknown']}`;
    const amount = `${gibNumber(cell.total)} of ${gib(cell.limit)}`;
    return `${where}: ${SAYS[cell.verdict]}, ${amount}`;
  }

  private called({ key }: Axis): string {
    return this.base ? labelOf(field(key), this.base.setup) : field(key).label;
  }

  private name({ key, values }: Axis, i: number): string {
    const value = values[i] ?? '';
    if (key === 'gpu') return this.gpus.find(({ id }) => id === value)?.name ?? value;
    return Number(value).toLocaleString('en-US');
  }

  private mark(kind: 'now' | 'cursor', index: number | null, grid: Grid): TemplateResult | typeof nothing {
    if (index === null) return nothing;
    const width = grid.columns.values.length;
    const at = { row: Math.floor(index / width), from: index % width, to: index % width };
    return html`<div class=${kind} .style=${styles(place(at, grid))}></div>`;
  }

  private use(index: number): void {
    if (this.cells[index] && !this.former) this.dispatchEvent(new CustomEvent('cell', { detail: index }));
  }

  private key(event: KeyboardEvent, grid: Grid): void {
    const width = grid.columns.values.length;
    const at = this.cursor ?? (this.setup && cellOf(this.setup, grid)) ?? 0;
    if (event.key === 'Enter') {
      this.use(at);
      return;
    }
    const column = at % width;
    const target = {
      ArrowRight: column < width - 1 ? at + 1 : at,
      ArrowLeft: column > 0 ? at - 1 : at,
      ArrowDown: at + width,
      ArrowUp: at - width,
      Home: at - column,
      End: at - column + width - 1,
    }[event.key];
    if (target === undefined) return;
    event.preventDefault();
    this.cursor = target >= 0 && target < this.cells.length ? target : at;
  }
}

function place({ row, from, to }: Pick<Run, 'row' | 'from' | 'to'>, grid: Grid): Record<string, string> {
  const share = (part: number, { values }: Axis): string => `${percent(part, values.length).toFixed(3)}%`;
  return {
    top: share(row, grid.rows),
    height: share(1, grid.rows),
    left: share(from, grid.columns),
    width: share(to + 1 - from, grid.columns),
  };
}

function cellUnder(event: MouseEvent, { rows, columns }: Grid): number {
  const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
  const part = (at: number, size: number, { values }: Axis): number =>
    Math.max(0, Math.min(values.length - 1, Math.floor((at / size) * values.length)));
  const row = part(event.clientY - box.top, box.height, rows);
  return row * columns.values.length + part(event.clientX - box.left, box.width, columns);
}

/** Whether a stretch's word can stand in it; in a fine grid none can, and the legend says it. */
function hasRoom({ from, to, says }: Run, { rows, columns }: Grid): boolean {
  const high = percent(1, rows.values.length) >= WORD.height;
  return high && says !== 'unknown' && percent(to + 1 - from, columns.values.length) >= WORD.width;
}

customElements.define('oometer-sweep-map', OometerSweepMap);
