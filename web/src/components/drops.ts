import type { ReactiveController, ReactiveControllerHost } from 'lit';
import { isGiven, pastedName } from '../state/pasted';

/** Files that are dropped anywhere on the page, and a configuration that is pasted anywhere but into a field. */
export class Drops implements ReactiveController {
  /** Whether a file hangs over the page. */
  hovering = false;

  constructor(
    private readonly host: ReactiveControllerHost,
    private readonly take: (files: File[]) => void,
  ) {
    host.addController(this);
  }

  hostConnected(): void {
    addEventListener('dragover', this.over);
    addEventListener('dragleave', this.leave);
    addEventListener('drop', this.drop);
    addEventListener('paste', this.paste);
  }

  hostDisconnected(): void {
    removeEventListener('dragover', this.over);
    removeEventListener('dragleave', this.leave);
    removeEventListener('drop', this.drop);
    removeEventListener('paste', this.paste);
  }

  private hover(hovering: boolean): void {
    if (hovering === this.hovering) return;
    this.hovering = hovering;
    this.host.requestUpdate();
  }

  private readonly over = (event: DragEvent): void => {
    if (!event.dataTransfer?.types.includes('Files')) return;
    event.preventDefault();
    this.hover(true);
  };

  private readonly leave = (event: DragEvent): void => {
    if (event.relatedTarget === null) this.hover(false);
  };

  private readonly drop = (event: DragEvent): void => {
    this.hover(false);
    const files = [...(event.dataTransfer?.files ?? [])];
    if (files.length === 0) return;
    event.preventDefault();
    this.take(files);
  };

  private readonly paste = (event: ClipboardEvent): void => {
    const [target] = event.composedPath();
    if (target instanceof HTMLInputElement || target instanceof HTMLTextAreaElement) return;
    const text = event.clipboardData?.getData('text/plain') ?? '';
    if (isGiven(text)) this.take([new File([text], pastedName(text))]);
  };
}
