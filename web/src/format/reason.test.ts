import { expect, it } from 'vitest';
import { sentences } from './reason';

it.each([
  ['found 0; expected a whole number from 1 to 1048576', 'Enter 1 or more.'],
  ['found 2000000; expected a whole number from 1 to 1048576', 'Enter 1048576 or less.'],
  [
    'found "deepspeed"; quantized weights under it are not supported yet; expected none or ddp',
    'Quantized weights under it are not supported yet. Expected none or ddp.',
  ],
  [
    'found 8 replicas without a strategy; expected ddp, or deepspeed with a zero_stage',
    'Found 8 replicas without a strategy. Expected ddp, or deepspeed with a zero_stage.',
  ],
  ['found "bf"; did you mean "bf16"?', 'Did you mean "bf16"?'],
  ['this takes the whole core', 'This takes the whole core.'],
])('%s', (message, said) => {
  expect(sentences(message)).toBe(said);
});
