import { expect, it } from 'vitest';
import type { Module } from '../wasm/report';
import { asOne, icicle, lineage } from './icicle';
import { layers, moduleTotal } from './stack';

function module(path: string, activations: number, ...children: Module[]): Module {
  return {
    path,
    type: 'Block',
    modality: 'language',
    parameters: 0,
    gradients: 0,
    optimizer_states: 0,
    activations,
    temporaries: 0,
    buffers_and_inputs: 0,
    kv_cache: 0,
    allocator_rounding: 0,
    children,
  };
}

const tree = module('', 100, module('a', 60, module('a.0', 20), module('a.1', 30)), module('b', 30), module('c', 0));

it('gives every module its share of the width, and what is left over beside its children', () => {
  expect(icicle(tree).map(({ name, level, left, width, rest }) => [name, level, left, width, rest])).toEqual([
    ['', 0, 0, 100, false],
    ['a', 1, 0, 60, false],
    ['b', 1, 60, 30, false],
    ['', 1, 90, 10, true],
    ['0', 2, 0, 20, false],
    ['1', 2, 20, 30, false],
    ['a', 2, 50, 10, true],
  ]);
});

it('draws nothing of nothing', () => {
  expect(icicle(module('', 0))).toEqual([]);
});

it('knows the way to a module', () => {
  expect(lineage(tree, 'a.1').map(({ path }) => path)).toEqual(['', 'a', 'a.1']);
  expect(lineage(tree, '').map(({ path }) => path)).toEqual(['']);
  expect(lineage(tree, 'gone.2').map(({ path }) => path)).toEqual(['']);
});

it('divides a model into layers that sum to it', () => {
  const all = layers([tree]);
  expect(all.map(({ path }) => path)).toEqual(['a.0', 'a.1', 'a', 'b', '']);
  expect(all.reduce((total, layer) => total + moduleTotal(layer), 0)).toBe(100);
});

it('shows a second model among the modules of the first', () => {
  const reference = module('reference', 40, module('reference.a', 40));
  const all = asOne([tree, reference]);
  expect(all?.children.map(({ path }) => path)).toEqual(['a', 'b', 'c', 'reference']);
  expect(all && moduleTotal(all)).toBe(140);
  expect(all && lineage(all, 'reference.a').length).toBe(3);
  expect(asOne([tree])).toBe(tree);
  expect(asOne([])).toBeUndefined();
});
