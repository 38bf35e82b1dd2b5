import { expect, it } from 'vitest';
import type { Trouble } from '../wasm/ask';
import { START, type Setup } from './fields';
import { fixesOf } from './fixes';
import { llava } from './model.fixture';

const trouble = (...fixes: [label: string, change: Record<string, unknown>][]): Trouble => ({
  key: null,
  message: '',
  error: { code: '', pointer: '', message: '', fixes: fixes.map(([label, change]) => ({ label, change })) },
});
const wordsOf = (setup: Setup, given: Trouble): string[] =>
  fixesOf(given, setup, llava, null).map(({ words }) => words);

it('says in the form’s words what one setting does, and in the core’s what several do', () => {
  const none: Setup = { ...START, parallel: 'none' };
  expect(wordsOf(none, trouble(['Use one GPU', { parallel: { data: 1 } }]))).toEqual(['Set GPUs to 1 and continue']);
  const one = { parallel: { strategy: 'none', data: 1, zero_stage: null } };
  expect(wordsOf(START, trouble(['Use one GPU', one]))).toEqual(['Use one GPU and continue']);
});

it('offers once what two changes come to', () => {
  const none: Setup = { ...START, parallel: 'none' };
  const given = trouble(['Use one GPU', { parallel: { data: 1 } }], ['Run one process', { parallel: { data: 1 } }]);
  expect(wordsOf(none, given)).toEqual(['Set GPUs to 1 and continue']);
});

it('goes back to a plain loop, and leaves the rest', () => {
  const setup: Setup = { ...START, loop: 'transformers.Trainer', saved: 'pinned' };
  const [fix] = fixesOf(trouble(['Run a plain loop', { training: { loop: null } }]), setup, llava, null);
  expect(fix?.words).toBe('Set Training loop to Plain PyTorch and continue');
  expect(fix?.setup).toEqual({ ...setup, loop: 'step' });
});

it('offers nothing that the form cannot say', () => {
  expect(wordsOf(START, trouble(['Rank 3', { parallel: { rank: 3 } }]))).toEqual([]);
  expect(fixesOf({ key: null, message: '' }, START, llava, null)).toEqual([]);
});
