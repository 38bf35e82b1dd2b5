import { css, html, LitElement, type TemplateResult } from 'lit';
import { shared } from '../styles/shared';

const SHOWN = 2000;

/** A button that copies what `text` makes, and says so. */
export class OometerCopy extends LitElement {
  static override properties = { label: {}, text: { attribute: false }, said: { state: true } };
  declare label: string;
  declare text: () => string;
  declare private said: string;
  private timer = 0;

  constructor() {
    super();
    this.label = 'Copy';
    this.text = () => '';
    this.said = '';
  }

  static override styles = [
    shared,
    css`
      :host {
        display: inline-block;
      }
    `,
  ];

  override render(): TemplateResult {
    return html`<button type="button" @click=${this.copy}>${this.said || this.label}</button>
      <span role="status" class="hidden">${this.said}</span>`;
  }

  private readonly copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(this.text());
      this.said = 'Copied';
    } catch {
      this.said = 'The browser refuses to copy';
    }
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => (this.said = ''), SHOWN);
  };
}

customElements.define('oometer-copy', OometerCopy);
