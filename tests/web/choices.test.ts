// What the form offers, asked of the real core: no choice may lead to an error that is not the person's own.
import { readFileSync } from 'node:fs';
import { beforeAll, describe, expect, it } from 'vitest';
import { adopt, change } from '../../web/src/state/adopt';
import { applies, choicesOf, field, FIELDS, OWN_GPU, START, type Setup } from '../../web/src/state/fields';
import { toJob } from '../../web/src/state/job';
import { Library } from '../../web/src/state/library';
import { ownModel, readConfig, type Model } from '../../web/src/state/model';
import { applied } from '../../web/src/state/patch';
import { read } from '../../web/src/state/permalink';
import { readAdvice } from '../../web/src/wasm/advice';
import { ask, isTrouble } from '../../web/src/wasm/ask';
import { wrap, type Core } from '../../web/src/wasm/wrap';
import { loadCore } from '../../web/vite.plugins';

const links = new URL('../permalinks/v1.txt', import.meta.url);

function graphOf(name: string, file: string): object {
  const lines = readFileSync(new URL(`../reference/${file}`, import.meta.url), 'utf8').split('\n');
  return (JSON.parse(lines.find((line) => line.startsWith(`{"name":"${name}"`)) ?? '') as { graph: object }).graph;
}
const graph = graphOf('resnet18', 'graphs.jsonl');
/** Models of one's own, by the name that a setup below has for them. */
const OWN: Record<string, Model> = {};

let whole: Awaited<ReturnType<typeof loadCore>>;
let core: Core;
const own = async (text: string): Promise<Model> => {
  const model = readConfig(text);
  return ownModel('own', model, await core.traits(model));
};

beforeAll(async () => {
  whole = await loadCore();
  core = await wrap(() => Promise.resolve(whole));
  await core.loadModels();
  OWN.graph = await own(JSON.stringify(graph));
  OWN.tower = await own('{"model_type": "clip_vision_model"}');
});

function answer(setup: Setup, own?: Model): string {
  const model = own ?? core.catalogue.models.find(({ id }) => id === setup.model);
  if (!model) return `no such model: ${setup.model}`;
  const result = core.estimate(toJob(setup, model));
  return result.ok ? 'answered' : `${result.error.pointer}: ${result.error.message}`;
}

describe('every choice is answered', () => {
  // ZeRO has its own ways with precision and optimizers; alone on a GPU each must work.
  const alone: Setup = {
    ...START,
    parallel: 'none',
    gpus: '1',
    mbs: '1',
    histogram: '900x2-700x1',
  };
  const eight: Setup = { ...START, model: 'llama-3-8b', stage: 'full' };
  /** Where the settings that mean nothing there mean something. */
  const others: Setup[] = [
    { ...alone, adapters: 'lora' },
    { ...alone, liger: 'some' },
    { ...alone, loop: 'transformers.Trainer', eval: 'epoch', metrics: 'on' },
    {
      ...alone,
      model: 'llama-3-8b',
      stage: 'full',
      lengths: 'uniform',
      shortest: '64',
      longest: '512',
    },
    { ...alone, model: 'smolvlm-500m' },
    { ...alone, model: 'qwen3.5-0.8b', stage: 'full' },
    { ...alone, model: 'qwen2.5-vl-3b', stage: 'full', imagesizes: '672x448, 224x224' },
    { ...alone, model: 'qwen2.5-vl-3b', stage: 'full', video: '4 s, 2 fps, 280x308' },
    { ...alone, task: 'inference' },
    { ...alone, task: 'inference', cache: 'paged' },
    { ...alone, task: 'inference', cache: 'quantized' },
    { ...alone, task: 'inference', model: 'llama-3-8b', stage: 'full' },
    {
      ...alone,
      task: 'inference',
      model: 'deepseek-v2-lite',
      stage: 'full',
      cache: 'mtla',
    },
    { ...eight, parallel: 'ddp' },
    { ...eight, parallel: 'zero3' },
    { ...eight, parallel: 'fsdp2', precision: 'fp32' },
    { ...eight, parallel: 'fsdp1', precision: 'fp32' },
    { ...alone, gpu: OWN_GPU },
    { ...alone, config: 'graph', stage: 'full' },
    { ...alone, config: 'tower', stage: 'full' },
  ];

  /** What trains this model; UPerNet refuses a single image. */
  const trains = (id: string): Setup => ({ ...alone, mbs: id.startsWith('upernet') ? '2' : '1' });

  it('every model, training and inference', () => {
    const { models } = core.catalogue;
    for (const { id } of models)
      for (const task of ['train', 'inference']) {
        const setup = change({ ...trains(id), stage: 'full', task }, 'model', id, models);
        expect(`${id} ${task} ${answer({ ...setup, stage: 'full' })}`).toBe(`${id} ${task} answered`);
      }
  });

  for (const field of FIELDS) {
    if (!field.choices) continue;
    it(`${field.label}, wherever it applies`, () => {
      const places = [alone, ...others].flatMap((setup): [Setup, Model][] => {
        const model = OWN[setup.config] ?? core.catalogue.models.find(({ id }) => id === setup.model);
        return model && applies(field, model, setup) ? [[setup, model]] : [];
      });
      expect(places).not.toHaveLength(0);
      // A graph offers other choices than a preset does, and a vision encoder alone another loss.
      const asked = places.filter(([{ config }], i) => i === 0 || config === 'graph' || field.key === 'loss');
      for (const [setup, model] of asked)
        for (const value of choicesOf(field, model))
          expect(`${value} ${answer({ ...setup, [field.key]: value }, model)}`).toBe(`${value} answered`);
    });
  }

  it('models, with the settings that picking them brings', () => {
    const { models } = core.catalogue;
    for (const { id } of models)
      expect(`${id} ${answer(change(trains(id), 'model', id, models))}`).toBe(`${id} answered`);
  });

  // One model of each kind: what else models differ in decides nothing here.
  it('a model of each kind, picked while one of each other kind is shown', async () => {
    const { models } = core.catalogue;
    const kinds = new Map(
      models.map((model) => [JSON.stringify([model.choices, model.without, model.images]), model.id]),
    );
    expect(kinds.size).toBeGreaterThan(5);
    const answers = new Map<string, string>(); // many kinds leave the same settings to the next
    for (const before of kinds.values()) {
      await new Promise((resume) => setTimeout(resume)); // the worker answers its host
      const shown = change(START, 'model', before, models);
      for (const id of kinds.values()) {
        const setup = change(shown, 'model', id, models);
        const asked = JSON.stringify(setup);
        const said = answers.get(asked) ?? answer(setup);
        answers.set(asked, said);
        expect(`${before} → ${id} ${said}`).toBe(`${before} → ${id} answered`);
      }
    }
  });

  it('a graph that was recorded for inference, which is its only task', async () => {
    const vgg = await own(JSON.stringify(graphOf('vgg11', 'graphs_inference.jsonl')));
    const setup = adopt(START, undefined, vgg);
    expect(choicesOf(field('task'), vgg)).toEqual(['inference']);
    expect(setup.task).toBe('inference');
    expect(answer(setup, vgg)).toBe('answered');
  });

  it('GPUs', () => {
    for (const { id } of core.catalogue.gpus) {
      expect(`${id} ${answer({ ...START, gpu: id })}`).toBe(`${id} answered`);
    }
  });
});

it('every change that the advisor knows is one press', () => {
  const changed: Partial<Setup>[] = [
    { gpu: 'rtx-4090', parallel: 'fsdp2', model: 'llama-3-8b', stage: 'full' },
    { gpu: 'a100-40gb', gpus: '4', model: 'llava-1.5-13b' },
    { gpu: 'rtx-4090', gpus: '1', parallel: 'none', checkpointing: 'none' },
  ];
  for (const setup of changed.map((change) => ({ ...START, ...change }))) {
    const model = core.catalogue.models.find(({ id }) => id === setup.model);
    if (!model) throw new Error('no such model');
    const advice = readAdvice(whole.advise(JSON.stringify(toJob(setup, model))));
    if ('pointer' in advice) throw new Error(advice.message);
    const changes = [...advice.changes, ...advice.combinations, ...advice.beside];
    expect(changes.length).toBeGreaterThan(5);
    expect(changes.filter(({ change }) => !applied(setup, model, change))).toEqual([]);
  }
});

it('adapters are where each model has its language model', () => {
  const setup: Setup = {
    ...START,
    model: 'smolvlm-2.2b',
    adapters: 'lora',
    parallel: 'none',
    gpus: '1',
    mbs: '1',
  };
  const model = core.catalogue.models.find(({ id }) => id === setup.model);
  const result = model && core.estimate(toJob(setup, model));
  if (!result?.ok) throw new Error('no answer');
  expect((result.report.model.trainable / 1e9).toFixed(2)).toBe('0.17');
  expect((result.report.peak.total / 2 ** 30).toFixed(2)).toBe('8.57');
});

it('every link that was given out is answered, with its own models and its pins', async () => {
  const library = new Library(core.catalogue.models, core.traits);
  const known = {
    model: core.catalogue.models.map(({ id }) => id),
    gpu: core.catalogue.gpus.map(({ id }) => id),
  };
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
