import { html, LitElement, nothing, type TemplateResult } from 'lit';
import { reason } from '../format/reason';
import { gib } from '../format/bytes';
import { change, verdict } from '../format/words';
import { adopt, change as changed } from '../state/adopt';
import { field, START, type Setup } from '../state/fields';
import type { Fix } from '../state/fixes';
import { ownOf } from '../state/hub';
import type { Job } from '../state/job.generated';
import { Library } from '../state/library';
import type { OwnModel } from '../state/model';
import { MOST_PINS, read, write } from '../state/permalink';
import { withRun, type RunFile } from '../state/runfile';
import { UNKNOWN } from '../state/traits';
import type { Effects } from '../state/effects';
import { applyTheme, loadTheme, nextTheme, type Theme } from '../state/theme';
import { shared } from '../styles/shared';
import { ask, estimated, isTrouble, refusal, type Result, type Trouble } from '../wasm/ask';
import { loadCore, type PageCore } from '../wasm/core';
import { follow } from '../wasm/follow';
import { Advisor } from './advisor';
import { appStyles } from './app-styles';
import type { Column } from './compare';
import type { details } from './details';
import { Drops } from './drops';
import { Explorer } from './explorer';
import type { Listed, OometerForm, Setting } from './form';
import { notices } from './notices';
import type { Lengths, OometerOwnModel } from './own-model';
import './copy';
import './form';
import './verdict';

/** Long enough that typing a number is one entry of the address, short enough that copying it is safe. */
const ADDRESS_DELAY = 250;
/** A screen reader is told of the result once the fingers rest. */
const ANNOUNCE_DELAY = 500;
/** What would give refused settings an answer is looked for then, too. */
const REST = 150;
/** The form is drawn without an answer only where the core is late: drawn twice, it would hold the answer up. */
const PATIENCE = 150;
/** Of a job's places in a sentence. */
const LONGEST_LIST = 200;

/** The whole page: settings on the left, the answer on the right, the setup in the address. */
export class OometerApp extends LitElement {
  static override properties = {
    setup: { state: true },
    pins: { state: true },
    core: { state: true },
    result: { state: true },
    detailed: { state: true },
    trouble: { state: true },
    problems: { state: true },
    broken: { state: true },
    theme: { state: true },
    said: { state: true },
    former: { state: true },
  };
  declare setup: Setup;
  declare pins: Setup[];
  declare core: PageCore | null;
  /** The latest answer; `detailed` follows a frame later with the pictures, which must not hold an edit up. */
  declare result: Result | null;
  declare private detailed: Result | null;
  declare private trouble: Trouble | null;
  declare private problems: string[];
  declare private broken: string;
  declare private theme: Theme;
  declare private said: string;
  /** The settings before a found change was applied, until the next edit. */
  declare private former: Setup | null;
  /** How several GPUs last shared the work. */
  private strategy = START.parallel;
  /** What was worked out last. */
  private fixed: { of: Trouble; fixes: Fix[] } | null = null;
  /** What is loaded after the first answer. */
  private later: typeof import('./later') | null = null;
  private library = new Library([], () => Promise.resolve(UNKNOWN));
  private readonly explorer = new Explorer(this);
  readonly advisor = new Advisor(this, (was, is) => {
    if (this.result !== was) return;
    if (this.detailed === was) this.detailed = is;
    this.result = is;
    this.announce();
  });
  private readonly drops = new Drops(this, (files) => void this.withDialog((dialog) => void dialog.take(files)));
  /** What stands below the answer, once it is loaded. */
  private details: typeof details | null = null;
  private readonly pinned = new Map<string, Result | Trouble>();
  private addressTimer = 0;
  private announceTimer = 0;
  private exploreTimer = 0;
  private opening = 0;
  private patient = true;

  constructor() {
    super();
    const link = read(location.hash);
    this.setup = link.setup;
    this.pins = [];
    this.problems = [];
    this.core = null;
    this.result = null;
    this.detailed = null;
    this.trouble = null;
    this.broken = '';
    this.theme = loadTheme();
    this.said = '';
    this.former = null;
  }

  static override styles = [shared, appStyles];

  /** The job that the settings stand for; null where they stand for none. */
  get job(): Job | null {
    return this.trouble ? null : (this.result?.job ?? null);
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
    performance.mark('oometer-script');
    const patience = setTimeout(this.draw, PATIENCE);
    try {
      this.core = await loadCore();
      performance.mark('oometer-core-loaded');
      this.library = new Library(this.core.catalogue.models, this.core.traits);
      // Only now is it known which models and GPUs a link may name.
      await this.openLink();
    } catch (error) {
      this.fail(error);
    }
    clearTimeout(patience);
    this.draw();
    await this.updateComplete;
    if (this.broken) return;
    performance.mark('oometer-first-answer');
    this.dispatchEvent(new CustomEvent('ready'));
  }

  private readonly fail = (error: unknown): void => {
    this.broken = reason(error);
  };

  private readonly draw = (): void => {
    this.patient = false;
    this.requestUpdate();
  };

  protected override shouldUpdate(): boolean {
    return !this.patient;
  }

  private async openLink(): Promise<void> {
    if (!this.core) return;
    const turn = ++this.opening;
    const link = await follow(this.core, this.library, location.hash);
    if (turn !== this.opening) return; // the address has changed meanwhile
    this.former = null;
    this.take(link.setup);
    this.pins = link.pins;
    this.problems = link.problems;
    this.compute();
  }

  private take(setup: Setup): void {
    this.setup = setup;
    if (setup.parallel !== 'none') this.strategy = setup.parallel;
  }

  private readonly followAddress = (): void => {
    if (location.hash !== write(this.setup, this.pins)) this.openLink().catch(this.fail);
  };

  private setting({ key, value: text }: Setting): void {
    const named = key === 'model' ? this.later?.hub.find(({ id }) => id === text) : undefined;
    if (named?.config) {
      void this.useOwn([ownOf(named)]);
      return;
    }
    const value = named?.preset ?? text;
    // A new model is a step that the browser's back button should undo; a typed digit is not.
    this.show(
      changed(this.setup, key, value, this.library.presets, this.library.find(this.setup), this.strategy),
      this.pins,
      key === 'model',
    );
  }

  /** Another setup, or other pins, in the page and in its address. */
  show(setup: Setup, pins: readonly Setup[], step: boolean): void {
    if (step && this.addressTimer) this.writeAddress(); // what the back button leads to
    this.opening++;
    this.former = null;
    this.take(setup);
    this.pins = [...pins];
    this.problems = [];
    this.compute();
    clearTimeout(this.addressTimer);
    if (step) history.pushState(null, '', this.address());
    else this.addressTimer = window.setTimeout(this.writeAddress, ADDRESS_DELAY);
  }

  private address(setup = this.setup): string {
    return location.pathname + location.search + write(setup, this.pins);
  }

  private readonly writeAddress = (): void => {
    clearTimeout(this.addressTimer);
    this.addressTimer = 0;
    history.replaceState(null, '', this.address());
  };

  /** `missing` says why the whole core is not to be had, if that was tried. */
  private compute(missing = ''): void {
    const { core } = this;
    if (!core) return;
    const answer = ask(core, this.setup, this.library.find);
    this.trouble = isTrouble(answer) ? answer : null;
    if (!isTrouble(answer)) {
      this.result = answer;
      // Once the answer is painted: a frame's callbacks come before its painting, a timer set there after it.
      requestAnimationFrame(() => setTimeout(() => void this.detail(answer)));
      this.advisor.advise(answer);
    }
    clearTimeout(this.exploreTimer);
    if (this.trouble && !this.trouble.elsewhere) this.exploreTimer = window.setTimeout(() => void this.explore(), REST);
    if (this.trouble?.elsewhere) {
      if (missing) this.trouble = { key: null, message: `What this needs could not be loaded (${missing}).` };
      else void this.takeWhole(core);
    }
    this.announce();
  }

  private async takeWhole(core: PageCore): Promise<void> {
    let missing = '';
    try {
      await core.loadWhole();
      this.pinned.clear();
    } catch (error) {
      missing = reason(error);
    }
    this.compute(missing); // by now perhaps of settings that need less
  }

  private async detail(answer: Result): Promise<void> {
    ({ details: this.details } = await import('./details'));
    if (this.result?.setup !== answer.setup) return;
    this.detailed = this.result;
    await this.updateComplete;
    await Promise.all([this.takeLater(), this.takeModels()]);
    void this.explore();
  }

  /** The models of later answers, to pick one. */
  private async takeModels(): Promise<void> {
    const { core } = this;
    if (!core) return;
    await core.loadModels().catch(() => undefined); // tried again after the next answer
    this.library.presets = core.catalogue.models;
    this.requestUpdate();
  }

  private async takeLater(): Promise<void> {
    if (this.later) return;
    this.later = await import('./later').catch(() => null); // without a network, what it draws stays away
    this.requestUpdate();
  }

  /** What other choices would do, or which ones give an answer where there is none. */
  private async explore(): Promise<void> {
    const { core, setup, result, trouble } = this;
    const model = this.library.find(setup);
    if (!core || !model) return;
    await this.takeLater();
    const peak = trouble ? null : (result?.report.peak ?? null);
    await this.explorer.explore(core, { setup, model, peak }, this.strategy, this.library.find);
  }

  /** What would give the settings an answer, worked out once for each trouble. */
  private fixes(): Fix[] {
    const { trouble, setup, result, later } = this;
    const model = this.library.find(setup);
    if (!trouble || !model || !later) return [];
    if (this.fixed?.of !== trouble) this.fixed = { of: trouble, fixes: later.fixesOf(trouble, setup, model, result) };
    return this.fixed.fixes;
  }

  /** The answer or the error, as one sentence. */
  private sentence(): string {
    if (this.trouble) {
      const { key, message } = this.trouble;
      return key === null ? message : `${field(key).label}: ${message}`;
    }
    if (!this.result) return '';
    const words = verdict(this.result.report, this.result.gpu.name, this.result.count);
    return `${words.headline}: ${words.detail}`;
  }

  private announce(): void {
    clearTimeout(this.announceTimer);
    this.announceTimer = window.setTimeout(() => {
      this.said = this.sentence();
      if (!this.result) return;
      const { report, gpu, count } = this.result;
      document.title = `${this.trouble ? 'No answer' : verdict(report, gpu.name, count).headline} – oometer`;
    }, ANNOUNCE_DELAY);
  }

  override render(): TemplateResult {
    const { result, detailed, trouble } = this;
    return html`
      <header>
        <button class="skip" @click=${this.skip}>Skip to the answer</button>
        <h1>oometer</h1>
        <p>Will this training run fit on that GPU?</p>
        <nav aria-label="Page">
          <a href="./method.html">How it is calculated</a>
          <oometer-copy label="Copy link" .text=${this.link}></oometer-copy>
          <button @click=${this.switchTheme}>Theme: ${this.theme}</button>
        </nav>
      </header>
      <main class=${this.drops.hovering ? 'dropping' : ''}>
        <div class="answer" tabindex="-1">
          ${notices({
            broken: this.broken,
            problems: this.problems,
            trouble,
            answered: result !== null,
            fixes: this.fixes(),
            onFix: ({ setup }) => {
              this.show(setup, this.pins, true);
            },
            onReveal: (key) => this.renderRoot.querySelector<OometerForm>('oometer-form')?.reveal(key),
            onStartAgain: this.startAgain,
          })}
          ${
            result
              ? html`<oometer-verdict
                    .report=${result.report}
                    .gpu=${result.gpu.name}
                    .count=${result.count}
                    .stale=${trouble !== null}
                    >${trouble ? nothing : this.comparing()}</oometer-verdict
                  >${this.beside(result)}`
              : trouble || this.broken
                ? nothing
                : html`<p class="waiting">Computing the example …</p>`
          }
        </div>
        <oometer-own-model
          .setup=${this.setup}
          .judge=${async (own: OwnModel) => (this.core ? refusal(this.core, own) : null)}
          .core=${this.core}
          .result=${result}
          .setupOf=${this.setupOf}
          @use=${({ detail }: CustomEvent<Setup>) => {
            this.show(detail, this.pins, true);
          }}
          @models=${(event: CustomEvent<OwnModel[]>) => {
            void this.useOwn(event.detail);
          }}
          @lengths=${({ detail }: CustomEvent<Lengths>) => {
            this.show({ ...this.setup, ...detail, lengths: 'list' }, this.pins, true);
          }}
          @runfile=${(event: CustomEvent<RunFile>) => {
            this.show(withRun(this.setup, event.detail), this.pins, true);
          }}
        ></oometer-own-model>
        ${result && !trouble ? this.remedy(result) : nothing}
        <section class="setup" aria-label="Settings">
          <oometer-form
            .setup=${this.setup}
            .model=${this.library.find(this.setup) ?? null}
            .catalogue=${this.core?.catalogue ?? null}
            .hub=${this.later?.hub ?? []}
            .errors=${trouble?.key ? { [trouble.key]: trouble.message } : {}}
            .effects=${this.effects()}
            .peak=${this.explorer.base?.peak ?? null}
            .image=${this.result?.report.image ?? null}
            @setting=${(event: CustomEvent<Setting>) => {
              this.setting(event.detail);
            }}
            @listed=${({ detail: { key, open } }: CustomEvent<Listed>) => {
              this.explorer.listed(key, open);
              if (open) void this.explore();
            }}
            @own=${() => {
              void this.withDialog((dialog) => {
                dialog.show();
              });
            }}
            @start=${({ detail }: CustomEvent<Setup>) => {
              void this.begin(detail);
            }}
          ></oometer-form>
        </section>
        ${detailed && this.details ? this.details(detailed, this) : nothing}
      </main>
      <footer>
        Everything is computed in this tab. Nothing is sent anywhere, nothing is stored.
        <a href="./method.html">How it is calculated</a>. <a href="./accuracy.html">Accuracy</a>.
        <a href="./compare.html${write(this.setup, this.pins)}">Compare with your run</a>.
        ${this.core ? html`oometer ${this.core.version}` : nothing}
      </footer>
      <div role="status" class="hidden" id="said">${this.said}</div>
    `;
  }

  /** Settings to compare others with are kept, until there are some: then they are shown side by side. */
  private comparing(): TemplateResult {
    const isPinned = this.pins.length > 0;
    return html`<button
      class="compare"
      title=${isPinned ? 'What differs, and what each difference does' : 'Keep these settings to compare others with them'}
      @click=${() => {
        if (!isPinned) this.show(this.setup, [this.setup], true);
        else this.renderRoot.querySelector('oometer-compare')?.scrollIntoView();
      }}
    >
      <svg viewBox="0 0 16 16" aria-hidden="true"><path d="M2 2.5h4.500v11h-4.500zM9.500 2.5h4.500v11h-4.500z" /></svg>
      <span>${isPinned ? 'Side by side' : 'Compare'}</span>
    </button>`;
  }

  /** The answer against that of the settings that were kept first. */
  private beside(result: Result): TemplateResult | typeof nothing {
    const [, kept] = this.trouble ? [] : this.columns(result);
    if (!kept) return nothing;
    const more = this.pins.length > 1 ? ` and ${this.pins.length - 1} more` : '';
    return html`<p class="beside" role="status">
      Compared with pinned ${kept.model}${more}:
      ${isTrouble(kept.answer) ? 'no answer' : html`<strong>${difference(result, kept.answer)}</strong>`}
    </p>`;
  }

  private remedy(result: Result): TemplateResult {
    return html`<oometer-remedy
      .advice=${this.advisor.advice}
      .result=${result}
      .stale=${this.advisor.base !== result}
      .former=${this.former}
      @apply=${this.apply}
      @undo=${() => {
        if (this.former) this.show(this.former, this.pins, true);
      }}
      @more=${() => {
        this.renderRoot.querySelector('oometer-advice')?.scrollIntoView();
      }}
    ></oometer-remedy>`;
  }

  /** Those of an earlier answer stay until newer ones are found, but not beside settings that have none. */
  private effects(): Effects {
    const { explorer, trouble } = this;
    return trouble && explorer.base?.setup !== this.setup ? new Map() : explorer.effects;
  }

  /** Why what stands below the answer is not of the present settings; "" where it is, or soon will be. */
  get stamp(): string {
    const { trouble, detailed, setup, later } = this;
    if (!trouble || !detailed) return '';
    const otherwise = later?.told(setup, detailed.setup) ?? '';
    return `Of the last settings that had an answer${otherwise && ` (${otherwise})`}.`;
  }

  /** Settings that were found for somebody: a step that the back button undoes, and a button beside the answer. */
  readonly apply = ({ detail }: CustomEvent<Setup>): void => {
    const before = this.setup;
    this.show(detail, this.pins, true);
    this.former = before;
  };

  columns(now: Result): Column[] {
    const pins = this.pins.map((setup): Column => {
      const model = this.library.find(setup);
      return { setup, model: model?.title ?? setup.model, answer: this.answerTo(setup) };
    });
    return [{ setup: now.setup, model: now.model.title, answer: now }, ...pins];
  }

  readonly totalOf = (setup: Setup): number | null => {
    const answer = this.core ? ask(this.core, setup, this.library.find) : null;
    return !answer || isTrouble(answer) ? null : answer.report.peak.total;
  };

  /** The answer to a pinned setup: asked once, because a pin does not change. */
  private answerTo(setup: Setup): Result | Trouble {
    const key = write(setup);
    const known = this.pinned.get(key);
    if (known) return known;
    if (!this.core) return { key: null, message: '' };
    const answer = ask(this.core, setup, this.library.find);
    if (isTrouble(answer) && answer.elsewhere) void this.takeWhole(this.core);
    this.pinned.set(key, answer);
    return answer;
  }

  /** Settings that somebody made before, perhaps with a model that only they name. */
  private async begin(start: Setup): Promise<void> {
    const { setup } = await this.library.open({ setup: start, pins: [], problems: [] });
    this.show(setup, this.pins, true);
  }

  /** Throws a sentence where the settings cannot express the job: where their answer is another one. */
  private readonly setupOf = async (job: Job): Promise<Setup> => {
    const { core } = this;
    if (!core) return this.setup;
    const { setupOfJob } = await import('./later');
    const { preset, ...own } = job.model as { preset?: string } & OwnModel;
    const config = preset === undefined ? await this.library.add({ ...own, name: own.name || 'model' }) : '';
    const names = { model: preset ?? START.model, config };
    await this.takeModels();
    const model = this.library.find({ ...START, ...names });
    const answer = await estimated(core, job);
    if (!answer.ok) throw new Error(`The job is refused: ${answer.error.message} (${answer.error.pointer})`);
    const { setup, lacking } = model ? setupOfJob(job, names, model) : { setup: null, lacking: [] };
    const shown = setup && lacking.length === 0 ? ask(core, setup, this.library.find) : null;
    if (!setup || !shown || isTrouble(shown) || shown.report.peak.total !== answer.report.peak.total) {
      const which = lacking.length === 0 ? '' : ` (${lacking.join(', ').slice(0, LONGEST_LIST)})`;
      throw new Error(
        `This job says more than the settings here can${which}. The command answers it: oometer estimate.`,
      );
    }
    return setup;
  };

  /** The first of several models is shown, the others stand beside it. */
  private async useOwn(models: readonly OwnModel[]): Promise<void> {
    const [first, ...others] = await Promise.all(models.map((own) => this.library.add(own)));
    if (first === undefined) return;
    const before = this.library.find(this.setup);
    const withModel = (config: string): Setup => {
      if (config === this.setup.config) return this.setup; // the file that its link left out
      const setup = { ...this.setup, config };
      return adopt(setup, before, this.library.find(setup));
    };
    this.show(withModel(first), [...this.pins, ...others.map(withModel)].slice(0, MOST_PINS), true);
  }

  /** The dialog for what is pasted or dropped, which comes with what stands below the answer. */
  private async withDialog(use: (dialog: OometerOwnModel) => void): Promise<void> {
    await this.takeLater();
    const dialog = this.renderRoot.querySelector<OometerOwnModel>('oometer-own-model');
    if (dialog && this.later) use(dialog);
  }

  private readonly startAgain = (): void => {
    this.show({ ...START }, [], true);
  };

  /** The first stop of a keyboard. No link: the address holds settings. */
  private readonly skip = (): void => {
    this.renderRoot.querySelector<HTMLElement>('.answer')?.focus();
  };

  private readonly switchTheme = (): void => {
    this.theme = nextTheme(this.theme, matchMedia('(prefers-color-scheme: dark)').matches);
    applyTheme(this.theme);
  };

  readonly link = (): string => new URL(this.address(), location.href).href;

  /** A link to these settings, whatever is set by now. */
  readonly linkTo = (setup: Setup) => (): string => new URL(this.address(setup), location.href).href;
}

/** "−3.1 GiB of 62.3" */
function difference({ report }: Result, kept: Result): string {
  const { total } = kept.report.peak;
  const words = change(report.peak.total - total);
  return words === 'same' ? `the same ${gib(total)}. Change something` : `${words}, from ${gib(total)}`;
}

customElements.define('oometer-app', OometerApp);
