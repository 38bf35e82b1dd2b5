import { expect, it } from 'vitest';
import { START } from './fields';
import { Library } from './library';
import { read, write } from './permalink';

const own = { name: 'tiny', config: { model_type: 'llama', vocab_size: 100 } };

it('finds what a link brought, in another tab', async () => {
  const config = await new Library([]).add(own);
  const elsewhere = new Library([]);
  const setup = { ...START, config };
  expect(elsewhere.find(setup)).toBeUndefined();
  const link = await elsewhere.open(read(write(START, [setup])));
  expect(link.problems).toEqual([]);
  expect(link.pins).toEqual([setup]);
  expect(elsewhere.find(setup)).toMatchObject({ title: 'tiny', job: own, text: true, images: false });
});

it('keeps the rest of a link whose model cannot be read', async () => {
  const link = await new Library([]).open(read('#v1?config=AAAA&mbs=4'));
  expect(link.problems).toEqual(['The model in it cannot be read.']);
  expect(link.setup).toEqual({ ...START, mbs: '4' });
});
