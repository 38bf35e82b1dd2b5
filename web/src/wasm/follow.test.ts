import { beforeAll, expect, it } from 'vitest';
import { loadCore } from '../../vite.plugins';
import { START } from '../state/fields';
import { Library } from '../state/library';
import { write } from '../state/permalink';
import { follow } from './follow';
import { wrap, type Core } from './wrap';

const whole = await loadCore();
let core: Core;
let library: Library;

beforeAll(async () => {
  core = await wrap(() => Promise.resolve(whole));
  library = new Library([], core.traits);
});

it('reads a link to a model of first answers with no other', async () => {
  const setup = { ...START, model: 'llama-3-8b' };
  expect(await follow(core, library, write(setup))).toMatchObject({ setup, problems: [] });
  expect(library.find(setup)?.title).toBe('Llama-3 8B');
  expect(core.catalogue.models.some(({ id }) => id === 'qwen3-8b')).toBe(false);
});

it('knows the models of later answers when a link or a pin names one', async () => {
  const pin = { ...START, model: 'qwen3-8b' };
  expect((await follow(core, library, write(START, [pin]))).pins).toEqual([pin]);
  expect(library.find(pin)).toMatchObject({ title: 'Qwen3 8B', text: true, images: false });
  expect((await follow(core, library, '#v1?model=qwen9')).problems).toEqual(['Model cannot be “qwen9”.']);
});
