import { css, html, LitElement, nothing, type TemplateResult } from 'lit';
import { reason, sentences } from '../format/reason';
import { infers, number, START, type Setup } from '../state/fields';
import type { Dropped, TextFile } from '../state/dropped';
import type { Job } from '../state/job.generated';
import { isObject } from '../state/json';
import { readConfig, type OwnModel } from '../state/model';
import { isBraced, pastedName } from '../state/pasted';
import { packLengths, readLengths } from '../state/lengths';
import type { RunFile } from '../state/runfile';
import { unsupported, type Unsupported } from '../state/unsupported';
import { placed, type Result } from '../wasm/ask';
import type { PageCore } from '../wasm/core';
import type { SourceFile } from '../wasm/imported';
import type { JobError } from '../wasm/report';
import type { OometerImport } from './import';
import './copy';
import { fields, shared } from '../styles/shared';

/** How long one's samples are, packed. */
export type Lengths = Pick<Setup, 'histogram'>;

/** What a graph file is of, where nobody knows the model yet. */
const MODULE = 'python export_graph.py torchvision.models:resnet50 --input 3x224x224 -o model.json';
const config = ({ seq }: Setup): string =>
  `python export_graph.py --hf config.json --task causal-lm --sequence-length ${number(seq) || 2048} -o model.json`;

/**
 * Asks for a config.json, a graph of operators, a trainer's own files, or for the file of DeepSpeed or accelerate: pasted, chosen or dropped.
 * Several models stand side by side; what a trainer's files say stands where this element does.
 */
export class OometerOwnModel extends LitElement {
  static override properties = {
    judge: { attribute: false },
    setup: { attribute: false },
    core: { attribute: false },
    result: { attribute: false },
    setupOf: { attribute: false },
    imported: { state: true },
    problem: { state: true },
    unknown: { state: true },
    snapshot: { state: true },
  };
  /** What is wrong with a model; null where nothing is. */
  declare judge: (own: OwnModel) => Promise<JobError | null>;
  /** The page's settings, to which a graph has to be written. */
  declare setup: Setup;
  declare core: PageCore | null;
  /** The page's answer: its GPU is the one that is asked about. */
  declare result: Result | null;
  /** A job as settings; throws a sentence where these cannot express it. */
  declare setupOf: (job: Job) => Promise<Setup>;
  /** A trainer's files, one of each name. */
  declare private imported: readonly SourceFile[];
  declare private problem: string;
  /** A model that is not supported, and the ways on. */
  declare private unknown: Unsupported | null;
  /** A memory snapshot, which another page reads. */
  declare private snapshot: File | null;

  constructor() {
    super();
    this.judge = () => Promise.resolve(null);
    this.setup = { ...START };
    this.core = null;
    this.result = null;
    this.setupOf = () => Promise.resolve({ ...START });
    this.imported = [];
    this.snapshot = null;
    this.problem = '';
    this.unknown = null;
  }

  static override styles = [
    shared,
    fields,
    css`
      dialog {
        width: min(40rem, calc(100vw - 2rem));
        padding: 1.25rem;
        border: 1px solid var(--line-strong);
        border-radius: 10px;
        background: var(--surface);
        color: var(--text);
      }
      dialog::backdrop {
        background: rgb(0 0 0 / 40%);
      }
      label {
        font-size: 0.8125rem;
        font-weight: 600;
      }
      .graph {
        margin-bottom: 0.75rem;
        font-size: 0.875rem;
      }
      .graph ol {
        margin: 0.25rem 0 0;
        padding-left: 1.25rem;
      }
      .graph li {
        margin-bottom: 0.5rem;
      }
      .graph pre {
        margin: 0.35rem 0;
        padding: 0.5rem 0.6rem;
        white-space: pre-wrap;
        border-radius: var(--radius);
        background: var(--surface-raised);
        font-size: 0.8125rem;
      }
      textarea {
        display: block;
        height: 14rem;
        margin: 0.25rem 0 0.75rem;
        padding: 0.5rem;
        font: 0.8125rem/1.4 var(--mono);
        resize: vertical;
      }
      .buttons {
        display: flex;
        flex-wrap: wrap;
        gap: 0.5rem;
        justify-content: flex-end;
      }
      .buttons .first {
        margin-right: auto;
      }
      .go {
        border-color: var(--accent);
        background: var(--accent);
        color: var(--accent-text);
      }
      .error {
        color: var(--over);
        font-size: 0.875rem;
      }
    `,
  ];

  override render(): TemplateResult {
    return html`
      <dialog aria-labelledby="title" @close=${this.clear}>
        <h2 id="title">Your own model or configuration</h2>
        <p class="small soft">
          What starts your training: the YAML of LLaMA-Factory, Axolotl, ms-swift, TRL or NeMo Automodel,
          <code>TrainingArguments</code> as JSON, or a launch script, with the files that it names. Or a Hugging Face
          <code>config.json</code> of a supported architecture, any other PyTorch model as a graph file (below), a
          DeepSpeed <code>ds_config.json</code>, what <code>accelerate config</code> wrote, a job of the command, the
          lengths of your samples, or a memory snapshot. It stays in this tab. Several models are compared side by side.
          Files may also be dropped anywhere on the page, and a text be pasted.
        </p>
        <details class="graph">
          <summary>Any other PyTorch model: how to write its graph file</summary>
          <ol class="small">
            <li>
              <a href="./export_graph.py" download>Download export_graph.py</a>, one file that needs PyTorch 2.2 or
              later, for <code>--hf</code> transformers, and no GPU.
            </li>
            <li>
              For a class of transformers, run it beside its <code>config.json</code>: ${copied(config(this.setup))} For
              any other module, name what makes it and the shape of one sample: ${copied(MODULE)}
            </li>
            <li>Drop <code>model.json</code> here. It holds names and shapes, no weights.</li>
          </ol>
        </details>
        <label for="text">The text of config.json, or of another of these files</label>
        <textarea
          id="text"
          spellcheck="false"
          aria-describedby="problem"
          placeholder='{ "model_type": "llama", … }'
        ></textarea>
        <p class="error" id="problem" role="alert" ?hidden=${this.problem === ''}>${this.problem || nothing}</p>
        ${this.unknown ? this.ways(this.unknown) : nothing}
        ${
          this.snapshot
            ? html`<p class="small">
                That is a memory snapshot of PyTorch.
                <button class="go" @click=${this.compare}>Compare it with these settings</button>
              </p>`
            : nothing
        }
        <div class="buttons">
          <button class="first" @click=${this.choose}>Choose files …</button>
          <button @click=${this.close}>Cancel</button>
          <button class="go" @click=${this.usePasted}>Use it</button>
        </div>
        <input
          type="file"
          name="files"
          accept=".json,.yaml,.yml,.sh,.bash,.txt,.pickle,application/json"
          multiple
          hidden
          @change=${this.useChosen}
        />
      </dialog>
      ${
        this.imported.length === 0
          ? nothing
          : html`<oometer-import
              .files=${this.imported}
              .core=${this.core}
              .result=${this.result}
              .setupOf=${this.setupOf}
              @use=${({ detail }: CustomEvent<Setup>) => {
                this.use(detail);
              }}
              @add=${({ detail }: CustomEvent<SourceFile[]>) => {
                this.imported = withFiles(this.imported, detail);
              }}
              @close=${() => {
                this.imported = [];
              }}
            ></oometer-import>`
      }
    `;
  }

  /** What to do with a model that is not supported: first what is quick, then what is exact. */
  private ways({ command, alike, known }: Unsupported): TemplateResult {
    return html`<div class="graph">
      <ol class="small">
        ${
          alike
            ? html`<li>
                For a first idea, take Llama with its sizes: the figures are Llama’s, near but not exact.
                <p>
                  <button
                    @click=${() => {
                      this.give([alike]);
                    }}
                  >
                    Use Llama with its sizes
                  </button>
                </p>
              </li>`
            : nothing
        }
        <li>
          ${alike ? 'For exact figures, export' : 'Export'} it as a graph. This needs PyTorch and transformers, but no
          GPU and no weights. <a href="./export_graph.py" download>Download export_graph.py</a>, put it beside
          <code>config.json</code>, and run ${copied(command)} Then drop the file here.
        </li>
      </ol>
      <details>
        <summary>What is supported</summary>
        <p class="small">${known.join(', ')}.</p>
      </details>
    </div>`;
  }

  show(problem = '', unknown: Unsupported | null = null): void {
    this.problem = problem;
    this.unknown = unknown;
    if (!this.dialog()?.open) this.dialog()?.showModal();
  }

  /** Takes dropped or chosen files of any kind; what is wrong with one is said in the dialog. */
  async take(files: readonly File[]): Promise<void> {
    try {
      const { identify } = await import('./later');
      const dropped = await Promise.all(files.map(identify));
      if (await this.takeTrainers(dropped)) return;
      const models: (OwnModel | RunFile | Lengths)[] = [];
      for (const one of dropped) {
        if (one.kind === 'job') this.use(await this.setupOf(one.job));
        else if (one.kind === 'snapshot') this.snapshot = one.file;
        else if (one.kind === 'lengths') models.push({ histogram: packLengths(readLengths(one.text)) });
        else models.push(one.kind === 'run' ? one.run : await this.read(one.file));
      }
      if (models.length > 0 || !this.snapshot) this.give(models);
      else this.show();
    } catch (error) {
      this.tell(error);
    }
  }

  /**
   * Takes a trainer's files with those that they name, and what an earlier one still lacks. False where there is none among them; throws a
   * sentence where one means to be.
   */
  private async takeTrainers(dropped: readonly Dropped[]): Promise<boolean> {
    const texts = dropped.flatMap((one) => ('run' in one || one.kind === 'model' || one.kind === 'other' ? [one] : []));
    const files = texts.map(({ file }) => file);
    const others = texts.flatMap((one) => (one.kind === 'other' && mayBeTrainers(one.file) ? [one.file] : []));
    const shown = this.renderRoot.querySelector<OometerImport>('oometer-import');
    const wanted = shown && files.length > 0 && files.every((file) => shown.wants(file));
    if ((others.length === 0 && !wanted) || !this.core) return false;
    if (wanted) this.imported = withFiles(this.imported, files);
    else {
      const { importFiles } = await import('./import');
      const answer = await importFiles(this.core, files);
      const isNone = answer.trainer === '' && answer.refused;
      if (isNone && others.every(({ content }) => isObject(content))) return false; // the reader of models says more
      if (isNone) throw new Error(`${others[0]?.name ?? ''}: ${sentences(answer.refused?.message ?? '')}`);
      this.imported = withFiles([], files);
    }
    this.close();
    return true;
  }

  private tell(error: unknown): void {
    const unknown = error instanceof NotSupported ? error.what : null;
    this.show(reason(error), unknown);
  }

  /** The comparing page asks for the file once it is open. */
  private readonly compare = (): void => {
    const { snapshot } = this;
    const page = open(`./compare.html${location.hash}`);
    addEventListener('message', ({ source, origin, data }: MessageEvent) => {
      if (source === page && origin === location.origin && data === 'snapshot?') page?.postMessage({ snapshot });
    });
    this.close();
  };

  /** Throws what is wrong with it, for the person who gave it. */
  private async read({ text, name }: TextFile): Promise<OwnModel> {
    const model = readConfig(text, name);
    const wrong = await this.judge(model);
    if (!wrong) return model;
    const { setup } = this;
    const unknown = unsupported(wrong, model, { tokens: setup.seq, infers: infers(setup) });
    throw unknown ? new NotSupported(unknown) : new Error(placed(wrong));
  }

  private use(setup: Setup): void {
    this.dispatchEvent(new CustomEvent<Setup>('use', { detail: setup }));
  }

  private give(all: (OwnModel | RunFile | Lengths)[]): void {
    const models = all.filter((one) => 'name' in one);
    const runs = all.filter((one) => 'kind' in one);
    if (models.length > 0) this.dispatchEvent(new CustomEvent<OwnModel[]>('models', { detail: models }));
    const [run] = runs;
    if (run) this.dispatchEvent(new CustomEvent<RunFile>('runfile', { detail: run }));
    const [lengths] = all.filter((one) => 'histogram' in one);
    if (lengths) this.dispatchEvent(new CustomEvent<Lengths>('lengths', { detail: lengths }));
    this.close();
  }

  private readonly usePasted = async (): Promise<void> => {
    const text = this.textarea()?.value ?? '';
    await this.take([new File([text], pastedName(text))]);
  };

  private readonly choose = (): void => {
    this.renderRoot.querySelector<HTMLInputElement>('input[type=file]')?.click();
  };

  private readonly useChosen = (event: Event): void => {
    const input = event.target as HTMLInputElement;
    void this.take([...(input.files ?? [])]);
    input.value = ''; // choosing the same file again is a change again
  };

  private readonly clear = (): void => {
    this.problem = '';
    this.unknown = null;
    this.snapshot = null;
    const textarea = this.textarea();
    if (textarea) textarea.value = '';
  };

  private readonly close = (): void => {
    this.dialog()?.close();
  };

  private dialog(): HTMLDialogElement | null {
    return this.renderRoot.querySelector('dialog');
  }

  private textarea(): HTMLTextAreaElement | null {
    return this.renderRoot.querySelector('textarea');
  }
}

/** What is no JSON is a script at best. */
const mayBeTrainers = ({ content, text }: TextFile): boolean => isObject(content) || !isBraced(text);

/** One of each name, the later one. */
const withFiles = (files: readonly SourceFile[], more: readonly SourceFile[]): SourceFile[] => [
  ...new Map([...files, ...more].map(({ name, content }) => [name, { name, content }])).values(),
];

class NotSupported extends Error {
  constructor(readonly what: Unsupported) {
    super(what.sentence);
  }
}

const copied = (command: string): TemplateResult =>
  html`<pre tabindex="0" role="group" aria-label="Command"><code>${command}</code></pre>
    <oometer-copy label="Copy the command" .text=${() => command}></oometer-copy>`;

customElements.define('oometer-own-model', OometerOwnModel);
