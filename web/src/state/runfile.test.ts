import { describe, expect, it } from 'vitest';
import { fieldAt, START } from './fields';
import { toJob } from './job';
import { read, write } from './permalink';
import { packRun, runOf, unpackRun, withRun } from './runfile';
import { llama } from './model.fixture';

const accelerate = {
  compute_environment: 'LOCAL_MACHINE',
  debug: false,
  distributed_type: 'FSDP',
  downcast_bf16: 'no',
  fsdp_config: { fsdp_offload_params: false, fsdp_version: 2 },
  machine_rank: 0,
  mixed_precision: 'bf16',
  num_processes: 4,
  tpu_env: [],
  main_process_ip: null,
};

describe('a file of one’s own', () => {
  it('is recognised by its keys', () => {
    expect(runOf(accelerate)).toEqual({ kind: 'accelerate_config', config: accelerate });
    expect(runOf({ zero_optimization: { stage: 2 } })?.kind).toBe('ds_config');
    expect(runOf({ model_type: 'llama' })).toBeNull();
    expect(runOf('distributed_type')).toBeNull();
  });
  it('travels in a link', () => {
    const file = { kind: 'ds_config', config: { zero_optimization: { stage: 2 }, note: 'Größe ✓' } } as const;
    expect(unpackRun(packRun(file))).toEqual(file);
    const setup = withRun(START, file);
    expect(read(write(setup)).setup).toEqual(setup);
    expect(read('#v1?runfile=abc').problems).toHaveLength(1);
    expect(read('#v1?runfile=abc').setup.runfile).toBe('');
  });
  it('says what is run, and what of the other settings it fixes', () => {
    const setup = withRun(START, { kind: 'accelerate_config', config: accelerate });
    expect(setup).toMatchObject({ gpus: '4', precision: 'amp-bf16' });
    expect(toJob(setup, llama)).toMatchObject({
      parallel: { accelerate_config: accelerate, data: 4 },
      training: { precision: 'amp-bf16' },
    });
    expect(toJob(setup, llama).parallel).not.toHaveProperty('strategy');
    const config = { zero_optimization: { stage: 3 }, fp16: { enabled: true }, train_micro_batch_size_per_gpu: 2 };
    const zero = withRun(START, { kind: 'ds_config', config });
    expect(zero).toMatchObject({ precision: 'fp16', mbs: '2' });
    expect(toJob(zero, llama).parallel).toEqual({ strategy: 'deepspeed', ds_config: config, data: 8 });
    expect(fieldAt('/parallel/accelerate_config/num_processes')?.key).toBe('runfile');
  });
});
