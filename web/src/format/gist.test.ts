import { expect, it } from 'vitest';
import type { Job } from '../state/job.generated';
import { gist } from './gist';

it.each<[object, string]>([
  [{}, 'M: training, bf16, micro-batch 1'],
  [
    {
      data: { micro_batch_size: 8, sequence_length: 2048 },
      training: { stage: 'finetune', precision: 'amp-bf16', activation_checkpointing: 'non-reentrant', lora: {} },
      parallel: { strategy: 'deepspeed', zero_stage: 3 },
    },
    'M: fine-tuning, LoRA, amp-bf16, checkpointing, micro-batch 8, 2,048 tokens, ZeRO-3',
  ],
  [
    { parallel: { strategy: 'deepspeed', ds_config: { zero_optimization: { stage: 1, offload_optimizer: {} } } } },
    'M: training, bf16, micro-batch 1, ZeRO-1, offload',
  ],
  [
    { training: { lora: {}, quantization: {}, liger: true }, parallel: { strategy: 'fsdp2' } },
    'M: training, QLoRA, bf16, Liger, micro-batch 1, FSDP2',
  ],
  [
    { task: 'inference', data: { micro_batch_size: 16, sequence_length: 4096 } },
    'M: inference, 16 at once, 4,096 tokens',
  ],
])('says what was asked: case %#', (job, says) => {
  expect(gist('M', { version: 1, model: { preset: 'x' }, ...job } as unknown as Job)).toBe(says);
});
