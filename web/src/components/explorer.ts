import type { ReactiveController, ReactiveControllerHost } from 'lit';
import { change } from '../state/adopt';
import { alternatives, effectKey, type Alternative, type Effect, type Effects, type Peak } from '../state/effects';
import type { FieldKey, Setup } from '../state/fields';
import type { Model } from '../state/model';
import { ask, isTrouble, type FindModel } from '../wasm/ask';
import { IdleQueue } from '../wasm/idle';
import type { Report } from '../wasm/report';
import type { Core } from '../wasm/wrap';

/** What is explored: settings, and their peak; null where they have no answer. */
export interface Base {
  setup: Setup;
  model: Model;
  peak: Peak | null;
}

/** Finds out, when there is time, what every other choice would do to an answer, or which ones lead to one. */
export class Explorer implements ReactiveController {
  effects: Effects = new Map();
  /** What the effects belong to; they stay until those of something newer are found. */
  base: Base | null = null;
  private readonly idle = new IdleQueue();
  private readonly opened = new Set<FieldKey>();

  constructor(private readonly host: ReactiveControllerHost) {
    host.addController(this);
  }

  hostDisconnected(): void {
    this.idle.stop();
  }

  /** While a list is open, what each of its entries would do is worth knowing, too. */
  listed(key: FieldKey, open: boolean): void {
    if (open) this.opened.add(key);
    else this.opened.delete(key);
  }

  async explore(core: Core, base: Base, strategy: string, find: FindModel): Promise<void> {
    this.idle.stop();
    try {
      await core.loadWhole(); // its first part does not carry every choice
    } catch {
      return; // what the others would do stays unknown
    }
    const { models, gpus } = core.catalogue;
    // Only who picks a model of another family has its part loaded.
    const loaded = models.filter(({ parts = [] }) => core.has(parts));
    const lists: Partial<Record<FieldKey, readonly { id: string }[]>> = { model: loaded, gpu: gpus };
    const listed = [...this.opened].flatMap((key) =>
      (lists[key] ?? []).map(({ id }): Alternative => ({ key, value: id })),
    );
    const found = new Map<string, Effect | null>();
    const steps = [...listed, ...alternatives(base.setup, base.model)].map(({ key, value }) => async () => {
      const setup = change(base.setup, key, value, models, base.model, strategy);
      let answer = ask(core, setup, find);
      if (isTrouble(answer) && answer.elsewhere) {
        await core.loadWhole().catch(() => undefined); // a model of another family
        answer = ask(core, setup, find);
      }
      found.set(effectKey(key, value), isTrouble(answer) ? null : effectOf(answer.report));
    });
    const tell = (): void => {
      this.base = base;
      this.effects = new Map(found);
      this.host.requestUpdate();
    };
    this.idle.run(steps, tell);
  }
}

const effectOf = ({ peak, verdict }: Report): Effect => ({ total: peak.total, allocated: peak.allocated, verdict });
