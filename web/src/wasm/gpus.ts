// What the core says of a job on every GPU of the catalogue. All sizes are bytes.
import type { Patch } from './advice';
import type { Gpu } from './catalogue';
import type { JobError, Verdict } from './report';

/** The fewest GPUs of a kind that are enough. */
export interface Needed {
  gpus: number;
  /** How the job is spread over them, where that is not as now. */
  label: string;
  /** A merge patch on the job that takes them. */
  change: Patch;
}

export interface GpuRow {
  id: string;
  name: string;
  vendor: string;
  usable_bytes: number;
  /** Null where the job is refused on that GPU; `refused` says why. */
  verdict: Verdict | null;
  /** Below zero: what is missing. */
  headroom: number | null;
  refused: string;
  largest_micro_batch: number | null;
  /** Null where no number that was tried is enough. */
  needed: Needed | null;
}

/** The row of a GPU; where the job cannot even be asked there, it says why. */
export function readRow(json: string, { id, name, vendor, usable_bytes }: Gpu): GpuRow {
  const answer = JSON.parse(json) as GpuRow | { error: JobError };
  if (!('error' in answer)) return answer;
  const refused = answer.error.message;
  return {
    id,
    name,
    vendor,
    usable_bytes,
    verdict: null,
    headroom: null,
    refused,
    largest_micro_batch: null,
    needed: null,
  };
}
