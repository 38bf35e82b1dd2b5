import { css, html, LitElement, nothing, type TemplateResult } from 'lit';
import { reason } from '../format/reason';
import { readConfig, textOf, type OwnModel } from '../state/model';
import { readRun, type RunFile } from '../state/runfile';
import './copy';
import { fields, shared } from '../styles/shared';

const COMMAND = 'python export_graph.py torchvision.models:resnet50 --input 3x224x224 -o model.json';

/**
 * Asks for a config.json, a graph of operators, or for the file of DeepSpeed or accelerate: pasted, chosen or dropped. Several models stand side
 * by side.
 */
export class OometerOwnModel extends LitElement {
  static override properties = { judge: { attribute: false }, problem: { state: true } };
  /** What is wrong with a model; "" where nothing is. */
  declare judge: (own: OwnModel) => Promise<string>;
  declare private problem: string;

  constructor() {
    super();
    this.judge = () => Promise.resolve('');
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
          A Hugging Face <code>config.json</code> of a supported architecture, any other PyTorch model as a graph file
          (below), a DeepSpeed <code>ds_config.json</code>, or what <code>accelerate config</code> wrote. It stays in
          this tab. Several models are compared side by side. Files may also be dropped anywhere on the page, and a text
          be pasted.
        </p>
        <details class="graph">
          <summary>Any other PyTorch model: how to write its graph file</summary>
          <ol class="small">
            <li>
              <a href="./export_graph.py" download>Download export_graph.py</a>, one file that needs PyTorch 2.2 or
              later and no GPU.
            </li>
            <li>
              Run it with what makes your model, and the shape of one sample:
              <pre tabindex="0" role="group" aria-label="Command"><code>${COMMAND}</code></pre>
              <oometer-copy label="Copy the command" .text=${() => COMMAND}></oometer-copy>
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
      this.give(await Promise.all(files.map(async (file) => this.read(await textOf(file), file.name))));
    } catch (error) {
      const problem = reason(error);
      if (this.dialog()?.open) this.problem = problem;
      else this.show(problem);
    }
  }

  /** Throws what is wrong with it, for the person who gave it. */
  private async read(text: string, file?: string): Promise<OwnModel | RunFile> {
    const run = readRun(text);
    if (run) return run;
    const model = readConfig(text, file);
    const wrong = await this.judge(model);
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

  private readonly usePasted = async (): Promise<void> => {
    try {
      const text = this.textarea()?.value ?? '';
      this.give([await this.read(text)]);
    } catch (error) {
      this.problem = reason(error);
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
