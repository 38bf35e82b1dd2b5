// What a memory snapshot of PyTorch tells: torch.cuda.memory._dump_snapshot's dict of segments and of traces by device.
import type { Plain } from './pickle';

/** A state of the allocator after an event; bytes. */
export interface Point {
  event: number;
  allocated: number;
  reserved: number;
}

export interface Holder {
  where: string;
  bytes: number;
}

/** An allocation of a mebibyte or more. */
export interface Large {
  event: number;
  bytes: number;
  where: string;
}

export interface History {
  device: number;
  events: number;
  peak: { allocated: number; reserved: number; event: number };
  /** At most a few hundred, each the highest of its stretch. */
  curve: Point[];
  /** Who held the peak, by the innermost frame that is not PyTorch's own; the largest first. */
  holders: Holder[];
  large: Large[];
  /** What the answer lacks. */
  notes: string[];
}

type Dict = Record<string, Plain>;
const MIB = 1 << 20;
const POINTS = 300;

const isDict = (value: Plain | undefined): value is Dict =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const list = (value: Plain | undefined): Plain[] => (Array.isArray(value) ? value : []);
const bytesOf = (value: Plain | undefined): number =>
  typeof value === 'number' && Number.isFinite(value) && value >= 0 ? value : 0;
const rounded = (bytes: number): number => Math.ceil(bytes / 512) * 512;

/** The innermost frame of the program: PyTorch's own, and C++ ones, tell little. */
function place(frames: Plain | undefined): string {
  const known = list(frames).filter(isDict);
  const own = known.find(
    ({ filename }) => typeof filename === 'string' && !/(^|[\\/])torch[\\/]|^\?\?$|\.(cpp|h|so)/.test(filename),
  );
  const frame = own ?? known[0];
  if (!frame) return '';
  const file = typeof frame.filename === 'string' ? (frame.filename.split(/[\\/]/).pop() ?? '') : '';
  return `${file}${typeof frame.name === 'string' && frame.name !== '' ? `: ${frame.name}` : ''}`;
}

/** Throws a sentence where the file is no snapshot. */
export function readHistory(snapshot: Plain): History {
  if (!isDict(snapshot) || !Array.isArray(snapshot.segments) || !Array.isArray(snapshot.device_traces)) {
    throw new Error('This is no memory snapshot: “segments” and “device_traces” are missing.');
  }
  const traces = snapshot.device_traces.map(list);
  const device = traces.reduce((most, trace, i) => (trace.length > (traces[most]?.length ?? 0) ? i : most), 0);
  const trace = (traces[device] ?? []).filter(isDict);
  const notes: string[] = [];
  if (traces.filter((other) => other.length > 0).length > 1)
    notes.push(`Several devices were recorded: this is device ${device}.`);
  if (trace.length === 0)
    notes.push(
      'No history was recorded (torch.cuda.memory._record_memory_history): only the state at its end is known.',
    );

  // The end is known from the segments; what was there before the trace began follows from what it changed.
  const end = { allocated: 0, reserved: 0 };
  const standing = new Map<number, { bytes: number; where: string }>();
  for (const segment of snapshot.segments.filter(isDict)) {
    if (segment.device !== undefined && segment.device !== device) continue;
    end.reserved += bytesOf(segment.total_size);
    let address = bytesOf(segment.address);
    for (const block of list(segment.blocks).filter(isDict)) {
      const own = block.address === undefined ? address : bytesOf(block.address);
      if (block.state === 'active_allocated') {
        end.allocated += bytesOf(block.size);
        standing.set(own, { bytes: bytesOf(block.size), where: place(block.frames) });
      }
      address = own + bytesOf(block.size);
    }
  }
  const change = (event: Dict): [allocated: number, reserved: number] => {
    const size = bytesOf(event.size);
    switch (event.action) {
      case 'alloc':
        return [rounded(size), 0];
      case 'free_requested':
        return [-rounded(size), 0];
      case 'segment_alloc':
      case 'segment_map':
        return [0, size];
      case 'segment_free':
      case 'segment_unmap':
        return [0, -size];
      default:
        return [0, 0];
    }
  };
  let allocated = end.allocated;
  let reserved = end.reserved;
  for (const event of trace) {
    const [a, r] = change(event);
    allocated -= a;
    reserved -= r;
  }
  if (allocated > 64 * MIB)
    notes.push(`The history begins late: ${(allocated / MIB ** 1 / 1024).toFixed(2)} GiB were allocated before it.`);
  allocated = Math.max(allocated, 0);
  reserved = Math.max(reserved, 0);

  const peak = { allocated, reserved, event: -1 };
  let most: Point = { event: 0, allocated, reserved };
  const curve: Point[] = [most];
  const stretch = Math.max(1, Math.ceil(trace.length / POINTS));
  const large: Large[] = [];
  trace.forEach((event, i) => {
    const [a, r] = change(event);
    allocated += a;
    reserved += r;
    if (a >= MIB) large.push({ event: i, bytes: a, where: place(event.frames) });
    if (allocated > peak.allocated) Object.assign(peak, { allocated, event: i });
    peak.reserved = Math.max(peak.reserved, reserved);
    if (i % stretch === 0 || allocated > most.allocated) most = { event: i, allocated, reserved };
    if ((i + 1) % stretch === 0) curve.push(most);
    if (event.action === 'oom')
      notes.push('The run ran out of memory: what it would have needed is more than its peak.');
  });
  curve.push({ event: trace.length, allocated: end.allocated, reserved: end.reserved });

  return {
    device,
    events: trace.length,
    peak,
    curve,
    holders: holdersAt(peak.event, trace, standing),
    large,
    notes: [...new Set(notes)],
  };
}

/** Who is alive after `last`: what the trace made and did not free, and what stood before it and stands still. */
function holdersAt(last: number, trace: Dict[], standing: Map<number, { bytes: number; where: string }>): Holder[] {
  const alive = new Map<number, { bytes: number; where: string }>();
  const made = new Set<number>();
  trace.forEach((event, i) => {
    const address = bytesOf(event.addr);
    if (event.action === 'alloc') {
      made.add(address);
      if (i <= last) alive.set(address, { bytes: rounded(bytesOf(event.size)), where: place(event.frames) });
    } else if (event.action === 'free_requested') {
      if (i <= last) alive.delete(address);
      // Born before the trace and alive at the peak.
      else if (!made.has(address))
        alive.set(address, { bytes: rounded(bytesOf(event.size)), where: 'before the history' });
    }
  });
  for (const [address, block] of standing) if (!made.has(address)) alive.set(address, block);
  const sums = new Map<string, number>();
  for (const { bytes, where } of alive.values()) {
    const name = where === '' ? 'unknown' : where;
    sums.set(name, (sums.get(name) ?? 0) + bytes);
  }
  return [...sums].map(([where, bytes]) => ({ where, bytes })).sort((a, b) => b.bytes - a.bytes);
}

export interface Parting {
  /** How many of the measured run's large allocations the simulated one has in the same order. */
  same: number;
  of: number;
  /** The first that only one of them has. */
  first: { measured: Large | null; simulated: Large | null } | null;
}

const WINDOW = 24;

/** Lines up two runs by the sizes of their large allocations, from where they agree best on. */
export function parting(measured: readonly Large[], simulated: readonly Large[]): Parting {
  const run = (i: number, j: number, limit: number): number => {
    let n = 0;
    while (n < limit && i + n < measured.length && measured[i + n]?.bytes === simulated[j + n]?.bytes) n++;
    return n;
  };
  let [i, j, best] = [0, 0, 0];
  for (let a = 0; a < Math.min(measured.length, WINDOW); a++) {
    for (let b = 0; b < simulated.length; b++) {
      const n = run(a, b, 200);
      if (n > best) [i, j, best] = [a, b, n];
    }
  }
  const result: Parting = { same: 0, of: measured.length - i, first: null };
  if (best === 0) return { ...result, first: { measured: measured[0] ?? null, simulated: simulated[0] ?? null } };
  while (i < measured.length && j < simulated.length) {
    if (measured[i]?.bytes === simulated[j]?.bytes) {
      result.same++;
      i++;
      j++;
      continue;
    }
    result.first ??= { measured: measured[i] ?? null, simulated: simulated[j] ?? null };
    const again = resume(run, i, j);
    if (again === null) break;
    [i, j] = again;
  }
  return result;
}

/** The nearest place where a few agree again. */
function resume(run: (i: number, j: number, limit: number) => number, i: number, j: number): [number, number] | null {
  for (let away = 1; away <= WINDOW; away++) {
    for (let a = 0; a <= away; a++) if (run(i + a, j + away - a, 3) >= 3) return [i + a, j + away - a];
  }
  return null;
}
