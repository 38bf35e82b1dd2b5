import { expect, it } from 'vitest';
import { applies, FIELDS, START, type Setup } from './fields';
import { toJob } from './job';
import { llava as model } from './model.fixture';
import { applied, merge } from './patch';
import { packRun } from './runfile';

it('merges as RFC 7386 says', () => {
  expect(merge({ a: { b: 1, c: 2 } }, { a: { b: null, d: 3 } })).toEqual({ a: { c: 2, d: 3 } });
  expect(merge({ a: [1, 2] }, { a: [3] })).toEqual({ a: [3] });
  expect(merge('x', { a: { b: null } })).toEqual({ a: {} });
});

it('finds every choice and count in the job that it makes', { timeout: 60_000 }, () => {
  for (const parallel of ['zero2', 'ddp']) {
    const before: Setup = { ...START, parallel };
    for (const field of FIELDS) {
      const { key, kind, choices } = field;
      if (!applies(field, model, before) || key === 'parallel') continue;
      const values = kind === 'count' ? ['3'] : [...(choices ?? [])];
      for (const value of values) {
        const wanted: Setup = { ...before, [key]: value };
        const job = { ...toJob(wanted, model) };
        expect(toJob(applied(before, model, job) ?? before, model)).toEqual(job);
      }
    }
  }
});

it('applies several at once, and leaves the rest', () => {
  const patch = {
    data: { micro_batch_size: 2 },
    training: { gradient_accumulation_steps: 4, optimizer: { name: 'sgd' } },
    parallel: { strategy: 'none', zero_stage: null },
    gpu: { name: 'a100-40gb' },
  };
  const setup = { ...START, seq: '4096' };
  expect(applied(setup, model, patch)).toEqual({
    ...setup,
    mbs: '2',
    accumulate: '4',
    optimizer: 'sgd',
    parallel: 'none',
    gpu: 'a100-40gb',
  });
});

it('leaves one strategy for another, with all that is the first one’s own', () => {
  const setup: Setup = { ...START, parallel: 'ddp', ddpviews: 'views' };
  const patch = { parallel: { strategy: 'deepspeed', zero_stage: 2, ddp: null, data: 4 } };
  expect(applied(setup, model, patch)).toMatchObject({ parallel: 'zero2', gpus: '4' });
  expect(applied(setup, model, { parallel: { ddp: { lazy_bucket_allocation: true } } })).toMatchObject({
    ddpviews: 'lazy-views',
  });
});

it('takes away what a patch removes, where its absence has a value here', () => {
  const patch = { training: { activation_checkpointing: null } };
  expect(applied(START, model, patch)).toEqual({ ...START, checkpointing: 'none' });
  expect(applied({ ...START, outputs: 'kept' }, model, { training: { keep_outputs: null } })).toEqual(START);
});

it('does not pretend to express what the form does not offer', () => {
  expect(applied(START, model, { parallel: { zero_stage: 9 } })).toBeNull();
  expect(applied(START, model, { training: { lora: { rank: 8 } } })).toBeNull();
  expect(applied(START, model, { training: { precision: 'fp8' } })).toBeNull();
  expect(applied(START, model, { data: { micro_batch_size: 2 }, training: { lora: { rank: 8 } } })).toBeNull();
});

it('takes two fields at once where neither says it alone', () => {
  const setup: Setup = { ...START, checkpointing: 'none' };
  const zero3 = { ...START, parallel: 'zero3', zerooffload: 'optimizer' };
  const job = toJob(zero3, model) as { parallel: { ds_config: object } };
  const patch = { parallel: { zero_stage: null, ds_config: job.parallel.ds_config } };
  expect(applied(setup, model, patch)).toEqual({ ...zero3, checkpointing: 'none' });
  const away = { training: { activation_checkpointing: { mode: 'non-reentrant', offload: true } } };
  expect(applied(setup, model, away)).toEqual({ ...START, saved: 'checkpoints' });
});

it('adds adapters of which no value is the form’s own', () => {
  const lora = { rank: 16, alpha: 32, dropout: 0, target_modules: '.*\\.(q_proj|v_proj)' };
  const setup: Setup = { ...START, stage: 'full' };
  const adapted = { adapters: 'lora', rank: '16', dropout: '0', targets: 'qv' };
  expect(applied(setup, model, { training: { lora } })).toEqual({ ...setup, ...adapted });
});

it('changes one’s own configuration, or leaves it', () => {
  const zero_optimization = { stage: 2, overlap_comm: false };
  const runfile = packRun({ kind: 'ds_config', config: { zero_optimization } });
  const setup: Setup = { ...START, runfile };
  const stage3 = { parallel: { ds_config: { zero_optimization: { stage: 3 } } } };
  expect(applied(setup, model, stage3)).toEqual({
    ...START,
    runfile: packRun({ kind: 'ds_config', config: { zero_optimization: { ...zero_optimization, stage: 3 } } }),
  });
  const fsdp = { parallel: { strategy: 'fsdp2', ds_config: null } };
  expect(applied(setup, model, fsdp)).toEqual({ ...START, parallel: 'fsdp2' });
});
