import { describe, expect, it } from 'vitest';
import type { Missing } from '../wasm/imported';
import { byEffect, gpusOf, isVariable, isWanted, namedIn, nameOf, shortly, withVariables } from './imported';

const missing = (kind: Missing['kind'], name: string): Missing => ({ kind, name, file: '', key: '', text: '' });

describe('what is missing', () => {
  it('is a file by the last part of its name, or any config.json', () => {
    const file = { name: 'ds_z3.json', content: {} };
    expect(isWanted(file, missing('file', 'examples/deepspeed/ds_z3.json'))).toBe(true);
    expect(isWanted(file, missing('file', 'examples/deepspeed/ds_z2.json'))).toBe(false);
    expect(isWanted(file, missing('file', ''))).toBe(false);
    expect(isWanted(file, missing('config.json', 'a/b'))).toBe(false);
    expect(isWanted({ name: 'x.json', content: { model_type: 'llama' } }, missing('config.json', 'a/b'))).toBe(true);
    expect(isWanted(file, missing('gpus', ''))).toBe(false);
  });

  it('is a variable that can be said', () => {
    expect(isVariable(missing('variable', 'MODEL_PATH'))).toBe(true);
    expect(isVariable(missing('variable', '$(nproc)'))).toBe(false);
    expect(isVariable(missing('file', 'MODEL'))).toBe(false);
  });
});

it('finds the models that files may name', () => {
  const catalogue = [{ id: 'Qwen/Qwen3-8B' }, { id: 'meta-llama/Llama-3.1-8B' }];
  const files = [{ name: 'a.yaml', content: { model_name_or_path: '/models/qwen3-8b' } }];
  expect(namedIn(files, catalogue)).toEqual([{ id: 'Qwen/Qwen3-8B' }]);
});

describe('variables', () => {
  const variables = new Map([
    ['MODEL', 'a/b'],
    ['NOTE', "it's; rm"],
  ]);
  it.each([
    ['trl sft --model $MODEL\n', "MODEL='a/b'; NOTE='it'\\''s; rm'; trl sft --model $MODEL\n"],
    ['#!/bin/bash\ntrl sft\n', "MODEL='a/b'; NOTE='it'\\''s; rm'\ntrl sft\n"],
  ])('stand in the first line of a script, so that lines keep their numbers', (script, written) => {
    expect(withVariables([{ name: 'run.sh', content: script }], variables)).toEqual([
      { name: 'run.sh', content: written },
    ]);
  });

  it('leave a tree as it is', () => {
    const files = [{ name: 'a.yaml', content: { a: 1 } }];
    expect(withVariables(files, variables)).toEqual(files);
    expect(withVariables([{ name: 'run.sh', content: '#!/bin/sh\n' }], new Map())[0]?.content).toBe('#!/bin/sh\n');
  });
});

it('counts the GPUs of a job', () => {
  const model = { preset: 'llama-3-8b' } as const;
  expect(gpusOf({ version: 1, model })).toBe(1);
  expect(gpusOf({ version: 1, model, parallel: { strategy: 'ddp', data: 8 } })).toBe(8);
  expect(gpusOf({ version: 1, model, parallel: { accelerate_config: { num_processes: 4 } } })).toBe(4);
});

it('writes keys and values of tables', () => {
  expect(nameOf('/training/lora/rank')).toBe('training.lora.rank');
  expect(shortly(null)).toBe('');
  expect(shortly(false)).toBe('false');
  expect(shortly('bf16')).toBe('bf16');
  expect(shortly({ a: [1] })).toBe('{"a":[1]}');
  expect(shortly('x'.repeat(100))).toBe(`${'x'.repeat(59)}…`);
});

it('puts what may need more first', () => {
  const rows = (['less', 'more', 'either', 'unknown'] as const).map((effect) => ({
    ...{ file: '', key: '', value: null, text: '', bytes: null },
    effect,
  }));
  expect(byEffect(rows).map(({ effect }) => effect)).toEqual(['more', 'unknown', 'either', 'less']);
});
