import { html, LitElement, nothing, type TemplateResult } from 'lit';
import { live } from 'lit/directives/live.js';
import { ifDefined } from 'lit/directives/if-defined.js';
import { gib, grouped } from '../format/bytes';
import { explain } from '../format/links';
import { reason } from '../format/reason';
import { change } from '../format/words';
import { effectKey, isByCache, neighbours, type Effects, type Peak } from '../state/effects';
import { choiceLabel } from '../state/labels';
import { aboutOf, hintOf, loadWords, placeholderOf, unitOf } from '../state/explanations';
import {
  applies,
  choicesOf,
  field,
  inGroup,
  infers,
  labelOf,
  number,
  OWN_GPU,
  START,
  type Field,
  type FieldKey,
  type Setup,
} from '../state/fields';
import { addressOf, type HubModel } from '../state/hub';
import { describeLengths, packLengths, readLengths } from '../state/lengths';
import type { Model } from '../state/model';
import { describeRun, unpackRun } from '../state/runfile';
import { mixesImages } from '../state/traits';
import { setupOf, STARTS } from '../state/starts';
import { fields, shared } from '../styles/shared';
import type { Catalogue, Gpu } from '../wasm/catalogue';
import type { Report } from '../wasm/report';
import { formStyles } from './form-styles';
import { gpuItems, modelItems } from './items';
import './picker';
import { segmented, segmentedStyles } from './segmented';
import { slider } from './slider';

export type Errors = Partial<Record<FieldKey, string>>;

export interface Setting {
  key: FieldKey;
  value: string;
}

/** A list that has been opened or closed: while it is open, what each entry would do is worth knowing. */
export interface Listed {
  key: FieldKey;
  open: boolean;
}

const keysOf = (...groups: Parameters<typeof inGroup>): FieldKey[] => inGroup(...groups).map(({ key }) => key);
const MORE = keysOf('more');
/** What a custom stage is made of stands below it. */
const OF_STAGE = keysOf('stage');
const RARELY = keysOf('rare');

/** Of the settings in a closed group, those that say nothing in a word. */
const UNTOLD: readonly FieldKey[] = ['framework', 'impl', 'runfile', 'ckptplan', 'histogram'];

/** More choices than this are a list to pick from. */
const MOST_ROWS = 7;

/** The settings. Labels and inputs share one root, which ids and aria attributes need. */
export class OometerForm extends LitElement {
  static override properties = {
    setup: { attribute: false },
    model: { attribute: false },
    catalogue: { attribute: false },
    hub: { attribute: false },
    errors: { attribute: false },
    effects: { attribute: false },
    peak: { attribute: false },
    image: { attribute: false },
    unread: { state: true },
  };
  declare setup: Setup;
  declare model: Model | null;
  declare catalogue: Catalogue | null;
  /** More models by their names on the hub, once they are loaded. */
  declare hub: readonly HubModel[];
  declare errors: Errors;
  declare effects: Effects;
  /** The peak that the effects are measured against; null while there is none. */
  declare peak: Peak | null;
  /** One image of the last answer; null where there is none. */
  declare image: Report['image'] | null;
  /** What is wrong with a list of lengths; "" where nothing is. */
  declare private unread: string;
  /** On a phone the first view is the verdict and the few settings that matter most. */
  private readonly roomy = matchMedia('(min-width: 60rem)').matches;

  constructor() {
    super();
    this.setup = { ...START };
    this.model = null;
    this.catalogue = null;
    this.hub = [];
    this.errors = {};
    this.effects = new Map();
    this.peak = null;
    this.image = null;
    this.unread = '';
  }

  static override styles = [shared, fields, segmentedStyles, formStyles];

  protected override firstUpdated(): void {
    void loadWords().then(() => {
      this.requestUpdate();
    });
  }

  override render(): TemplateResult {
    const { model } = this;
    const { half: fewer, double: more } = neighbours(this.setup.gpus);
    const gpu = this.catalogue?.gpus.find(({ id }) => id === this.setup.gpu);
    return html`
      <form
        autocomplete="off"
        @submit=${(event: Event) => {
          event.preventDefault();
        }}
      >
        ${this.starts()} ${this.segments('task')}
        <div>
          <oometer-picker
            data-key="model"
            label="Model"
            .value=${this.setup.config ? (model?.title ?? '') : this.setup.model}
            .nothing=${noModel}
            .shown=${model?.title ?? '…'}
            .hint=${model?.description ?? ''}
            .error=${this.errors.model ?? ''}
            .items=${modelItems(this.catalogue?.models ?? [], this.hub, this.effects)}
            @open=${this.listed('model')}
            @pick=${(event: CustomEvent<string>) => {
              this.set('model', event.detail);
            }}
          ></oometer-picker>
          ${this.own('Paste or drop a config.json, or any PyTorch model')}
        </div>
        ${this.segments('stage')} ${OF_STAGE.map((key) => this.typed(key))}
        <div class="pair device">
          <oometer-picker
            data-key="gpu"
            label="GPU"
            empty="No match: choose “Another GPU, by its memory”."
            .value=${this.setup.gpu}
            .shown=${gpu?.name ?? '…'}
            .hint=${gpu ? gpuHint(gpu) : ''}
            .error=${this.errors.gpu ?? ''}
            .items=${gpuItems(this.catalogue?.gpus ?? [], this.effects)}
            @open=${this.listed('gpu')}
            @pick=${(event: CustomEvent<string>) => {
              this.set('gpu', event.detail);
            }}
          ></oometer-picker>
          <div class="field">${this.label(field('gpus'))} ${this.input('gpus')}</div>
          ${
            infers(this.setup)
              ? html`<p class="hint copies">${this.copies()}</p>`
              : html`<div class="steps">${this.step('gpus', fewer)} ${this.step('gpus', more)}</div>`
          }
          ${this.error('gpus')}
        </div>
        ${this.typed('gpugib')} ${this.choice('capability')} ${this.count('mbs')} ${this.count('seq')}
        ${this.count('images')} ${this.count('height')} ${this.count('width')} ${this.count('frames')}
        ${this.count('newtokens')} ${this.count('turns')} ${this.count('turntokens')} ${this.count('turnimages')}
        <details class="more" ?open=${this.roomy || this.isWrong([...MORE, ...RARELY])}>
          <summary>More <span class="gist">${this.gist([...MORE, ...RARELY])}</span></summary>
          ${MORE.filter((key) => this.applies(key)).map((key) => this.one(key))} ${this.rarely()}
        </details>
        <p class="hint">
          Beside each choice: its effect on the peak.
          <a href=${explain('effects')} target="_blank" rel="noopener">How this is calculated</a>
        </p>
      </form>
    `;
  }

  /** What people come with, one press each. */
  private starts(): TemplateResult {
    return html`<div class="starts" role="group" aria-label="Start from">
      <span class="hint">Start from</span>
      ${STARTS.map(
        (start) =>
          html`<button
            type="button"
            title=${start.about}
            @click=${() => {
              this.dispatchEvent(new CustomEvent<Setup>('start', { detail: setupOf(start) }));
            }}
          >
            ${start.label}
          </button>`,
      )}
    </div>`;
  }

  /** Brings a setting into view, for whoever follows an error to it. */
  reveal(key: FieldKey): void {
    const control = this.renderRoot.querySelector<HTMLElement>(`[data-key="${key}"]`);
    for (let at = control?.closest('details'); at; at = at.parentElement?.closest('details')) at.open = true;
    control?.focus();
  }

  private applies(key: FieldKey): boolean {
    return this.model === null || applies(field(key), this.model, this.setup);
  }

  private isWrong(keys: readonly FieldKey[]): boolean {
    return keys.some((key) => this.errors[key] !== undefined);
  }

  /** A setting in the list, by what it takes. */
  private one(key: FieldKey): TemplateResult | typeof nothing {
    if (key === 'runfile') return this.runFile();
    if (key === 'ckptplan') return this.given(key, 'as found below');
    if (key === 'histogram') return this.lengths();
    if (field(key).kind !== 'count') return this.choice(key);
    return START[key] === '' ? this.typed(key) : this.count(key);
  }

  /** Lengths of one's own samples, pasted; a file with them may be dropped anywhere. */
  private lengths(): TemplateResult {
    const key = 'histogram';
    const packed = this.setup[key];
    return html`<div class="field typed">
      ${this.label(field(key))}
      <textarea
        id=${key}
        data-key=${key}
        rows="3"
        spellcheck="false"
        placeholder="512 × 300, 1024 × 120 …"
        .value=${packed.replaceAll('-', ', ').replaceAll('x', ' × ')}
        aria-invalid=${this.unread === '' && this.errors[key] === undefined ? 'false' : 'true'}
        aria-describedby="${key}-hint ${key}-error"
        @change=${(event: Event) => {
          this.readLengths((event.target as HTMLTextAreaElement).value);
        }}
      ></textarea>
      <p class="hint" id="${key}-hint">
        ${packed === '' ? `${hintOf(key) ?? ''} Or drop a file.` : describeLengths(packed)}
      </p>
      ${this.unread === '' ? this.error(key) : html`<p class="error" id="${key}-error">${this.unread}</p>`}
    </div>`;
  }

  private readLengths(text: string): void {
    try {
      this.unread = '';
      this.set('histogram', packLengths(readLengths(text)));
    } catch (error) {
      this.unread = reason(error);
    }
  }

  /** What few people set, of what means something here. */
  private rarely(): TemplateResult | typeof nothing {
    const keys = this.model ? RARELY.filter((key) => this.applies(key)) : [];
    if (keys.length === 0) return nothing;
    return html`<details class="rare" ?open=${this.isWrong(keys)}>
      <summary>Rarely changed <span class="gist">${this.gist(keys)}</span></summary>
      ${keys.map((key) => (field(key).kind === 'choice' ? this.choice(key) : this.typed(key)))}
    </details>`;
  }

  /** A number or a list as it is typed; a list counts when it is complete, and until then nothing takes its text away. */
  private typed(key: FieldKey): TemplateResult | typeof nothing {
    if (!this.model || !this.applies(key)) return nothing;
    const isNumber = field(key).kind === 'count';
    const set = (event: Event): void => {
      this.set(key, (event.target as HTMLInputElement).value);
    };
    return html`<div class="field typed">
      ${this.label(field(key))}
      <input
        id=${key}
        data-key=${key}
        class=${isNumber ? 'number' : ''}
        type=${isNumber ? 'number' : 'text'}
        min="0"
        step="any"
        spellcheck="false"
        placeholder=${placeholderOf(key)}
        .value=${isNumber ? live(this.setup[key]) : this.setup[key]}
        aria-invalid=${this.errors[key] === undefined ? 'false' : 'true'}
        aria-describedby=${this.described(key)}
        @input=${isNumber ? set : nothing}
        @change=${isNumber ? nothing : set}
      />
      <p class="hint" id="${key}-hint">${hintOf(key)}</p>
      ${this.error(key)}
    </div>`;
  }

  /** What is set in the closed group, in a line. */
  private gist(keys: readonly FieldKey[]): string {
    return keys
      .filter((key) => !UNTOLD.includes(key) && this.applies(key))
      .filter((key) => key === 'checkpointing' || this.setup[key] !== START[key])
      .map((key) => `${field(key).label}: ${this.chosen(key)}`)
      .join('; ');
  }

  private chosen(key: FieldKey): string {
    return choiceLabel(field(key), this.setup[key]);
  }

  private segments(key: 'task' | 'stage'): TemplateResult | typeof nothing {
    if (!this.applies(key)) return nothing;
    const { label } = field(key);
    const choices = choicesOf(field(key), this.model).filter(
      (value) => value !== 'finetune' || this.hasProjector || this.setup.stage === value,
    );
    if (choices.length < 2) return nothing;
    return html`
      <fieldset data-key=${key} tabindex="-1" aria-describedby=${this.described(key)}>
        <legend>${label}</legend>
        ${segmented({
          name: key,
          value: this.setup[key],
          choices: choices.map((value) => ({
            value,
            label: choiceLabel(field(key), value),
            about: aboutOf(key, value),
          })),
          onChange: (value) => {
            this.set(key, value);
          },
        })}
        <div class="below" aria-hidden="true">
          ${choices.map((value) => html`<span>${this.effect(key, value)}</span>`)}
        </div>
        <p class="hint" id="${key}-hint">
          ${aboutOf(key, this.setup[key] === 'finetune' && !this.hasProjector ? 'full' : this.setup[key])}
        </p>
        ${this.because(key, choices)} ${this.error(key)}
      </fieldset>
    `;
  }

  /** Without a projector beside a vision tower, fine-tuning trains all weights. */
  private get hasProjector(): boolean {
    return this.model === null || mixesImages(this.model);
  }

  private own(words: string): TemplateResult {
    return html`<button
      class="plain"
      type="button"
      @click=${() => {
        this.dispatchEvent(new CustomEvent('own'));
      }}
    >
      ${words}
    </button>`;
  }

  /** Instead of a strategy and its options: a file that says all of it. */
  private runFile(): TemplateResult {
    const run = unpackRun(this.setup.runfile);
    if (!run) return this.own('Paste or drop a ds_config.json, or accelerate’s');
    return this.given('runfile', describeRun(run));
  }

  /** What no field can hold, by its name; it may go. */
  private given(key: FieldKey, what: string): TemplateResult {
    return html`<div class="field" data-key=${key} tabindex="-1">
      <div class="line"><strong>${field(key).label}</strong> <span class="hint">${what}</span></div>
      <button
        class="plain"
        type="button"
        @click=${() => {
          this.set(key, '');
        }}
      >
        Remove<span class="hidden"> ${field(key).label}</span>
      </button>
      ${this.error(key)}
    </div>`;
  }

  /** A setting with a few choices: one line, which opens to what each choice means and does. */
  private choice(key: FieldKey): TemplateResult | typeof nothing {
    if (!this.applies(key)) return nothing;
    const { label } = field(key);
    const choices = choicesOf(field(key), this.model);
    const hint = hintOf(key);
    return html`
      <details class="setting" ?open=${this.errors[key] !== undefined}>
        <summary data-key=${key}><span>${label}</span><span class="value">${this.chosen(key)}</span></summary>
        <fieldset aria-describedby=${this.described(key)}>
          <legend class="hidden">${label}</legend>
          ${hint ? html`<p class="hint" id="${key}-hint">${hint}</p>` : nothing}
          ${choices.length > MOST_ROWS ? this.select(key) : choices.map((value) => this.option(key, value, choiceLabel(field(key), value)))}
          ${this.because(key, choices)}
        </fieldset>
        ${this.error(key)}
      </details>
    `;
  }

  private option(key: FieldKey, value: string, label: string): TemplateResult {
    return html`<label class="option">
      <input
        type="radio"
        name=${key}
        value=${value}
        .checked=${live(this.setup[key] === value)}
        @change=${() => {
          this.set(key, value);
        }}
      />
      <span class="name">${label}</span>
      <span class="effect">${this.effect(key, value)}</span>
      <span class="about">${aboutOf(key, value)}</span>
    </label>`;
  }

  private select(key: FieldKey): TemplateResult {
    const { label } = field(key);
    const choices = choicesOf(field(key), this.model);
    return html`<select
      name=${key}
      aria-label=${label}
      .value=${live(this.setup[key])}
      @change=${(event: Event) => {
        this.set(key, (event.target as HTMLSelectElement).value);
      }}
    >
      ${choices.map((value) => {
        const effect = this.effect(key, value);
        const note = effect === '' || effect === 'same' ? '' : ` (${effect})`;
        return html`<option value=${value} ?selected=${this.setup[key] === value}>
          ${choiceLabel(field(key), value)}${note}
        </option>`;
      })}
    </select>`;
  }

  /** A number, with what half and twice of it would do. */
  private count(key: FieldKey): TemplateResult | typeof nothing {
    if (!this.applies(key)) return nothing;
    const { half, double } = neighbours(this.setup[key]);
    return html`
      <div class="field count">
        <div class="line">
          ${this.label(field(key))} <span class="hint" id="${key}-hint">${this.counted(key)}</span>
        </div>
        <div class="stepper">${this.step(key, half)} ${this.input(key)} ${this.step(key, double)}</div>
        ${slider(this.setup[key], field(key).label, (value) => {
          this.set(key, value);
        })}
        ${this.beyond(key)} ${this.error(key)}
      </div>
    `;
  }

  /** What several GPUs mean for inference: each is alone with its users. */
  private copies(): string {
    return number(this.setup.gpus) > 1
      ? 'Each GPU holds the whole model and serves users of its own.'
      : 'The model and its cache are on this GPU.';
  }

  /** A length beyond what the model was made for. */
  private beyond(key: FieldKey): TemplateResult | typeof nothing {
    const most = this.model?.max_position_embeddings ?? null;
    const { seq, newtokens } = this.setup;
    const serves = infers(this.setup);
    const tokens = number(seq) + (serves && this.applies('newtokens') ? number(newtokens) : 0);
    if (key !== 'seq' || most === null || !(tokens > most)) return nothing;
    return html`<p class="hint beyond">
      ${serves ? `Prompt and answer, ${grouped.format(tokens)} tokens, are longer` : 'Longer'} than the
      ${grouped.format(most)} tokens that this model was made for.
    </p>`;
  }

  /** How the model counts what is set, once an answer says so. */
  private counted(key: FieldKey): string {
    if (key !== 'images' || !this.image) {
      const unit = unitOf(key);
      const isSaid = labelOf(field(key), this.setup).toLowerCase().includes(unit);
      return isSaid || (key === 'mbs' && infers(this.setup)) ? '' : unit;
    }
    const { height, width, tokens } = this.image;
    return `1 image of ${height} × ${width}${tokens > 0 ? ` = ${grouped.format(tokens)} tokens` : ''}`;
  }

  private step(key: FieldKey, value: string | null): TemplateResult {
    if (value === null) return html`<span></span>`;
    return html`<button
      type="button"
      @click=${() => {
        this.set(key, value);
      }}
    >
      <span class="hidden">${labelOf(field(key), this.setup)}</span> ${value}
      <span class="effect">${this.effect(key, value)}</span>
    </button>`;
  }

  private label(field: Field): TemplateResult {
    return html`<label for=${field.key}>${labelOf(field, this.setup)}</label>`;
  }

  private input(key: FieldKey): TemplateResult {
    return html`<input
      id=${key}
      data-key=${key}
      type="number"
      inputmode="numeric"
      min="1"
      step="1"
      .value=${live(this.setup[key])}
      aria-invalid=${this.errors[key] === undefined ? 'false' : 'true'}
      aria-describedby=${this.described(key)}
      title=${ifDefined(hintOf(key))}
      @input=${(event: Event) => {
        this.set(key, (event.target as HTMLInputElement).value);
      }}
    />`;
  }

  private error(key: FieldKey): TemplateResult | typeof nothing {
    const message = this.errors[key];
    if (message === undefined) return nothing;
    return html`<p class="error" id="${key}-error">${field(key).label}: ${message}</p>`;
  }

  private described(key: FieldKey): string | typeof nothing {
    const hinted = key !== 'gpus' && (hintOf(key) !== undefined || key === 'stage' || key === 'task');
    const ids = [this.errors[key] === undefined ? '' : `${key}-error`, hinted ? `${key}-hint` : ''].filter(Boolean);
    return ids.length > 0 ? ids.join(' ') : nothing;
  }

  /**
   * What this choice alone would do to the peak: "−3.1 GiB"; of settings that have no answer, the peak with it. Empty for what
   * is chosen, and until it is known.
   */
  private effect(key: FieldKey, value: string): string {
    const effect = this.effects.get(effectKey(key, value));
    if (effect === undefined || this.setup[key] === value) return '';
    if (this.peak === null) return effect === null ? '' : gib(effect.total);
    return effect === null ? 'not possible' : change(effect.total - this.peak.total);
  }

  /** Why a choice with larger tensors takes less, or the other way round. */
  private because(key: FieldKey, values: readonly string[]): TemplateResult | typeof nothing {
    const { peak, effects } = this;
    const told = new Map<string, string[]>();
    for (const value of values) {
      const effect = effects.get(effectKey(key, value));
      if (!peak || !effect || this.setup[key] === value || !isByCache(effect, peak)) continue;
      const tensors = effect.allocated - peak.allocated;
      const cache = effect.total - peak.total - tensors;
      const why = `tensors ${change(tensors)}, unused cache ${change(cache)}`;
      told.set(why, [...(told.get(why) ?? []), choiceLabel(field(key), value)]);
    }
    if (told.size === 0) return nothing;
    return html`<p class="hint">${[...told].map(([why, labels]) => `${labels.join(', ')}: ${why}. `)}</p>`;
  }

  private listed(key: FieldKey): (event: CustomEvent<boolean>) => void {
    return ({ detail: open }) => {
      this.dispatchEvent(new CustomEvent<Listed>('listed', { detail: { key, open } }));
    };
  }

  private set(key: FieldKey, value: string): void {
    this.dispatchEvent(new CustomEvent<Setting>('setting', { detail: { key, value } }));
  }
}

const gpuHint = ({ id, usable_bytes, calibrated }: Gpu): string =>
  [id === OWN_GPU ? '' : `${gib(usable_bytes, 2)} usable`, calibrated ? '' : 'the memory of its libraries is estimated']
    .filter(Boolean)
    .join('; ');

/** Of a name that is in no list: where its file is to be had. */
function noModel(query: string): TemplateResult {
  const address = addressOf(query);
  return address === null
    ? html`No match: paste its config.json.`
    : html`Not in the list. Open <a href=${address} target="_blank" rel="noopener">its config.json</a> and paste it
        here.`;
}

customElements.define('oometer-form', OometerForm);
