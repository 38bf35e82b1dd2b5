// What stands below the answer. The page fetches this with everything else, and runs it once the answer is painted; most
// of the elements come later still (`later`).
import { html, nothing, type TemplateResult } from 'lit';
import { infers, type Setup } from '../state/fields';
import type { Job } from '../state/job.generated';
import type { Result } from '../wasm/ask';
import type { PageCore } from '../wasm/core';
import type { Advisor } from './advisor';
import type { Column } from './compare';
import { byRank } from './ranks';
import './holders';
import './phases';

/** What of the page the elements below the answer are given, and may do to it. */
export interface Page {
  readonly core: PageCore | null;
  readonly result: Result | null;
  readonly setup: Setup;
  readonly pins: readonly Setup[];
  readonly advisor: Advisor;
  /** Why what is shown is not of the present settings; "" where it is. */
  readonly stamp: string;
  readonly linkTo: (setup: Setup) => () => string;
  readonly apply: (event: CustomEvent<Setup>) => void;
  columns(now: Result): Column[];
  readonly totalOf: (setup: Setup) => number | null;
  show(setup: Setup, pins: readonly Setup[], step: boolean): void;
}

/** The samples are of a distribution, in an order of many. */
const isDrawn = ({ data }: Job): boolean => {
  const lengths = data?.lengths ?? {};
  return 'uniform' in lengths || 'histogram' in lengths;
};

export function details(result: Result, page: Page): TemplateResult {
  const { report } = result;
  const { core, advisor, apply, stamp } = page;
  // Below refused settings stands what was found for earlier ones: to be read, not to be used.
  return html`<div class="details" aria-busy=${result !== page.result} ?inert=${stamp !== ''}>
    ${stamp ? html`<p class="stamp">${stamp}</p>` : nothing}
    ${
      infers(result.setup)
        ? html`<oometer-serving
            .advice=${advisor.advice}
            .result=${result}
            .stale=${advisor.base !== result}
            @apply=${apply}
          ></oometer-serving>`
        : nothing
    }
    <oometer-holders .report=${report} .core=${core} .job=${result.job}></oometer-holders>
    <oometer-advice
      .advice=${advisor.advice}
      .result=${result}
      .stale=${advisor.base !== result}
      .refused=${advisor.refused}
      @apply=${apply}
    ></oometer-advice>
    <oometer-compare
      .columns=${page.columns(result)}
      .totalOf=${page.totalOf}
      @pin=${() => {
        page.show(page.setup, [...page.pins, page.setup], true);
      }}
      @unpin=${(event: CustomEvent<number>) => {
        page.show(page.setup, page.pins.toSpliced(event.detail, 1), true);
      }}
      @swap=${(event: CustomEvent<number>) => {
        const setup = page.pins[event.detail];
        if (setup) page.show(setup, page.pins.with(event.detail, page.setup), true);
      }}
    ></oometer-compare>
    ${
      result.setup.runfile === ''
        ? nothing
        : html`<oometer-configuration .result=${result} .core=${core}></oometer-configuration>`
    }
    <oometer-phases .report=${report}>
      ${
        isDrawn(result.job)
          ? html`<oometer-orders .result=${result} .helper=${advisor.helper}></oometer-orders>`
          : nothing
      }
    </oometer-phases>
    <oometer-time .result=${result} .helper=${advisor.helper}></oometer-time>
    <oometer-host .result=${result} .helper=${advisor.helper}></oometer-host>
    <oometer-gpus .result=${result} .gpus=${core?.catalogue.gpus ?? []} @apply=${apply}></oometer-gpus>
    ${byRank(advisor.ranked === result ? advisor.ranks : [], report)}
    ${
      report.model.trainable > 0
        ? html`<oometer-checkpoints .result=${result} .helper=${advisor.helper} @apply=${apply}></oometer-checkpoints>`
        : nothing
    }
    <oometer-sweep .result=${result} .gpus=${core?.catalogue.gpus ?? []} @apply=${apply}></oometer-sweep>
    <oometer-tensors .report=${report}></oometer-tensors>
    <oometer-share .result=${result} .link=${page.linkTo(result.setup)} .core=${core}></oometer-share>
    <oometer-trust .report=${report} .milliseconds=${result.milliseconds}></oometer-trust>
  </div>`;
}
