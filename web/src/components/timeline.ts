import { html, LitElement, nothing, svg, type TemplateResult } from 'lit';
import { ticks } from '../charts/ticks';
import { centred, moved, WHOLE, zoomed, type Window } from '../charts/window';
import { HEIGHT, momentAt, timeline, WIDTH, type Moment, type Timeline } from '../charts/timeline';
import { GIB, gib, gibNumber, percent } from '../format/bytes';
import { FACTORS } from '../format/factors';
import { operation, phaseIn, phaseName } from '../format/words';
import { styles } from '../styles/inline';
import { fill, shared } from '../styles/shared';
import { breakable } from './breakable';
import { timelineStyles } from './timeline-styles';
import type { Report } from '../wasm/report';

/** What a finger can hit, and what the scale takes of the width; CSS pixels. */
const SMALLEST_TARGET = 24;
const AXIS = 40;
/** A shorter drag is a slip of the hand. */
const SHORTEST = 1;
/** One step of W or S, or a notch of a wheel; one of A or D. */
const CLOSER = 0.8;
const STEP = 0.15;

/** The run over its allocator events. Pointing or arrow keys tell a moment; a phase's name, a drag, a wheel, or W, A, S and D zoom. */
export class OometerTimeline extends LitElement {
  static override properties = {
    report: { attribute: false },
    window: { state: true },
    cursor: { state: true },
    drag: { state: true },
    width: { state: true },
  };
  declare report: Report | null;
  declare private window: Window;
  /** In percent of the run; null: nothing is pointed at. */
  declare private cursor: number | null;
  declare private drag: number | null;
  /** Of the plot, in CSS pixels. */
  declare private width: number;
  private readonly observer = new ResizeObserver(([entry]) => {
    this.width = entry?.contentRect.width ?? 0;
  });
  /** Whether the pointer was moved here: a page that scrolls under it is not to be zoomed. */
  private pointed = false;
  private drawn: Timeline | null = null;
  private drawnFor: Report | null = null;

  constructor() {
    super();
    this.report = null;
    this.window = WHOLE;
    this.cursor = null;
    this.drag = null;
    this.width = 0;
  }

  override connectedCallback(): void {
    super.connectedCallback();
    this.observer.observe(this);
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    this.observer.disconnect();
  }

  static override styles = [shared, timelineStyles];

  override render(): TemplateResult | typeof nothing {
    const { report } = this;
    if (!report) return nothing;
    if (this.drawnFor !== report) {
      this.drawn = timeline(report);
      this.drawnFor = report;
    }
    const { drawn } = this;
    if (!drawn) return nothing;
    const { from, to } = this.window;
    const isZoomed = this.window !== WHOLE;
    const moment = this.cursor === null ? undefined : momentAt(drawn, this.cursor);
    return html`
      <p class="readout" aria-hidden="true">${moment ? this.tell(moment) : this.invite()}</p>
      <div class="frame">
        <div class="phases">${this.phases(drawn)}</div>
        <div class="scale" aria-hidden="true">
          ${ticks(drawn.top / GIB).map(
            (tick) =>
              html`<span .style=${styles({ bottom: this.height(tick * GIB, drawn) })}
                >${String(Number(tick.toFixed(3)))}</span
              >`,
          )}
        </div>
        <div
          class="plot"
          role="slider"
          tabindex="0"
          aria-label="Moment of the run"
          aria-valuemin="0"
          aria-valuemax="100"
          aria-valuenow=${Math.round(this.cursor ?? drawn.peak)}
          aria-valuetext=${this.spoken(moment ?? momentAt(drawn, drawn.peak))}
          @pointermove=${this.point}
          @pointerleave=${this.leave}
          @pointerdown=${this.press}
          @pointerup=${this.release}
          @wheel=${this.wheel}
          @keydown=${this.key}
          @blur=${this.leave}
        >
          ${ticks(drawn.top / GIB).map(
            (tick) => html`<div class="rule" .style=${styles({ bottom: this.height(tick * GIB, drawn) })}></div>`,
          )}
          <svg
            viewBox="${(from * WIDTH) / 100} 0 ${((to - from) * WIDTH) / 100} ${HEIGHT}"
            preserveAspectRatio="none"
            aria-hidden="true"
          >
            ${drawn.areas.map(({ key, path }) => svg`<path d=${path} fill="var(--${key})"></path>`)}
            <path class="outline" d=${drawn.reserved}></path>
          </svg>
          ${drawn.spans
            .filter((span) => span.from > from && span.from < to)
            .map((span) => html`<div class="start" .style=${styles({ left: this.left(span.from) })}></div>`)}
          ${
            report.gpu.usable_bytes < drawn.top
              ? html`<div class="limit" .style=${styles({ bottom: this.height(report.gpu.usable_bytes, drawn) })}>
                  <span>limit ${gib(report.gpu.usable_bytes)}</span>
                </div>`
              : nothing
          }
          ${this.within(drawn.peak) ? html`<div class="pin" .style=${styles({ left: this.left(drawn.peak) })}></div>` : nothing}
          ${this.cursor === null ? nothing : html`<div class="cursor" .style=${styles({ left: this.left(this.cursor) })}></div>`}
          ${this.chosen()}
        </div>
        <div class="foot" aria-hidden="true">
          ${
            this.within(drawn.peak)
              ? html`<span class=${this.side(drawn.peak)} .style=${styles({ left: this.left(drawn.peak) })}>peak</span>`
              : nothing
          }
        </div>
        ${isZoomed ? this.minimap(drawn) : nothing}
      </div>
    `;
  }

  /** The whole run, and what of it is in sight. */
  private minimap(drawn: Timeline): TemplateResult {
    const { from, to } = this.window;
    const box = styles({ left: `${from.toFixed(2)}%`, width: `${(to - from).toFixed(2)}%` });
    return html`<div class="minimap" aria-hidden="true" @pointerdown=${this.jump} @pointermove=${this.jump}>
        <svg viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none">
          ${drawn.areas.map(({ key, path }) => svg`<path d=${path} fill="var(--${key})"></path>`)}
        </svg>
        <div class="sight" .style=${box}></div>
      </div>
      <button
        class="whole"
        @click=${() => {
          this.window = WHOLE;
        }}
      >
        Whole run
      </button>`;
  }

  private phases(drawn: Timeline): TemplateResult[] {
    const { window } = this;
    const inSight = drawn.spans.filter(({ from, to }) => to > window.from && from < window.to);
    return inSight.map(({ phase, from, to }) => {
      const name = phaseName(phase.name, phase.iteration);
      const [left, right] = [this.seen(Math.max(from, window.from)), this.seen(Math.min(to, window.to))];
      const place = styles({ left: `${left.toFixed(2)}%`, width: `${(right - left).toFixed(2)}%` });
      const pixels = ((right - left) / 100) * (this.width - AXIS);
      if (pixels < SMALLEST_TARGET) {
        return html`<span title=${name} .style=${place}></span>`; // zoomed by Enter at a moment of it, or by a drag
      }
      return html`<button
        title="Zoom: ${name}"
        .style=${place}
        @click=${() => {
          this.window = { from, to };
        }}
      >
        <span aria-hidden="true">${phaseIn(pixels, phase.name, phase.iteration)}</span>
        <span class="hidden">${name}</span>
      </button>`;
    });
  }

  private chosen(): TemplateResult | typeof nothing {
    const { drag, cursor } = this;
    if (drag === null || cursor === null) return nothing;
    const [from, to] = drag < cursor ? [drag, cursor] : [cursor, drag];
    const { window } = this;
    const width = `${((100 * (to - from)) / (window.to - window.from)).toFixed(2)}%`;
    return html`<div class="chosen" .style=${styles({ left: this.left(from), width })}></div>`;
  }

  private invite(): TemplateResult {
    return html`<span class="soft"
      >Point at the picture to see who held what. Drag, turn the wheel, press a phase’s name or W, A, S, D to zoom. GiB
      over allocator events.</span
    >`;
  }

  private tell({ phase, event, op, module, allocated, reserved, factors }: Moment): TemplateResult {
    return html`<strong>${phase ? phaseName(phase.name, phase.iteration) : ''}</strong>, event
      ${event.toLocaleString('en-US')}, ${breakable(operation(op, module))}: ${gib(allocated, 2)} in tensors,
      ${gib(reserved, 2)} reserved.
      ${factors
        .filter(({ bytes }) => bytes >= GIB / 100)
        .map(
          ({ key, bytes }) =>
            html`<span class="swatch" .style=${styles({ background: fill(key) })}></span>${label(key)}
              ${gibNumber(bytes, 2)}`,
        )}`;
  }

  private spoken(moment: Moment | undefined): string {
    if (!moment) return '';
    const { phase, op, module, allocated, reserved, factors } = moment;
    const parts = factors
      .filter(({ bytes }) => bytes >= GIB / 100)
      .map(({ key, bytes }) => `${label(key)} ${gib(bytes)}`);
    const name = phase ? phaseName(phase.name, phase.iteration) : '';
    return `${name}, ${operation(op, module)}: ${gib(allocated)} in tensors, ${gib(reserved)} reserved; ${parts.join(', ')}`;
  }

  private within(place: number): boolean {
    return place >= this.window.from && place <= this.window.to;
  }

  /** A place of the run as a place of what is in sight. */
  private seen(place: number): number {
    const { from, to } = this.window;
    return (100 * (place - from)) / (to - from);
  }

  private left(place: number): string {
    return `${this.seen(place).toFixed(2)}%`;
  }

  /** So that the word at an edge is not cut. */
  private side(place: number): string {
    const seen = this.seen(place);
    return seen < 3 ? 'left' : seen > 97 ? 'right' : '';
  }

  private height(bytes: number, drawn: Timeline): string {
    return `${percent(bytes, drawn.top).toFixed(2)}%`;
  }

  private place(event: MouseEvent): number {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    const share = Math.max(0, Math.min(1, (event.clientX - box.left) / box.width));
    return this.window.from + share * (this.window.to - this.window.from);
  }

  private readonly point = (event: PointerEvent): void => {
    if (event.movementX !== 0 || event.movementY !== 0) this.pointed = true;
    this.cursor = this.place(event);
  };

  private readonly wheel = (event: WheelEvent): void => {
    const out = event.deltaY > 0;
    if (!this.pointed || event.deltaY === 0 || (out && this.window === WHOLE)) return; // the page scrolls
    event.preventDefault();
    this.window = zoomed(this.window, out ? 1 / CLOSER : CLOSER, this.place(event));
  };

  /** Moves what is in sight to where the small picture is pressed. */
  private readonly jump = (event: PointerEvent): void => {
    if (event.buttons === 0) return;
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    this.window = centred(this.window, (100 * (event.clientX - box.left)) / box.width);
  };

  private readonly leave = (): void => {
    this.pointed = false;
    if (this.drag === null) this.cursor = null;
  };

  private readonly press = (event: PointerEvent): void => {
    if (event.pointerType !== 'mouse') return; // a finger scrolls; phases' names zoom
    (event.currentTarget as HTMLElement).setPointerCapture(event.pointerId);
    this.drag = this.place(event);
  };

  private readonly release = (event: PointerEvent): void => {
    const { drag } = this;
    this.drag = null;
    if (drag === null) return;
    const [from, to] = [drag, this.place(event)].sort((a, b) => a - b) as [number, number];
    if (seenShare(from, to, this.window) >= SHORTEST) this.window = { from, to };
  };

  private readonly key = (event: KeyboardEvent): void => {
    const { drawn, window } = this;
    if (!drawn) return;
    const at = this.cursor ?? Math.max(window.from, Math.min(window.to, drawn.peak));
    const other = {
      w: () => zoomed(window, CLOSER, at),
      s: () => zoomed(window, 1 / CLOSER, at),
      a: () => moved(window, -STEP),
      d: () => moved(window, STEP),
    }[event.key.toLowerCase()];
    if (other && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      this.window = other();
      return;
    }
    const moment = momentAt(drawn, at);
    if (!moment) return;
    const tiny = 1e-6;
    const target = {
      ArrowRight: moment.to + tiny,
      ArrowLeft: moment.from - tiny,
      Home: window.from,
      End: window.to - tiny,
    }[event.key];
    if (target !== undefined) {
      event.preventDefault();
      this.cursor = Math.max(window.from, Math.min(window.to - tiny, target));
    } else if (event.key === 'Enter') {
      const span = drawn.spans.find(({ from, to }) => at >= from && at < to);
      if (span) this.window = { from: span.from, to: span.to };
    } else if (event.key === 'Escape') {
      this.window = WHOLE;
    }
  };
}

function label(key: string): string {
  return (FACTORS.find((factor) => factor.key === key)?.label ?? key).toLowerCase();
}

function seenShare(from: number, to: number, window: Window): number {
  return (100 * (to - from)) / (window.to - window.from);
}

customElements.define('oometer-timeline', OometerTimeline);
