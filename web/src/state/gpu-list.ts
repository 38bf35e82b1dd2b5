// The table of GPUs: which of them are in sight, and in which order.
import type { GpuRow } from '../wasm/gpus';
import { DESK } from './desk.generated';

export interface Filter {
  /** '' is any. */
  vendor: string;
  /** At least so many GiB. */
  memory: number;
  place: '' | 'cloud' | 'desk';
}

export type Order = 'name' | 'memory' | 'headroom' | 'needed' | 'batch' | 'cost';

/** A GPU's price an hour, by its id, as somebody typed it. */
export type Prices = ReadonlyMap<string, number>;

/** A card sold as 16 GB gives a little less than 16 GiB, one of 141 GB a little less than 141. */
const MARGIN = 0.9;

export function matches({ id, vendor, usable_bytes }: GpuRow, filter: Filter): boolean {
  return (
    (filter.vendor === '' || vendor === filter.vendor) &&
    usable_bytes >= filter.memory * MARGIN * 1024 ** 3 &&
    (filter.place === '' || (filter.place === 'desk') === DESK.has(id))
  );
}

/** What an hour of as many as are needed costs; null where that is unknown. */
export function costOf({ id, needed }: GpuRow, prices: Prices): number | null {
  const price = prices.get(id);
  return price === undefined || needed === null ? null : price * needed.gpus;
}

/** The first is the best: unknown and impossible ones come last. */
export function sorted(rows: readonly GpuRow[], order: Order, prices: Prices): GpuRow[] {
  const last = Number.POSITIVE_INFINITY;
  const few = ({ needed }: GpuRow): number => needed?.gpus ?? last;
  const keys: Record<Exclude<Order, 'name'>, (row: GpuRow) => number> = {
    memory: ({ usable_bytes }) => -usable_bytes,
    headroom: ({ headroom }) => -(headroom ?? -last),
    needed: few,
    batch: ({ largest_micro_batch }) => -(largest_micro_batch ?? 0),
    cost: (row) => costOf(row, prices) ?? last,
  };
  // Of two that need as many, the smaller one is enough.
  const usual = (a: GpuRow, b: GpuRow): number => compare(few(a), few(b)) || compare(a.usable_bytes, b.usable_bytes);
  if (order === 'name') return [...rows].sort((a, b) => a.name.localeCompare(b.name, 'en', { numeric: true }));
  return [...rows].sort((a, b) => compare(keys[order](a), keys[order](b)) || usual(a, b));
}

function compare(a: number, b: number): number {
  return a === b ? 0 : a < b ? -1 : 1;
}
