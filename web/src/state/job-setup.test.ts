import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { loadCore } from '../../vite.plugins';
import { START } from './fields';
import { toJob } from './job';
import type { Job } from './job.generated';
import { setupOfJob } from './job-setup';
import type { OwnModel } from './model';
import { llama, own, preset } from './model.fixture';

const core = await loadCore();
const jobs = new URL('../../../presets/jobs/', import.meta.url);
const peak = (job: object): number =>
  (JSON.parse(core.estimate(JSON.stringify(job))) as { peak: { total: number } }).peak.total;

/** Of settings that say the same. */
function hasPeak(part: object): void {
  const job = { version: 1, model: { preset: 'llama-3-8b' }, ...part } as Job;
  const named = 'preset' in job.model ? job.model.preset : undefined;
  const model = named === undefined ? own(job.model as OwnModel) : preset(named);
  const { setup, lacking } = setupOfJob(
    job,
    { model: named ?? START.model, config: named === undefined ? 'own' : '' },
    model,
  );
  expect(lacking).toEqual([]);
  expect(peak(toJob(setup, model))).toBe(peak(job));
}

describe('a job as settings', () => {
  it.each(readdirSync(jobs).filter((file) => !file.includes('original-code')))('has the peak of %s', (file) => {
    hasPeak(JSON.parse(readFileSync(new URL(file, jobs), 'utf8')) as Job);
  });

  it.each([
    { loop: 'transformers.Trainer' },
    { loop: { name: 'transformers.Trainer' }, max_grad_norm: 0 },
    { loop: { name: 'transformers.Trainer', args: { label_smoothing_factor: 0.1 } } },
    { loop: 'trl.SFTTrainer' },
    { loop: 'trl.SFTTrainer', precision: 'bf16' },
    { loop: { name: 'trl.SFTTrainer', args: { bf16: false } }, precision: 'bf16' },
    { loop: { name: 'transformers.Trainer', args: { bf16: true } }, precision: 'fp32' },
    { loop: 'transformers.Trainer', precision: 'amp-bf16' },
    { loop: 'transformers.Trainer', precision: { weights: 'bf16', autocast: 'bf16' } },
    { precision: { weights: 'bf16', autocast: 'bf16' }, activation_checkpointing: 'none' },
  ])('has the peak of one whose training is %j', (training) => {
    hasPeak({ data: { sequence_length: 512 }, training });
  });

  it.each([
    { lengths: { uniform: [100, 400] }, padding: 64, steps: 3 },
    {
      lengths: {
        histogram: [
          [100, 3],
          [512, 1],
        ],
      },
      packed: 'bfd',
      padding: 'max',
      padding_side: 'left',
      steps: 3,
    },
    { scored: { fraction: 0.25 } },
  ])('has the peak of one whose data are %j', (data) => {
    hasPeak({ data: { sequence_length: 512, micro_batch_size: 2, ...data } });
  });

  it('has the peak of an evaluation that gathers what it predicts', () => {
    const batch = Array.from({ length: 8 }, () => 512);
    hasPeak({
      data: { sequence_length: 512, evaluation: { lengths: { batches: [batch, batch] } } },
      training: { loop: { name: 'transformers.Trainer', compute_metrics: true, args: { eval_strategy: 'steps' } } },
    });
  });

  it.each([
    {
      data: { micro_batch_size: 1, sequence_length: 512 },
      training: {
        loop: {
          name: 'transformers.Trainer',
          args: { optim: 'adamw_torch_fused', save_steps: 200, weight_decay: 0.1 },
        },
        lora: { rank: 16, alpha: 16, target_modules: 'all-linear' },
      },
    },
    {
      data: { micro_batch_size: 2, sequence_length: 512 },
      training: { lora: { rank: 8, use_dora: true, target_modules: ['v_proj', 'q_proj'] } },
    },
    {
      data: { micro_batch_size: 1 },
      training: { loop: { name: 'trl.SFTTrainer', args: { optim: 'paged_adamw_8bit', max_length: 512 } } },
    },
    {
      data: { micro_batch_size: 1, sequence_length: 512 },
      parallel: { strategy: 'deepspeed', data: 4, ds_config: { zero_optimization: { stage: 2 } } },
    },
  ])('has the peak of what a trainer’s file becomes: %j', (part) => {
    hasPeak(part);
  });

  it.each(['512GiB', 549755813888, '1.5TB'])('has the memory of a machine: %s', (memory) => {
    const job = { version: 1, model: { preset: 'llama-3-8b' }, host: { memory, gpus: 4, data_workers: 2 } } as Job;
    const { setup, lacking } = setupOfJob(job, { model: 'llama-3-8b', config: '' }, preset('llama-3-8b'));
    expect(lacking).toEqual([]);
    expect(toJob(setup, preset('llama-3-8b')).host).toEqual({
      memory: typeof memory === 'number' ? '512GiB' : memory,
      gpus: 4,
      data_workers: 2,
    });
  });

  it('lacks what no field holds', () => {
    const job = { version: 1, model: { preset: 'llama-2-7b' }, parallel: { rank: 3 } } as unknown as Job;
    expect(setupOfJob(job, { model: 'llama-2-7b', config: '' }, llama).lacking).toEqual(['/parallel/rank']);
  });
});
