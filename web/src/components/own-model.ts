import { css, html, LitElement, nothing, type TemplateResult } from 'lit';
import { readConfig, textOf, type OwnModel } from '../state/model';
import { readRun, type RunFile } from '../state/runfile';
import { fields, shared } from '../styles/shared';

/**
 * Asks for a config.json, or for the file of DeepSpeed or accelerate: pasted, chosen or dropped. Several models stand side
 * by side.
 */
export class OometerOwnModel extends LitElement {
  static override properties = { judge: { attribute: false }, problem: { state: true } };
  /** What is wrong with a model; "" where nothing is. */
  declare judge: (own: OwnModel) => string;
  declare private problem: string;

  constructor() {
    super();
    this.judge = () => '';
    this.problem = '';
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
        <h2 id="title">Your own configuration</h2>
        <p class="small soft">
          A Hugging Face <code>config.json</code> of a supported architecture, a DeepSpeed <code>ds_config.json</code>,
          or what <code>accelerate config</code> wrote. It stays in this tab. Several models are compared side by side.
          Files may also be dropped anywhere on the page, and a text be pasted.
        </p>
        <label for="text">config.json</label>
        <textarea
          id="text"
          spellcheck="false"
          aria-describedby="problem"
          placeholder='{ "model_type": "llama", … }'
        ></textarea>
        <p class="error" id="problem" role="alert" ?hidden=${this.problem === ''}>${this.problem || nothing}</p>
        <div class="buttons">
          <button class="first" @click=${this.choose}>Choose files …</button>
          <button @click=${this.close}>Cancel</button>
          <button class="go" @click=${this.usePasted}>Use it</button>
        </div>
        <input
          type="file"
          name="files"
          accept=".json,.yaml,.yml,application/json"
          multiple
          hidden
          @change=${this.useChosen}
        />
      </dialog>
    `;
  }

  show(problem = ''): void {
    this.problem = problem;
    this.dialog()?.showModal();
  }

  /** Takes dropped or chosen files; what is wrong with one is said in the dialog. */
  async take(files: readonly File[]): Promise<void> {
    try {
      const texts = await Promise.all(files.map(textOf));
      this.give(texts.map((text, i) => this.read(text, files[i]?.name)));
    } catch (error) {
      const problem = error instanceof Error ? error.message : String(error);
      if (this.dialog()?.open) this.problem = problem;
      else this.show(problem);
    }
  }

  /** Throws what is wrong with it, for the person who gave it. */
  private read(text: string, file?: string): OwnModel | RunFile {
    const run = readRun(text);
    if (run) return run;
    const model = readConfig(text, file);
    const wrong = this.judge(model);
    if (wrong) throw new Error(wrong);
    return model;
  }

  private give(all: (OwnModel | RunFile)[]): void {
    const models = all.filter((one) => 'name' in one);
    const runs = all.filter((one) => 'kind' in one);
    if (models.length > 0) this.dispatchEvent(new CustomEvent<OwnModel[]>('models', { detail: models }));
    const [run] = runs;
    if (run) this.dispatchEvent(new CustomEvent<RunFile>('runfile', { detail: run }));
    this.close();
  }

  private readonly usePasted = (): void => {
    try {
      const text = this.textarea()?.value ?? '';
      this.give([this.read(text)]);
    } catch (error) {
      this.problem = error instanceof Error ? error.message : String(error);
    }
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

customElements.define('oometer-own-model', OometerOwnModel);
