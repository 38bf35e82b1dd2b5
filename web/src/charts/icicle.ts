// The module tree as an icicle: each module as wide as what it holds, below the module that contains it.
import { FACTORS, type Factors } from '../format/factors';
import type { Module } from '../wasm/report';
import { moduleTotal, ownPart } from './stack';

/** Rows that are drawn below each other; deeper modules come into sight by walking in. */
export const LEVELS = 4;

/** Narrower cells cannot be seen, let alone hit. The table has them. */
const NARROWEST = 0.15;

export interface Cell {
  module: Module;
  /** Its path without that of the module above it. */
  name: string;
  level: number;
  /** In percent of the width. */
  left: number;
  width: number;
  total: number;
  /** Path of the module above it, "" for the first. */
  parent: string;
  /** What a module holds beside its children is drawn beside them, and is no module. */
  rest: boolean;
}

/** The cells of `root` and what is in it, from top to bottom and from left to right. */
export function icicle(root: Module): Cell[] {
  const whole = moduleTotal(root);
  if (whole === 0) return [];
  const cells: Cell[] = [];
  const place = (module: Module, parent: string, level: number, left: number, rest: boolean): number => {
    const total = moduleTotal(module);
    const width = (100 * total) / whole;
    if (width >= NARROWEST) {
      cells.push({ module, name: nameIn(module.path, parent), level, left, width, total, parent, rest });
    }
    if (level + 1 < LEVELS && module.children.length > 0) {
      let x = left;
      for (const child of module.children) x += place(child, module.path, level + 1, x, false);
      place(ownPart(module), module.path, level + 1, x, true);
    }
    return width;
  };
  place(root, '', 0, 0, false);
  return cells.sort((a, b) => a.level - b.level || a.left - b.left);
}

/** The models of a run as one: the first, with the others among its modules. */
export function asOne(models: readonly Module[]): Module | undefined {
  const [first, ...others] = models;
  if (!first || others.length === 0) return first;
  const held = Object.fromEntries(
    FACTORS.map(({ key }) => [key, models.reduce((all, model) => all + model[key], 0)]),
  ) as Factors;
  return { ...first, ...held, children: [...first.children, ...others] };
}

export function nameIn(path: string, parent: string): string {
  return parent !== '' && path.startsWith(parent + '.') ? path.slice(parent.length + 1) : path;
}

/** From the whole model down to the module at `path`; only the whole model where there is none such. */
export function lineage(root: Module, path: string): Module[] {
  const line = [root];
  for (let at = root; at.path !== path;) {
    const next = at.children.find((child) => child.path === path || path.startsWith(child.path + '.'));
    if (!next) return [root];
    line.push(next);
    at = next;
  }
  return line;
}
