// Small pieces of work in the browser's idle time, so that an edit never waits for more than one of them.

/** Safari has no idle callback; a turn of the event loop between two pieces does nearly as well. */
const later: (run: () => void) => void =
  'requestIdleCallback' in globalThis
    ? (run) => requestIdleCallback(run, { timeout: 500 })
    : (run) => setTimeout(run, 8);

/** Milliseconds between two tellings of what is found so far: a slow machine should not look idle. */
const OFTEN = 250;

export class IdleQueue {
  private turn = 0;

  /** Does each step in order, and `found` now and then and when all are done. Another call drops what this one has left: the newest input wins. */
  run(steps: readonly (() => void | Promise<void>)[], found: () => void): void {
    const turn = ++this.turn;
    let next = 0;
    let told = performance.now();
    const go = async (): Promise<void> => {
      if (turn !== this.turn) return;
      const step = steps[next++];
      if (step === undefined) {
        found();
        return;
      }
      await step();
      if (turn !== this.turn) return;
      if (performance.now() - told > OFTEN) {
        found();
        told = performance.now();
      }
      later(() => void go());
    };
    later(() => void go());
  }

  stop(): void {
    this.turn++;
  }
}
