// The arithmetic of the bars; the elements only draw it.
import { BEYOND, FACTORS, type Factors } from '../format/factors';
import { percent } from '../format/bytes';
import type { Module, Report } from '../wasm/report';

export interface Segment {
  key: string;
  label: string;
  about: string;
  bytes: number;
}

/** What the tensors hold, by factor; empty factors take no room. */
export function factorSegments(factors: Factors): Segment[] {
  return FACTORS.map(({ key, label, about }) => ({ key, label, about, bytes: factors[key] })).filter(
    ({ bytes }) => bytes > 0,
  );
}

/** Everything on the device at the peak: sums to `peak.total`. */
export function totalSegments(report: Report): Segment[] {
  const { allocated, reserved, outside_allocator } = report.peak;
  const beyond = [
    { key: 'cached', ...BEYOND.cached, bytes: reserved - allocated },
    { key: 'outside', ...BEYOND.outside, bytes: outside_allocator },
  ];
  return [...factorSegments(report.breakdown), ...beyond.filter(({ bytes }) => bytes > 0)];
}

/** Where things stand on the bar against the GPU's limit, in percent of its width. */
export interface LimitScale {
  /** Bytes that the whole width stands for. */
  whole: number;
  limit: number;
  low: number;
  high: number;
}

export function limitScale(report: Report): LimitScale {
  const limit = report.gpu.usable_bytes;
  const most = Math.max(report.peak.total, report.interval.high);
  // Where the job is larger than the GPU, a little air shows that the bar's end is no limit.
  const whole = most > limit ? most * 1.02 : limit;
  return {
    whole,
    limit: percent(limit, whole),
    low: percent(report.interval.low, whole),
    high: percent(report.interval.high, whole),
  };
}

export interface Row {
  module: Module;
  depth: number;
  /** Shown name: its path without its parent's. */
  name: string;
  total: number;
  open: boolean;
}

export function moduleTotal(module: Module): number {
  return FACTORS.reduce((total, { key }) => total + module[key], 0);
}

/** What a module holds beside the modules in it. */
export const REST = 'the rest';

/** The tree's visible rows, largest first among the top ones; inside a module they keep the model's order. */
export function moduleRows(modules: readonly Module[], open: ReadonlySet<string>): Row[] {
  return modules.flatMap((root) => {
    const { parts, wrappers } = taken(root);
    parts.sort((a, b) => moduleTotal(b) - moduleTotal(a));
    return [
      ...parts.flatMap((module) => rowsOf(module, '', 0, open)),
      ...wrappers.flatMap((module) => remainder(module, `${module.path} itself`, 0)),
      ...remainder(root, REST, 0),
    ];
  });
}

/** What people call the parts of a model: wrappers around several modalities are looked through. */
function taken(module: Module): { parts: Module[]; wrappers: Module[] } {
  const parts: Module[] = [];
  const wrappers: Module[] = [];
  for (const child of module.children) {
    if (child.modality !== '' || child.children.length === 0) {
      parts.push(child);
      continue;
    }
    const inside = taken(child);
    parts.push(...inside.parts);
    wrappers.push(child, ...inside.wrappers);
  }
  return { parts, wrappers };
}

function rowsOf(module: Module, parent: string, depth: number, open: ReadonlySet<string>): Row[] {
  const total = moduleTotal(module);
  if (total === 0) return [];
  const name =
    parent !== '' && module.path.startsWith(parent + '.') ? module.path.slice(parent.length + 1) : module.path;
  const isOpen = module.children.length > 0 && open.has(module.path);
  const row: Row = { module, depth, name, total, open: isOpen };
  if (!isOpen) return [row];
  const children = module.children.flatMap((child) => rowsOf(child, module.path, depth + 1, open));
  return [row, ...children, ...remainder(module, 'itself', depth + 1)];
}

/** What a module holds beside its children, so that they sum to it. */
export function ownPart(module: Module): Module {
  const own: Module = { ...module, type: '', children: [] };
  for (const { key } of FACTORS) {
    own[key] = module.children.reduce((rest, child) => rest - child[key], module[key]);
  }
  return own;
}

function remainder(module: Module, name: string, depth: number): Row[] {
  const own = { ...ownPart(module), path: `${module.path} ${name}` };
  const total = moduleTotal(own);
  return total === 0 ? [] : [{ module: own, depth, name, total, open: false }];
}

/** The layers of a model: modules that the report does not divide, and what those that it divides hold themselves. */
export function layers(modules: readonly Module[]): Module[] {
  return modules
    .flatMap((module) => (module.children.length === 0 ? [module] : [...layers(module.children), ownPart(module)]))
    .filter((module) => moduleTotal(module) > 0);
}
