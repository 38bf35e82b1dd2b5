import { css, html, LitElement, nothing, type TemplateResult } from 'lit';
import { verdict } from '../format/words';
import { change, fieldAt, field, START, toJob, unreadable, type FieldKey, type Setup } from '../state/fields';
import type { Job } from '../state/job.generated';
import { read, write } from '../state/permalink';
import { applyTheme, loadTheme, nextTheme, type Theme } from '../state/theme';
import { shared } from '../styles/shared';
import { loadCore } from '../wasm/core';
import type { Core } from '../wasm/wrap';
import type { JobError, Report } from '../wasm/report';
import type { OometerForm, Setting } from './form';
import './form';
import './holders';
import './phases';
import './tensors';
import './trust';
import './verdict';

/** Long enough that typing a number is one entry of the address, short enough that copying it is safe. */
const ADDRESS_DELAY = 250;
/** A screen reader is told of the result once the fingers rest. */
const ANNOUNCE_DELAY = 500;

/** An answer, with what it answers. */
interface Result {
  report: Report;
  milliseconds: number;
  gpu: string;
  count: number;
}

interface Trouble {
  /** The field it belongs to, or null where no field shows it. */
  key: FieldKey | null;
  message: string;
}

/** The whole page: settings on the left, the answer on the right, the setup in the address. */
export class OometerApp extends LitElement {
  static override properties = {
    setup: { state: true },
    core: { state: true },
    result: { state: true },
    trouble: { state: true },
    problems: { state: true },
    broken: { state: true },
    theme: { state: true },
    said: { state: true },
    copied: { state: true },
  };
  declare private setup: Setup;
  declare private core: Core | null;
  declare private result: Result | null;
  declare private trouble: Trouble | null;
  declare private problems: string[];
  declare private broken: string;
  declare private theme: Theme;
  declare private said: string;
  declare private copied: string;
  private addressTimer = 0;
  private announceTimer = 0;

  constructor() {
    super();
    const link = read(location.hash);
    this.setup = link.setup;
    this.problems = link.problems;
    this.core = null;
    this.result = null;
    this.trouble = null;
    this.broken = '';
    this.theme = loadTheme();
    this.said = '';
    this.copied = '';
  }

  static override styles = [
    shared,
    css`
      header {
        display: flex;
        flex-wrap: wrap;
        align-items: center;
        gap: 0.25rem 1rem;
        padding: 0.6rem 1.25rem;
        border-bottom: 1px solid var(--line);
      }
      h1 {
        margin: 0;
        font-size: 1.0625rem;
        letter-spacing: -0.01em;
      }
      header p {
        flex: 1;
        margin: 0;
        color: var(--text-soft);
        font-size: 0.875rem;
      }
      nav {
        display: flex;
        gap: 0.5rem;
      }
      main {
        display: grid;
        grid-template-columns: 21rem minmax(0, 1fr);
        grid-template-rows: auto 1fr;
        background: linear-gradient(to right, var(--surface-raised) 21rem, transparent 21rem);
      }
      .setup {
        grid-area: 1 / 1 / 3 / 2;
        position: sticky;
        top: 0;
        align-self: start;
        max-height: 100vh;
        overflow-y: auto;
        padding: 1.1rem 1.25rem 1.5rem;
        border-right: 1px solid var(--line);
        background: var(--surface-raised);
      }
      .answer {
        grid-area: 1 / 2;
        z-index: 1;
        padding: 1.1rem 2rem 0.5rem;
        background: var(--surface);
      }
      .details {
        grid-area: 2 / 2;
        display: grid;
        grid-template-columns: minmax(0, 1fr);
        align-content: start;
        gap: 2.25rem;
        min-width: 0;
        max-width: 78rem;
        padding: 1rem 2rem 3rem;
      }
      oometer-verdict {
        max-width: 74rem;
      }
      .notice {
        max-width: 74rem;
        margin-bottom: 0.9rem;
        padding: 0.6rem 0.9rem;
        border-left: 4px solid var(--tight);
        border-radius: 2px;
        background: var(--tight-soft);
        font-size: 0.9rem;
      }
      .notice.error {
        border-color: var(--over);
        background: var(--over-soft);
      }
      .notice > :last-child {
        margin-bottom: 0;
      }
      .notice ul {
        margin: 0.25rem 0 0.5rem;
        padding-left: 1.2rem;
      }
      .waiting {
        min-height: 7.5rem;
        color: var(--text-soft);
      }
      footer {
        padding: 1rem 1.25rem;
        border-top: 1px solid var(--line);
        color: var(--text-soft);
        font-size: 0.8125rem;
      }
      @media (min-height: 38rem) {
        .answer {
          position: sticky;
          top: 0;
          border-bottom: 1px solid var(--line);
        }
      }
      @media (max-width: 60rem) {
        header {
          padding: 0.5rem 1rem;
        }
        header p {
          order: 3;
          flex-basis: 100%;
        }
        h1 {
          flex: 1;
        }
        main {
          display: block;
          background: none;
        }
        .answer {
          padding: 0.75rem 1rem 0.25rem;
        }
        .setup {
          position: static;
          max-height: none;
          padding: 1rem;
          border: 0;
          border-bottom: 1px solid var(--line);
        }
        .details {
          padding: 1.25rem 1rem 2rem;
        }
      }
      @media print {
        nav,
        .setup {
          display: none;
        }
        main {
          display: block;
        }
        .answer {
          position: static;
        }
      }
    `,
  ];

  /** The job that the settings stand for; null until the core is there. */
  get job(): Job | null {
    const preset = this.core?.catalogue.models.find(({ id }) => id === this.setup.model);
    return preset ? toJob(this.setup, preset) : null;
  }

  /** The core's whole answer to it, as the core wrote it. */
  get report(): string | null {
    const { core, job } = this;
    return core && job ? core.raw(job) : null;
  }

  override connectedCallback(): void {
    super.connectedCallback();
    applyTheme(this.theme);
    addEventListener('hashchange', this.followAddress);
    addEventListener('popstate', this.followAddress);
    void this.start();
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    removeEventListener('hashchange', this.followAddress);
    removeEventListener('popstate', this.followAddress);
  }

  private async start(): Promise<void> {
    try {
      this.core = await loadCore();
      performance.mark('oometer-core-loaded');
    } catch (error) {
      this.broken = error instanceof Error ? error.message : String(error);
      return;
    }
    // Only now is it known which models and GPUs a link may name.
    this.openLink();
    await this.updateComplete;
    performance.mark('oometer-first-answer');
  }

  private openLink(): void {
    const catalogue = this.core?.catalogue;
    const link = read(location.hash, {
      ...(catalogue ? { model: catalogue.models.map(({ id }) => id), gpu: catalogue.gpus.map(({ id }) => id) } : {}),
    });
    this.setup = link.setup;
    this.problems = link.problems;
    this.compute();
  }

  private readonly followAddress = (): void => {
    if (location.hash !== write(this.setup)) this.openLink();
  };

  private setting({ key, value }: Setting): void {
    this.setup = change(this.setup, key, value, this.core?.catalogue.models ?? []);
    this.problems = [];
    this.compute();
    clearTimeout(this.addressTimer);
    // A new model is a step that the browser's back button should undo; a typed digit is not.
    if (key === 'model') history.pushState(null, '', this.address());
    else
      this.addressTimer = window.setTimeout(() => {
        this.writeAddress();
      }, ADDRESS_DELAY);
  }

  private address(): string {
    return location.pathname + location.search + write(this.setup);
  }

  private writeAddress(): void {
    clearTimeout(this.addressTimer);
    history.replaceState(null, '', this.address());
  }

  private compute(): void {
    const { core, setup } = this;
    if (!core) return;
    const preset = core.catalogue.models.find(({ id }) => id === setup.model);
    const gpu = core.catalogue.gpus.find(({ id }) => id === setup.gpu);
    if (!preset || !gpu) return;
    const illegible = unreadable(setup, preset);
    if (illegible) {
      this.trouble = { key: illegible.field.key, message: illegible.message };
    } else {
      const answer = core.estimate(toJob(setup, preset));
      if (answer.ok) {
        this.trouble = null;
        this.result = {
          report: answer.report,
          milliseconds: answer.milliseconds,
          gpu: gpu.name,
          count: Number(setup.gpus),
        };
      } else {
        this.trouble = trouble(answer.error);
      }
    }
    this.announce();
  }

  /** The answer or the error, as one sentence. */
  private sentence(): string {
    if (this.trouble) {
      const { key, message } = this.trouble;
      return key === null ? message : `${field(key).label}: ${message}`;
    }
    if (!this.result) return '';
    const words = verdict(this.result.report, this.result.gpu, this.result.count);
    return `${words.headline}: ${words.detail}`;
  }

  private announce(): void {
    clearTimeout(this.announceTimer);
    this.announceTimer = window.setTimeout(() => {
      this.said = this.sentence();
      if (this.result && !this.trouble) {
        document.title = `${verdict(this.result.report, this.result.gpu, this.result.count).headline} – oometer`;
      }
    }, ANNOUNCE_DELAY);
  }

  override render(): TemplateResult {
    const { result, trouble } = this;
    return html`
      <header>
        <h1>oometer</h1>
        <p>Will this training run fit on that GPU?</p>
        <nav aria-label="Page">
          <button @click=${this.copyLink}>${this.copied || 'Copy link'}</button>
          <button @click=${this.switchTheme}>Theme: ${this.theme}</button>
        </nav>
      </header>
      <main>
        <div class="answer">
          ${this.notices()}
          ${
            result
              ? html`<oometer-verdict
                  .report=${result.report}
                  .gpu=${result.gpu}
                  .count=${result.count}
                  .stale=${trouble !== null}
                ></oometer-verdict>`
              : html`<p class="waiting">${trouble || this.broken ? nothing : 'Computing the example …'}</p>`
          }
        </div>
        <section class="setup" aria-label="Settings">
          <oometer-form
            .setup=${this.setup}
            .catalogue=${this.core?.catalogue ?? null}
            .errors=${trouble?.key ? { [trouble.key]: trouble.message } : {}}
            @setting=${(event: CustomEvent<Setting>) => {
              this.setting(event.detail);
            }}
          ></oometer-form>
        </section>
        ${
          result
            ? html`<div class="details">
                <oometer-holders .report=${result.report}></oometer-holders>
                <oometer-phases .report=${result.report}></oometer-phases>
                <oometer-tensors .report=${result.report}></oometer-tensors>
                <oometer-trust .report=${result.report} .milliseconds=${result.milliseconds}></oometer-trust>
              </div>`
            : nothing
        }
      </main>
      <footer>Everything is computed in this tab. Nothing is sent anywhere, nothing is stored.</footer>
      <div role="status" class="hidden">${this.said}</div>
    `;
  }

  private notices(): TemplateResult {
    const { trouble, problems } = this;
    return html`
      ${
        this.broken
          ? html`<div class="notice error">
              <p>
                The calculator could not be loaded (${this.broken}). It needs a browser with WebAssembly, and the file
                oometer.wasm beside this page.
                <button
                  @click=${() => {
                    location.reload();
                  }}
                >
                  Try again
                </button>
              </p>
            </div>`
          : nothing
      }
      ${
        problems.length > 0
          ? html`<div class="notice" role="alert">
              <p>This link could not be read completely; the rest of it is shown.</p>
              <ul>
                ${problems.slice(0, 8).map((problem) => html`<li>${problem}</li>`)}
              </ul>
              <button @click=${this.startAgain}>Start from the example</button>
            </div>`
          : nothing
      }
      ${
        trouble
          ? html`<div class="notice error" id="trouble">
              <p>
                No answer for these settings.
                ${
                  trouble.key
                    ? html`<strong>${field(trouble.key).label}:</strong> ${trouble.message}
                        <button
                          @click=${() => {
                            this.reveal(trouble.key);
                          }}
                        >
                          Go to the field
                        </button>`
                    : html`${trouble.message} <button @click=${this.startAgain}>Start from the example</button>`
                }
                ${this.result ? html`<br /><span class="soft">Below is the last answer.</span>` : nothing}
              </p>
            </div>`
          : nothing
      }
    `;
  }

  private reveal(key: FieldKey | null): void {
    if (key) this.renderRoot.querySelector<OometerForm>('oometer-form')?.reveal(key);
  }

  private readonly startAgain = (): void => {
    this.setup = { ...START };
    this.problems = [];
    history.pushState(null, '', this.address());
    this.compute();
  };

  private readonly switchTheme = (): void => {
    this.theme = nextTheme(this.theme, matchMedia('(prefers-color-scheme: dark)').matches);
    applyTheme(this.theme);
  };

  private readonly copyLink = async (): Promise<void> => {
    this.writeAddress();
    try {
      await navigator.clipboard.writeText(location.href);
      this.copied = 'Link copied';
    } catch {
      this.copied = 'Copy it from the address bar';
    }
    this.said = this.copied;
    setTimeout(() => (this.copied = ''), 2000);
  };
}

function trouble(error: JobError): Trouble {
  const owner = fieldAt(error.pointer);
  return { key: owner?.key ?? null, message: owner ? error.message : `${error.message} (${error.pointer})` };
}

customElements.define('oometer-app', OometerApp);
