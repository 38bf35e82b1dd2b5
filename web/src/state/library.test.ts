import { expect, it } from 'vitest';
import { START } from './fields';
import { Library } from './library';
import { traitsOf } from './model.fixture';
import { read, write } from './permalink';

const library = (): Library => new Library([], (own) => Promise.resolve(traitsOf(own)));
const own = { name: 'tiny', config: { model_type: 'llama', vocab_size: 100 } };

it('finds what a link brought, in another tab', async () => {
  const config = await library().add(own);
  const elsewhere = library();
  const setup = { ...START, config };
  expect(elsewhere.find(setup)).toBeUndefined();
  const link = await elsewhere.open(read(write(START, [setup])));
  expect(link.problems).toEqual([]);
  expect(link.pins).toEqual([setup]);
  expect(elsewhere.find(setup)).toMatchObject({ title: 'tiny', job: own, class: 'LlamaForCausalLM' });
});

it('keeps the rest of a link whose model cannot be read', async () => {
  const link = await library().open(read('#v1?config=AAAA&mbs=4'));
  expect(link.problems).toEqual(['The model in it cannot be read.']);
  expect(link.setup).toEqual({ ...START, mbs: '4' });
});
