// What the form offers, asked of the real core: no choice may lead to an error that is not the person's own.
import { readFileSync } from 'node:fs';
import { beforeAll, describe, expect, it } from 'vitest';
import type { Oometer } from '../../wasm/oometer.mjs';
import { applies, change, FIELDS, START, toJob, type Setup } from '../../web/src/state/fields';
import { Library } from '../../web/src/state/library';
import { read } from '../../web/src/state/permalink';
import { ask, isTrouble } from '../../web/src/wasm/ask';
import { wrap, type Core } from '../../web/src/wasm/wrap';

const built = new URL('../../build/wasm/', import.meta.url);
const links = new URL('../permalinks/v1.txt', import.meta.url);

let core: Core;

beforeAll(async () => {
  const { default: create } = (await import(/* @vite-ignore */ new URL('oometer.mjs', built).href)) as {
    default: (options: { wasmBinary: Uint8Array }) => Promise<Oometer>;
  };
  const module = await create({ wasmBinary: readFileSync(new URL('oometer.wasm', built)) });
  core = wrap(module, () => Promise.resolve(module));
});

function answer(setup: Setup): string {
  const preset = core.catalogue.models.find(({ id }) => id === setup.model);
  if (!preset) return `no such model: ${setup.model}`;
  const result = core.estimate(toJob(setup, preset));
  return result.ok ? 'answered' : `${result.error.pointer}: ${result.error.message}`;
}

describe('every choice is answered', () => {
  // ZeRO has its own ways with precision and optimizers; alone on a GPU each must work.
  const alone: Setup = { ...START, parallel: 'none', gpus: '1', mbs: '1' };
  const eight: Setup = { ...START, model: 'llama-3-8b', stage: 'full' };
  /** Where the settings that mean nothing there mean something. */
  const others: Setup[] = [
    { ...alone, adapters: 'lora' },
    { ...alone, liger: 'some' },
    { ...alone, model: 'smolvlm-500m' },
    { ...alone, task: 'inference' },
    { ...alone, task: 'inference', cache: 'paged' },
    { ...eight, parallel: 'ddp' },
    { ...eight, parallel: 'zero3' },
    { ...eight, parallel: 'fsdp2', precision: 'fp32' },
    { ...eight, parallel: 'fsdp1', precision: 'fp32' },
  ];

  it('every model, training and inference', () => {
    for (const { id } of core.catalogue.models)
      for (const task of ['train', 'inference'])
        expect(`${id} ${task} ${answer({ ...alone, stage: 'full', model: id, task })}`).toBe(`${id} ${task} answered`);
  });

  for (const field of FIELDS) {
    if (!field.choices) continue;
    it(`${field.label}, wherever it applies`, () => {
      const setup = [alone, ...others].find(({ model, ...rest }) => {
        const preset = core.catalogue.models.find(({ id }) => id === model);
        return preset && applies(field, preset, { model, ...rest });
      });
      if (!setup) throw new Error('it applies nowhere');
      for (const { value } of field.choices ?? []) {
        expect(`${value} ${answer({ ...setup, [field.key]: value })}`).toBe(`${value} answered`);
      }
    });
  }

  it('models, with the settings that picking them brings', () => {
    for (const { id, sequence_length, images } of core.catalogue.models) {
      const setup = { ...alone, model: id, stage: images ? 'finetune' : 'full', seq: String(sequence_length ?? 1) };
      expect(`${id} ${answer(setup)}`).toBe(`${id} answered`);
    }
  });

  it('each model, picked while another is shown', () => {
    const { models } = core.catalogue;
    for (const before of models) {
      const shown = change(START, 'model', before.id, models);
      for (const { id } of models) {
        expect(`${before.id} → ${id} ${answer(change(shown, 'model', id, models))}`).toBe(
          `${before.id} → ${id} answered`,
        );
      }
    }
  });

  it('GPUs', () => {
    for (const { id } of core.catalogue.gpus) {
      expect(`${id} ${answer({ ...START, gpu: id })}`).toBe(`${id} answered`);
    }
  });
});

it('every link that was given out is answered, with its own models and its pins', async () => {
  const library = new Library(core.catalogue.models);
  const known = { model: core.catalogue.models.map(({ id }) => id), gpu: core.catalogue.gpus.map(({ id }) => id) };
  for (const line of readFileSync(links, 'utf8').split('\n')) {
    if (!line.startsWith('#v')) continue;
    const { setup, pins, problems } = await library.open(read(line.split('\t')[0] ?? '', known));
    expect(problems).toEqual([]);
    for (const one of [setup, ...pins]) {
      const result = ask(core, one, library.find);
      expect(`${line.slice(0, 60)} ${isTrouble(result) ? result.message : 'answered'}`).toBe(
        `${line.slice(0, 60)} answered`,
      );
    }
  }
});
