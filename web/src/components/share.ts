import { css, html, LitElement, nothing, type TemplateResult } from 'lit';
import { INKS, picture, type Palette, type Picture } from '../charts/picture';
import { frameSnippet, widgetSnippet } from '../format/embed';
import { reason } from '../format/reason';
import { asCells, asMarkdown, settings } from '../format/summary';
import { csv } from '../format/table';
import { command } from '../state/command';
import { write } from '../state/permalink';
import { shared } from '../styles/shared';
import type { Result } from '../wasm/ask';
import type { PageCore } from '../wasm/core';
import './copy';
import { download, rasterize } from './download';

/** The answer for others: as a link, as text, as a file, as a picture, on paper. */
export class OometerShare extends LitElement {
  static override properties = {
    result: { attribute: false },
    core: { attribute: false },
    link: { attribute: false },
    said: { state: true },
  };
  declare result: Result | null;
  declare core: PageCore | null;
  /** The page's address, with all that it shows. */
  declare link: () => string;
  declare private said: string;

  constructor() {
    super();
    this.said = '';
    this.result = null;
    this.core = null;
    this.link = () => location.href;
  }

  static override styles = [
    shared,
    css`
      .buttons {
        display: flex;
        flex-wrap: wrap;
        gap: 0.5rem;
      }
      .buttons + .buttons {
        margin-top: 0.5rem;
      }
      [role='status'] {
        margin: 0.5rem 0 0;
      }
      [role='status']:empty {
        margin: 0;
      }
      details {
        margin-top: 0.9rem;
      }
      .snippet {
        margin: 0.5rem 0 1rem;
      }
      pre {
        max-width: 60rem;
        margin: 0 0 0.4rem;
        padding: 0.6rem 0.75rem;
        overflow-x: auto;
        border-radius: var(--radius);
        background: var(--surface-raised);
        font-size: 0.8125rem;
      }
      .paper {
        display: none;
      }
      dl {
        display: grid;
        grid-template-columns: max-content 1fr;
        gap: 0.1rem 1rem;
        margin: 0 0 0.75rem;
      }
      dd {
        margin: 0;
      }
      @media print {
        .screen {
          display: none;
        }
        .paper {
          display: block;
          overflow-wrap: anywhere;
        }
      }
    `,
  ];

  override render(): TemplateResult | typeof nothing {
    const { result } = this;
    if (!result) return nothing;
    return html`
      <section aria-labelledby="share">
        <div class="screen">
          <h2 id="share">Share</h2>
          <div class="buttons">
            <oometer-copy label="Copy link" .text=${this.link}></oometer-copy>
            <oometer-copy label="Copy as Markdown" .text=${() => asMarkdown(result, this.link())}></oometer-copy>
            <oometer-copy label="Copy as command" .text=${() => command(result.job)}></oometer-copy>
          </div>
          <div class="buttons">
            <button @click=${this.saveJson}>Report, JSON</button>
            <button @click=${this.saveCsv}>Layers, CSV</button>
            <button @click=${this.saveSvg}>Picture, SVG</button>
            <button @click=${this.savePng}>Picture, PNG</button>
            <button @click=${this.saveSnapshot} title="For pytorch.org/memory_viz, beside one of a real run">
              Memory snapshot
            </button>
            <button
              @click=${() => {
                print();
              }}
            >
              Print
            </button>
          </div>
          <p class="small" role="status">${this.said}</p>
          <details>
            <summary>Embed in another page</summary>
            ${this.snippet('widget', 'As an element', widgetSnippet)}
            ${this.snippet('frame', 'As a frame, where scripts are not allowed', frameSnippet)}
            <p class="small soft">
              The element in a page of another origin needs this site to send
              <code>Access-Control-Allow-Origin</code> with its files (CORS), and that page’s Content-Security-Policy to
              allow this site in <code>script-src</code> and <code>connect-src</code>, with
              <code>'wasm-unsafe-eval'</code>. The frame needs neither.
              <a href="./demo.html">Both in a page</a>
            </p>
          </details>
        </div>
        <div class="paper">
          <h2>Settings</h2>
          <dl>
            ${settings(result).map(
              ([label, value]) =>
                html`<dt>${label}</dt>
                  <dd>${value}</dd>`,
            )}
          </dl>
          <p class="small">${this.link()}</p>
        </div>
      </section>
    `;
  }

  private snippet(id: string, title: string, make: (site: string, fragment: string) => string): TemplateResult {
    const text = make(new URL('.', location.href).href, this.result ? write(this.result.setup) : '');
    return html`<div class="snippet">
      <h3 id=${id}>${title}</h3>
      <pre tabindex="0" role="group" aria-labelledby=${id}><code>${text}</code></pre>
      <oometer-copy label="Copy" .text=${() => text}></oometer-copy>
    </div>`;
  }

  private readonly saveJson = async (): Promise<void> => {
    const { core, result } = this;
    if (!core || !result) return;
    let report = core.raw(result.job);
    if (report === null) {
      if (!(await this.takeWhole(core))) return;
      report = core.raw(result.job);
    }
    this.save('json', new Blob([report ?? ''], { type: 'application/json' }));
  };

  private readonly saveCsv = (): void => {
    if (this.result) this.save('csv', new Blob([csv(asCells(this.result))], { type: 'text/csv' }));
  };

  private readonly saveSnapshot = async (): Promise<void> => {
    const { core, result } = this;
    if (!core || !result) return;
    if (!(await this.takeWhole(core))) return;
    const pickle = core.snapshot(result.job);
    if (pickle instanceof Uint8Array) this.save('pickle', new Blob([pickle], { type: 'application/octet-stream' }));
  };

  /** Whether the whole core is there; it says why not. */
  private async takeWhole(core: PageCore): Promise<boolean> {
    try {
      await core.loadWhole();
      this.said = '';
      return true;
    } catch (error) {
      this.said = `Not saved: what this file needs could not be loaded (${reason(error)}). Another click tries again.`;
      return false;
    }
  }

  private readonly saveSvg = (): void => {
    const drawn = this.picture();
    if (drawn) this.save('svg', new Blob([drawn.svg], { type: 'image/svg+xml' }));
  };

  private readonly savePng = async (): Promise<void> => {
    const drawn = this.picture();
    if (drawn) this.save('png', await rasterize(drawn.svg, drawn.width, drawn.height));
  };

  private picture(): Picture | null {
    return this.result && picture(this.result, palette(this));
  }

  private save(ending: string, content: Blob): void {
    const name = (this.result?.model.title ?? 'oometer').toLowerCase().replaceAll(/[^a-z0-9.]+/g, '-');
    download(`oometer-${name}.${ending}`, content);
  }
}

/** The colours as they are now, light or dark: `light-dark()` is resolved only where it colours something. */
function palette(element: LitElement): Palette {
  const probe = element.renderRoot.appendChild(document.createElement('span'));
  const colours = INKS.map((name): [string, string] => {
    probe.style.color = `var(--${name})`;
    return [name, getComputedStyle(probe).color];
  });
  probe.remove();
  return Object.fromEntries(colours);
}

customElements.define('oometer-share', OometerShare);
