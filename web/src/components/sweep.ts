import { html, LitElement, nothing, type TemplateResult } from 'lit';
import { reason } from '../format/reason';
import { field, infers, labelOf, OWN_GPU, type FieldKey, type Setup } from '../state/fields';
import { told } from '../state/told';
import { known, setupAt, upTo, type Axis, type Cells, type Grid } from '../state/sweep';
import { fields, shared } from '../styles/shared';
import type { Result } from '../wasm/ask';
import type { Gpu } from '../wasm/catalogue';
import { Sweeper } from '../wasm/sweeper';
import { segmented, segmentedStyles } from './segmented';
import './sweep-map';
import { controlStyles } from './sweep-styles';

/** A sweep that was begun; it stays on screen until the next one, with the answer that it is about. */
interface Swept {
  base: Result;
  grid: Grid;
  /** The sweeper fills them. */
  cells: Cells;
}

type Across = 'seq' | 'gpu';
type Count = Extract<FieldKey, 'mbs' | 'seq'>;

/** The first two divide what people set, so that the present settings are a cell. */
const STEPS = ['16', '32', '100'];
/** Where a count ends at least, unless somebody says otherwise. */
const LEAST: Record<Count, number> = { mbs: 32, seq: 4096 };
/** Milliseconds between two drawings of a map that is being filled. */
const DRAW = 400;

/** What fits over two settings, computed by workers. */
export class OometerSweep extends LitElement {
  static override properties = {
    result: { attribute: false },
    gpus: { attribute: false },
    across: { state: true },
    most: { state: true },
    steps: { state: true },
    swept: { state: true },
    drawn: { state: true },
    running: { state: true },
    said: { state: true },
  };
  declare result: Result | null;
  declare gpus: readonly Gpu[];
  /** What varies beside the micro-batch. */
  declare private across: Across;
  /** How far each count goes, where somebody has said so. */
  declare private most: Partial<Record<Count, string>>;
  declare private steps: string;
  declare private swept: Swept | null;
  /** How many cells the map was last drawn with: it is drawn again where that changes. */
  declare private drawn: number;
  declare private running: boolean;
  declare private said: string;
  private readonly sweeper = new Sweeper();

  constructor() {
    super();
    this.result = null;
    this.gpus = [];
    this.across = 'seq';
    this.most = {};
    this.steps = '16';
    this.swept = null;
    this.drawn = 0;
    this.running = false;
    this.said = '';
  }

  static override styles = [shared, fields, segmentedStyles, controlStyles];

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    this.sweeper.stop();
    this.running = false;
  }

  override render(): TemplateResult | typeof nothing {
    const { result, swept } = this;
    if (!result) return nothing;
    return html`
      <section aria-labelledby="sweep">
        <div class="heading">
          <h2 id="sweep">Sweep</h2>
          ${result.model.text ? this.kinds(infers(result.setup)) : nothing}
        </div>
        ${this.controls(result)}
        <p class="small soft" role="status">${this.said}</p>
        ${
          swept
            ? html`<oometer-sweep-map
                .base=${swept.base}
                .grid=${swept.grid}
                .cells=${swept.cells}
                .known=${this.drawn}
                .running=${this.running}
                .setup=${result.setup}
                .former=${formerly(swept, result.setup)}
                .gpus=${this.gpus}
                @cell=${({ detail }: CustomEvent<number>) => {
                  const setup = setupAt(swept.base.setup, swept.grid, detail);
                  this.dispatchEvent(new CustomEvent<Setup>('apply', { detail: setup }));
                }}
              ></oometer-sweep-map>`
            : nothing
        }
      </section>
    `;
  }

  private kinds(serves: boolean): TemplateResult {
    return segmented({
      name: 'across',
      value: this.across,
      choices: [
        { value: 'seq', label: serves ? 'Users × prompt' : 'Micro-batch × sequence' },
        { value: 'gpu', label: serves ? 'GPU × users' : 'GPU × micro-batch' },
      ],
      onChange: (value) => {
        this.across = value === 'gpu' ? 'gpu' : 'seq';
      },
    });
  }

  private controls(result: Result): TemplateResult {
    const { running, swept } = this;
    return html`<form
      @submit=${(event: Event) => {
        event.preventDefault();
        void this.sweep();
      }}
    >
      ${this.upTo('mbs', result)} ${this.acrossIn(result) === 'seq' ? this.upTo('seq', result) : nothing}
      <label class="field"
        >Steps
        <select
          name="steps"
          @change=${(event: Event) => {
            this.steps = (event.target as HTMLSelectElement).value;
          }}
        >
          ${STEPS.map((steps) => html`<option value=${steps} ?selected=${steps === this.steps}>${steps}</option>`)}
        </select>
      </label>
      <button type="submit">Sweep</button>
      <button type="button" ?disabled=${!running} @click=${this.cancel}>Cancel</button>
      ${
        running && swept
          ? html`<progress aria-label="Sweep" max=${swept.cells.length} .value=${this.drawn}></progress>`
          : nothing
      }
    </form>`;
  }

  private upTo(key: Count, result: Result): TemplateResult {
    return html`<label class="field"
      >${labelOf(field(key), result.setup)} up to
      <input
        type="number"
        name=${key}
        min="1"
        max="1048576"
        required
        .value=${this.limit(key, result)}
        @change=${(event: Event) => {
          this.most = { ...this.most, [key]: (event.target as HTMLInputElement).value };
        }}
      />
    </label>`;
  }

  /** Without text there is no sequence to vary. */
  private acrossIn({ model }: Result): Across {
    return model.text ? this.across : 'gpu';
  }

  /** Twice what is set is where people look. */
  private limit(key: Count, { setup }: Result): string {
    return this.most[key] ?? String(Math.max(LEAST[key], 2 * (Number(setup[key]) || 0)));
  }

  private grid(result: Result): Grid {
    const counts = (key: Count): Axis => ({ key, values: upTo(Number(this.limit(key, result)), Number(this.steps)) });
    return this.acrossIn(result) === 'seq'
      ? { rows: counts('mbs'), columns: counts('seq') }
      : {
          rows: { key: 'gpu', values: this.gpus.map(({ id }) => id).filter((id) => id !== OWN_GPU) },
          columns: counts('mbs'),
        };
  }

  private async sweep(): Promise<void> {
    const { result: base } = this;
    if (!base) return;
    const grid = this.grid(base);
    const cells: Cells = Array.from({ length: grid.rows.values.length * grid.columns.values.length });
    const start = performance.now();
    let drawn = start;
    this.swept = { base, grid, cells };
    this.drawn = 0;
    this.running = true;
    this.said = `Computing ${written(cells.length)} cells …`;
    try {
      const finished = await this.sweeper.sweep(base, grid, cells, () => {
        if (performance.now() - drawn < DRAW) return;
        drawn = performance.now();
        this.drawn = known(cells);
      });
      if (!finished) return;
      const seconds = ((performance.now() - start) / 1000).toFixed(1);
      this.said = `${written(cells.length)} cells in ${seconds} s. Press one to use its settings.`;
    } catch (error) {
      this.sweeper.cancel();
      this.said = `The sweep ended: ${reason(error)}`;
    }
    this.drawn = known(cells);
    this.running = false;
  }

  private readonly cancel = (): void => {
    const { cells = [] } = this.swept ?? {};
    this.sweeper.cancel();
    this.running = false;
    this.drawn = known(cells);
    this.said = `Cancelled after ${written(this.drawn)} of ${written(cells.length)} cells.`;
  };
}

/** What the sweep had otherwise than the present settings, beside what it varies; "" where nothing. */
function formerly({ base, grid }: Swept, setup: Setup): string {
  const [rows, columns] = [grid.rows.key, grid.columns.key];
  return told({ ...setup, [rows]: '', [columns]: '' }, { ...base.setup, [rows]: '', [columns]: '' });
}

function written(count: number): string {
  return count.toLocaleString('en-US');
}

customElements.define('oometer-sweep', OometerSweep);
