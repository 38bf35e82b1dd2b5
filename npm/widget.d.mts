import type { Job, Report } from "./index.mjs";

/** `<oometer-widget job="#v1?mbs=16" view="bar" gpu="a100-80gb">`: the answer to a job. */
export class OometerWidget extends HTMLElement {
  /** A permalink of the page, or a job. */
  job: Job;
  view: "summary" | "bar" | "timeline" | "full";
  /** A GPU to use instead of the job's. */
  gpu: string;
  /** The last report; null until there is one. */
  readonly report: Report | null;
}

/** Where the page of oometer is served: the widget then links to it. */
export function setSite(address: string | null): void;

declare global {
  interface HTMLElementTagNameMap {
    "oometer-widget": OometerWidget;
  }
}
