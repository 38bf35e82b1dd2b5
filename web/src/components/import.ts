import { css, html, LitElement, nothing, type PropertyValues, type TemplateResult } from 'lit';
import hub from 'virtual:hub-models';
import { size } from '../format/bytes';
import { reason, sentences } from '../format/reason';
import { verdict } from '../format/words';
import { identify } from '../state/dropped';
import { START, type Setup } from '../state/fields';
import {
  byEffect,
  EFFECTS,
  gpusOf,
  isVariable,
  isWanted,
  namedIn,
  nameOf,
  shortly,
  withVariables,
} from '../state/imported';
import type { Job } from '../state/job.generated';
import { fields, shared, verdicts } from '../styles/shared';
import { estimated, placed, type Result } from '../wasm/ask';
import type { PageCore } from '../wasm/core';
import { Helper } from '../wasm/helper';
import {
  readCompared,
  type FileChange,
  type FileComparison,
  type Imported,
  type ImportQuestion,
  type Missing,
  type SourceFile,
} from '../wasm/imported';
import type { Answer } from '../wasm/wrap';
import { breakable } from './breakable';
import { inWords, sideBySide } from './file-words';
import './copy';

const questionOf = (
  files: readonly SourceFile[],
  more: Omit<ImportQuestion, 'files' | 'hub'> = {},
): ImportQuestion => ({
  ...more,
  files: files.map(({ name, content, text }) => ({ name, content, ...(text === undefined ? {} : { text }) })),
  hub: namedIn(files, hub),
});

/** What the core makes of the files; it is loaded further where that takes it. */
export async function importFiles(
  core: PageCore,
  files: readonly SourceFile[],
  more: Omit<ImportQuestion, 'files' | 'hub'> = {},
): Promise<Imported> {
  const question = questionOf(files, more);
  let answer = core.importFiles(question);
  if (answer === null) {
    await core.loadWhole();
    answer = core.importFiles(question);
  }
  if (answer === null || 'code' in answer) throw new Error(answer ? placed(answer) : 'The importers are not there.');
  return answer;
}

/** A trainer's own files: whether their job fits, what is missing of it, and what became of each of their keys. */
export class OometerImport extends LitElement {
  static override properties = {
    files: { attribute: false },
    core: { attribute: false },
    result: { attribute: false },
    setupOf: { attribute: false },
    gpus: { state: true },
    variables: { state: true },
    imported: { state: true },
    answer: { state: true },
    setup: { state: true },
    problem: { state: true },
    used: { state: true },
    compared: { state: true },
    changes: { state: true },
  };
  declare files: readonly SourceFile[];
  declare core: PageCore | null;
  /** The page's answer: its GPU is asked about. */
  declare result: Result | null;
  /** A job as settings; throws a sentence where these cannot express it. */
  declare setupOf: (job: Job) => Promise<Setup>;
  /** How many somebody said here; 0: as the files say. */
  declare private gpus: number;
  declare private variables: ReadonlyMap<string, string>;
  /** What the core made of the files, with the GPU of the page. */
  declare private imported: Imported | null;
  /** Null where there is no job to answer. */
  declare private answer: Answer | null;
  /** What the form would show, or why it cannot; null until it is known. */
  declare private setup: Setup | string | null;
  declare private problem: string;
  declare private used: boolean;
  /** Two trainings, where the files are such; the first of them is `imported`. */
  declare private compared: FileComparison | null;
  /** What helps in the files' words; null until somebody asks and it is known. */
  declare private changes: readonly FileChange[] | null;
  private readonly helper = new Helper();
  private turn = 0;
  private asked = '';

  constructor() {
    super();
    this.files = [];
    this.core = null;
    this.result = null;
    this.setupOf = () => Promise.resolve({ ...START });
    this.gpus = 0;
    this.variables = new Map();
    this.imported = null;
    this.answer = null;
    this.setup = null;
    this.problem = '';
    this.used = false;
    this.compared = null;
    this.changes = null;
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    this.helper.stop();
  }

  static override styles = [
    shared,
    fields,
    verdicts,
    css`
      section {
        max-width: 74rem;
        margin: 0.5rem 2rem 1rem;
        padding: 1rem 1.25rem;
        border: 1px solid var(--line-strong);
        border-radius: 10px;
        background: var(--surface-raised);
      }
      h2:focus {
        outline: none;
      }
      .verdict {
        margin: 0 0 0.75rem;
      }
      .verdict strong {
        font-size: 1.15rem;
      }
      .notice {
        margin: 0 0 0.75rem;
        padding: 0.5rem 0.8rem;
        border-left: 4px solid var(--tight);
        border-radius: 2px;
        background: var(--tight-soft);
        font-size: 0.9rem;
        overflow-wrap: break-word;
      }
      .notice.error {
        border-color: var(--over);
        background: var(--over-soft);
      }
      .notice > :last-child {
        margin-bottom: 0;
      }
      ul {
        margin: 0.25rem 0 0.5rem;
        padding-left: 1.2rem;
      }
      li {
        margin-bottom: 0.35rem;
      }
      .buttons {
        display: flex;
        flex-wrap: wrap;
        align-items: center;
        gap: 0.5rem;
        margin-bottom: 0.75rem;
      }
      .go {
        border-color: var(--accent);
        background: var(--accent);
        color: var(--accent-text);
        font-weight: 600;
      }
      label {
        display: flex;
        align-items: center;
        gap: 0.4rem;
        font-size: 0.8125rem;
      }
      label input:is([type='number'], [type='text']) {
        width: 5rem;
        height: 1.875rem;
      }
      label input[type='text'] {
        width: min(16rem, 60vw);
      }
      details {
        margin-top: 0.25rem;
      }
      .keys {
        margin: 0.25rem 0 0;
        font-size: 0.875rem;
      }
      @media (max-width: 60rem) {
        section {
          margin: 0.5rem 1rem;
          padding: 0.75rem;
        }
      }
    `,
  ];

  /** Whether what was given lacks this file. */
  wants(file: SourceFile): boolean {
    return this.imported?.missing.some((missing) => isWanted(file, missing)) ?? false;
  }

  protected override willUpdate(changed: PropertyValues<this>): void {
    if (!changed.has('files')) return;
    const names = new Set(this.files.map(({ name }) => name));
    const before = changed.get('files') ?? [];
    if (before.length > 0 && before.every(({ name }) => names.has(name))) return; // some more of the same
    this.gpus = 0;
    this.variables = new Map();
    this.imported = this.answer = this.setup = null;
    this.used = false;
    this.compared = this.changes = null;
  }

  protected override updated(changed: PropertyValues): void {
    const question = JSON.stringify([this.gpus, [...this.variables], this.result?.job.gpu]);
    if (!this.core || (question === this.asked && !changed.has('files'))) return;
    this.asked = question;
    void this.ask(this.core);
  }

  private async ask(core: PageCore): Promise<void> {
    const turn = ++this.turn;
    const isFirst = this.imported === null;
    try {
      const gpu = this.result?.job.gpu;
      const named = gpu?.name === undefined ? {} : { gpu: gpu.name };
      const files = withVariables(this.files, this.variables);
      const imported = await importFiles(core, files, { ...named, gpus: this.gpus });
      const job: Job = { ...imported.job, ...(gpu ? { gpu } : {}) };
      const hasJob = imported.refused === null && 'model' in job;
      const answer = hasJob ? await estimated(core, job) : null;
      if (turn !== this.turn) return;
      this.compared = this.compare(core, files, named);
      this.changes = null;
      this.imported = { ...imported, job };
      this.answer = answer;
      this.setup = null;
      this.problem = '';
      await this.updateComplete;
      if (isFirst) this.renderRoot.querySelector('h2')?.focus();
      if (!answer?.ok) return;
      const setup = await this.setupOf(job).catch(reason);
      if (turn === this.turn) this.setup = setup;
    } catch (error) {
      if (turn === this.turn) this.problem = reason(error);
    }
  }

  private compare(core: PageCore, files: readonly SourceFile[], more: { gpu?: string }): FileComparison | null {
    if (files.length < 2) return null;
    const json = core.compareFiles(questionOf(files, { ...more, gpus: this.gpus }));
    return json === null ? null : (readCompared(json)?.comparison ?? null);
  }

  private readonly help = async (event: Event): Promise<void> => {
    if (!(event.target as HTMLDetailsElement).open || this.changes !== null) return;
    const { turn } = this;
    try {
      const gpu = this.result?.job.gpu?.name;
      const files = withVariables(this.files, this.variables);
      const job = questionOf(files, { ...(gpu === undefined ? {} : { gpu }), gpus: this.gpus });
      const [json = '{}'] = await this.helper.ask({ ask: 'adviseFiles', job, variants: [{}] });
      if (turn === this.turn) this.changes = (JSON.parse(json) as { changes?: FileChange[] }).changes ?? [];
    } catch (error) {
      if (turn === this.turn) this.problem = reason(error);
    }
  };

  override render(): TemplateResult {
    const { imported, problem } = this;
    return html`<section aria-labelledby="title">
      <div class="heading">
        <h2 id="title" tabindex="-1">
          Your training${imported?.trainer ? html`, as ${imported.trainer} reads it` : nothing}
        </h2>
        <button @click=${this.close}>Close</button>
      </div>
      <p class="small soft">${this.files.map(({ name }) => name).join(', ')}</p>
      ${problem ? html`<p class="notice error" role="alert">${problem}</p>` : nothing}
      ${imported ? this.told(imported) : problem ? nothing : html`<p role="status">Reading …</p>`}
      <input type="file" multiple hidden @change=${this.add} />
    </section>`;
  }

  private told(imported: Imported): TemplateResult {
    if (this.compared) return sideBySide(this.compared);
    return html`${this.verdict(imported)} ${refused(imported)} ${this.missing(imported)} ${this.ways(imported)}
    ${
      this.answer?.ok
        ? html`<details @toggle=${this.help}>
            <summary id="in-words">What would help, in the file’s words</summary>
            ${inWords(this.changes)}
          </details>`
        : nothing
    }
    ${taken(imported, !this.used)} ${unmodelled(imported, !this.used)} ${ignored(imported)}`;
  }

  private verdict({ job, refused, missing }: Imported): TemplateResult | typeof nothing {
    const { answer } = this;
    if (refused) return nothing;
    if (!answer) return html`<p class="verdict" role="status"><strong>No answer yet.</strong></p>`;
    if (!answer.ok)
      return html`<p class="notice error" role="alert">The job of these files is refused: ${placed(answer.error)}</p>`;
    const words = verdict(answer.report, this.result?.gpu.name ?? answer.report.gpu.name ?? 'GPU', gpusOf(job));
    const isWhole = missing.every(({ kind }) => kind === 'gpus');
    return html`<p class="verdict" role="status">
      ${isWhole ? nothing : html`<span class="soft">Without what is missing:</span> `}<strong
        class=${answer.report.verdict}
        >${words.headline}:</strong
      >
      ${words.detail}
    </p>`;
  }

  private missing({ missing }: Imported): TemplateResult | typeof nothing {
    const asked = missing.filter((one) => !isVariable(one));
    const names = [...new Set([...this.variables.keys(), ...missing.filter(isVariable).map(({ name }) => name)])];
    if (asked.length === 0 && names.length === 0) return nothing;
    return html`<div class="notice" role="group" aria-labelledby="missing">
      <h3 id="missing">Missing</h3>
      <ul>
        ${asked.map((one) => html`<li>${this.missingOne(one)}</li>`)}
        ${names.map(
          (name) =>
            html`<li>
              <label
                ><code>${name}=</code
                ><input
                  type="text"
                  aria-label="The value of ${name}, which the script does not set"
                  .value=${this.variables.get(name) ?? ''}
                  @change=${(event: Event) => {
                    const { value } = event.target as HTMLInputElement;
                    const others = [...this.variables].filter(([other]) => other !== name);
                    this.variables = new Map(value === '' ? others : [...others, [name, value]]);
                  }}
              /></label>
            </li>`,
        )}
      </ul>
    </div>`;
  }

  private missingOne({ kind, name, key, text }: Missing): TemplateResult {
    if (kind === 'gpus') return html`${sentences(text.replace(' (--gpus)', ''))} Say it below.`;
    const isFile = kind === 'file' || kind === 'config.json';
    const what = kind === 'config.json' ? 'config.json' : name;
    return html`${key === '' ? nothing : html`<code>${breakable(key)}</code>: `}${
      name === '' || name === key ? nothing : html`<strong>${breakable(name)}</strong>, `
    }${text}.
    ${isFile ? html`<button @click=${this.choose}>Add ${what.replace(/^.*\//, '') || 'the file'} …</button>` : nothing}`;
  }

  private ways({ job, refused }: Imported): TemplateResult | typeof nothing {
    const { setup, answer } = this;
    if (refused || !answer) return nothing;
    const isSetup = setup !== null && typeof setup !== 'string';
    return html`<div class="buttons">
        ${
          isSetup
            ? html`<button
                class="go"
                @click=${() => {
                  this.used = true;
                  this.dispatchEvent(new CustomEvent<Setup>('use', { detail: setup }));
                }}
              >
                Use these settings
              </button>`
            : nothing
        }
        <oometer-copy label="Copy the job" .text=${() => JSON.stringify(job, null, 2)}></oometer-copy>
        <label
          >GPUs
          <input
            type="number"
            min="1"
            max="65536"
            .value=${String(this.gpus || gpusOf(job))}
            @change=${(event: Event) => {
              const count = Number((event.target as HTMLInputElement).value);
              this.gpus = Number.isInteger(count) && count > 0 ? count : 0;
            }}
        /></label>
      </div>
      ${typeof setup === 'string' ? html`<p class="small">${setup}</p>` : nothing}`;
  }

  private readonly choose = (): void => {
    this.renderRoot.querySelector<HTMLInputElement>('input[type=file]')?.click();
  };

  private readonly add = async (event: Event): Promise<void> => {
    const input = event.target as HTMLInputElement;
    const given = [...(input.files ?? [])];
    input.value = '';
    try {
      const files = (await Promise.all(given.map(identify))).flatMap((one) => {
        if ('run' in one || one.kind === 'model' || one.kind === 'other') return [one.file];
        throw new Error('That is none of the files that are missing.');
      });
      this.dispatchEvent(new CustomEvent<SourceFile[]>('add', { detail: files.map((file) => this.named(file)) }));
    } catch (error) {
      this.problem = reason(error);
    }
  };

  /** A file of another name than the one that is asked for is that one, where nothing else can be meant. */
  private named({ name, content }: SourceFile): SourceFile {
    const lacks = (this.imported?.missing ?? []).filter(({ kind }) => kind === 'file' || kind === 'config.json');
    const [only] = lacks;
    const isOther = lacks.length === 1 && only?.kind === 'file' && only.name !== '';
    return { name: isOther ? only.name : name, content };
  }

  private readonly close = (): void => {
    this.dispatchEvent(new CustomEvent('close'));
  };
}

const keyOf = (file: string, key: string, files: boolean): TemplateResult =>
  html`<code>${breakable(key)}</code>${files && file ? html` <span class="soft small">${file}</span>` : nothing}`;

const isOfSeveral = ({ taken }: Imported): boolean => new Set(taken.map(({ file }) => file).filter(Boolean)).size > 1;

function refused({ refused: why }: Imported): TemplateResult | typeof nothing {
  if (!why) return nothing;
  const { file, key, message, pointer } = why;
  return html`<p class="notice error" role="alert">
    <strong>Not supported.</strong> ${key === '' ? nothing : html`<code>${breakable(key)}</code>`}
    ${file === '' ? nothing : html`in ${file}`}${key === '' && file === '' ? nothing : ':'} ${sentences(message)}
    ${pointer === '' ? nothing : html`<span class="soft">(${nameOf(pointer)})</span>`}
  </p>`;
}

function taken(imported: Imported, isOpen: boolean): TemplateResult | typeof nothing {
  const { taken: rows } = imported;
  if (rows.length === 0) return nothing;
  const files = isOfSeveral(imported);
  return html`<details ?open=${isOpen}>
    <summary id="taken">Taken (${rows.length})</summary>
    <div class="scroll" tabindex="0" role="group" aria-labelledby="taken">
      <table aria-labelledby="taken">
        <thead>
          <tr>
            <th scope="col">Their key</th>
            <th scope="col">Our setting</th>
            <th scope="col">Value</th>
            <th scope="col">From</th>
          </tr>
        </thead>
        <tbody>
          ${rows.map(
            ({ file, key, pointer, value, from, source }) =>
              html`<tr>
                <th scope="row">${keyOf(file, key, files)}</th>
                <td><code>${breakable(nameOf(pointer))}</code></td>
                <td>${shortly(value)}</td>
                <td>${from === 'default' ? `default${source ? `: ${source}` : ''}` : `your file${source ? ` (${source})` : ''}`}</td>
              </tr>`,
          )}
        </tbody>
      </table>
    </div>
  </details>`;
}

function unmodelled(imported: Imported, isOpen: boolean): TemplateResult | typeof nothing {
  const rows = byEffect(imported.unmodelled);
  if (rows.length === 0) return nothing;
  return html`<details ?open=${isOpen}>
    <summary>Not modelled (${rows.length})</summary>
    <ul class="keys">
      ${rows.map(
        ({ file, key, value, text, effect, bytes }) =>
          html`<li>
            ${key === '' ? nothing : html`${keyOf(file, key, isOfSeveral(imported))}${shortly(value) === '' ? '' : ` = ${shortly(value)}`}: `}<strong>${EFFECTS[effect]}${bytes === null ? nothing : ` (${size(bytes)})`}</strong>:
            ${text}.
          </li>`,
      )}
    </ul>
  </details>`;
}

function ignored({ ignored: rows }: Imported): TemplateResult | typeof nothing {
  if (rows.length === 0) return nothing;
  return html`<details>
    <summary>No effect on memory (${rows.length})</summary>
    <p class="keys">${rows.map(({ key }, i) => html`${i === 0 ? nothing : ', '}<code>${breakable(key)}</code>`)}</p>
  </details>`;
}

customElements.define('oometer-import', OometerImport);
