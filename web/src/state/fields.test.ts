import { describe, expect, it } from 'vitest';
import { change } from './adopt';
import { placeholderOf } from './explanations';
import { fieldAt, FIELDS, RARE, START, unreadable } from './fields';
import { toJob } from './job';
import { llava, preset, tower } from './model.fixture';

const llama = preset('llama-3-8b');
const qwen = preset('qwen2.5-vl-7b');

describe('toJob', () => {
  it('writes the start as a job of version 1', () => {
    expect(toJob(START, llava)).toEqual({
      version: 1,
      model: { preset: 'llava-1.5-7b' },
      task: 'train',
      data: { micro_batch_size: 8, sequence_length: 2048, images_per_sample: 1 },
      training: {
        stage: 'finetune',
        precision: 'bf16',
        optimizer: { name: 'adamw', implementation: 'fused' },
        attention: 'sdpa',
        activation_checkpointing: 'non-reentrant',
        gradient_accumulation_steps: 1,
      },
      parallel: { strategy: 'deepspeed', zero_stage: 2, data: 8 },
      gpu: { name: 'h100-80gb' },
      runtime: {
        framework: 'transformers',
        torch: '2.15',
        transformers: '5.23',
        deepspeed: '0.19.8',
        expandable_segments: false,
      },
    });
  });

  it('leaves out what means nothing for the model', () => {
    expect(toJob(START, llama).data).toEqual({ micro_batch_size: 8, sequence_length: 2048 });
    expect(toJob(START, tower).data).toEqual({ micro_batch_size: 8 });
  });

  it('gives the size of images and videos where the model takes any', () => {
    const data = { micro_batch_size: 8, sequence_length: 2048, images_per_sample: 1 };
    expect(toJob(START, qwen).data).toEqual({ ...data, image_size: [672, 448] });
    expect(toJob(START, preset('llava-v1.6-vicuna-7b')).data).toEqual({ ...data, image_size: [672, 448] });
    const video = toJob({ ...START, height: '280', width: '560', frames: '16' }, qwen);
    expect(video.data).toEqual({ ...data, image_size: [280, 560], frames: 16 });
  });

  it('names the parts of each model where adapters are trained beside them', () => {
    const lora = toJob({ ...START, adapters: 'lora', targets: 'qv' }, qwen).training;
    expect(lora).toMatchObject({
      lora: { target_modules: '(?!.*visual).*\\.(q_proj|v_proj)', also_train: ['visual.merger'] },
    });
    const smolvlm = toJob({ ...START, adapters: 'lora', targets: 'qv' }, preset('smolvlm-2.2b')).training;
    expect(smolvlm).toMatchObject({
      lora: { target_modules: '(?!.*vision_model).*\\.(q_proj|v_proj)', also_train: ['connector'] },
    });
  });

  it('says of tiles what is not the processor’s own way, where a model takes them', () => {
    const smolvlm = preset('smolvlm-2.2b');
    expect(toJob({ ...START, tiles: '5' }, smolvlm).data).toMatchObject({ tiles: 5 });
    expect(toJob(START, smolvlm).data).not.toHaveProperty('tiles');
    expect(toJob({ ...START, tiles: '5' }, llava).data).not.toHaveProperty('tiles');
  });

  it('says which biases learn beside adapters', () => {
    const lora = (setup: Partial<typeof START>): unknown => toJob({ ...START, ...setup }, llava).training?.lora;
    expect(lora({ adapters: 'lora', lorabias: 'all' })).toMatchObject({ bias: 'all' });
    expect(lora({ adapters: 'lora' })).not.toHaveProperty('bias');
  });

  it('gives vLLM its share where it has the blocks', () => {
    const cache = (setup: Partial<typeof START>): unknown =>
      toJob({ ...START, task: 'inference', ...setup }, llava).inference?.cache;
    expect(cache({ cache: 'paged', pool: '50' })).toEqual({ implementation: 'paged', gpu_memory_utilization: 0.5 });
    expect(cache({ cache: 'paged' })).toEqual({ implementation: 'paged' });
    expect(cache({ cache: 'mtla', stride: '4' })).toEqual({ implementation: 'mtla', stride: 4 });
    expect(cache({ cache: 'static', pool: '50' })).toEqual({ implementation: 'static' });
  });

  it('gives images of any size to a model that infers', () => {
    const data = toJob({ ...START, task: 'inference', height: '300', width: '412', frames: '8' }, qwen).data;
    expect(data).toMatchObject({ image_size: [300, 412], frames: 8 });
  });

  it('gives a quantized cache what its backend takes', () => {
    const cache = (setup: Partial<typeof START>): unknown =>
      toJob({ ...START, task: 'inference', cache: 'quantized', ...setup }, llava).inference?.cache;
    expect(cache({})).toEqual({ implementation: 'quantized' });
    const own = { cachebits: '2', cachegroup: '32', cacheresidual: '64' };
    const said = { nbits: 2, q_group_size: 32, residual_length: 64 };
    expect(cache(own)).toEqual({ implementation: 'quantized', ...said });
    expect(cache({ ...own, cachebackend: 'fp8' })).toEqual({ implementation: 'quantized', backend: 'fp8' });
    expect(cache({ ...own, cache: 'static' })).toEqual({ implementation: 'static' });
  });

  it('reads grouped numbers, and sends odd ones to the core as they are', () => {
    expect(toJob({ ...START, seq: '4,096', mbs: '-1.5' }, llava).data).toMatchObject({
      sequence_length: 4096,
      micro_batch_size: -1.5,
    });
  });

  it('spells out combined choices', () => {
    const job = toJob({ ...START, optimizer: 'sgd-momentum', parallel: 'none', gpus: '1', clip: '1' }, llava);
    expect(job.training).toMatchObject({ optimizer: { name: 'sgd', momentum: 0.9 }, max_grad_norm: 1 });
    expect(job.parallel).toEqual({ strategy: 'none', data: 1 });
  });

  it('says which blocks are checkpointed, and which kernels are Liger’s, where it is not the usual', () => {
    const training = (setup: Partial<typeof START>, model = llava): unknown =>
      toJob({ ...START, ...setup }, model).training;
    expect(training({ ckptevery: '3', liger: 'on' })).toMatchObject({
      activation_checkpointing: { mode: 'non-reentrant', every: 3 },
      liger: true,
    });
    expect(training({ ckptevery: '3', checkpointing: 'none' })).toMatchObject({ activation_checkpointing: 'none' });
    expect(training({ liger: 'loss' })).toMatchObject({ liger: { rope: false, rms_norm: false, swiglu: false } });
    const one = { liger: 'some', ligerrope: 'off', ligerloss: 'plain' };
    expect(training(one)).toMatchObject({
      liger: { rms_norm: true, rope: false, swiglu: true, fused_linear_cross_entropy: false, cross_entropy: true },
    });
    expect(training({ ...one, liger: 'off' })).not.toHaveProperty('liger');
    expect(training({ liger: 'on' }, tower)).not.toHaveProperty('liger');
    expect(fieldAt('/training/liger/swiglu')?.key).toBe('ligermlp');
    expect(fieldAt('/training/activation_checkpointing/every')?.key).toBe('ckptevery');
  });

  it('says where what is saved lies', () => {
    const training = (setup: Partial<typeof START>): unknown => toJob({ ...START, ...setup }, llava).training;
    expect(training({ saved: 'checkpoints' })).toMatchObject({
      activation_checkpointing: { mode: 'non-reentrant', offload: true },
    });
    expect(training({ saved: 'pinned' })).toMatchObject({ save_on_cpu: 'pinned' });
    expect(training({})).not.toHaveProperty('save_on_cpu');
  });

  it('spells out bitsandbytes’ optimizers', () => {
    const optimizer = (impl: string): unknown => toJob({ ...START, impl }, llava).training?.optimizer;
    expect(optimizer('bnb-8bit')).toEqual({ name: 'adamw', implementation: 'bnb-8bit' });
    expect(optimizer('bnb-32bit-paged')).toEqual({ name: 'adamw', implementation: 'bnb-32bit', paged: true });
  });

  it('says of DDP only what differs from its defaults, and nothing of it elsewhere', () => {
    const ddp = { ...START, parallel: 'ddp' };
    expect(toJob(ddp, llava).parallel).toEqual({ strategy: 'ddp', ddp: {}, data: 8 });
    expect(toJob({ ...ddp, ddpviews: 'lazy-views', ddpgraph: 'static', ddpcap: '50' }, llava).parallel?.ddp).toEqual({
      gradient_as_bucket_view: true,
      lazy_bucket_allocation: true,
      static_graph: true,
      bucket_cap_mb: 50,
    });
    expect(toJob({ ...START, ddpgraph: 'unused' }, llava).parallel?.ddp).toBeUndefined();
  });
});

describe('a trainer', () => {
  const one: Partial<typeof START> = { gpus: '1', parallel: 'none' };
  const trainer = { name: 'transformers.Trainer' };
  const byTrainer = change({ ...START, ...one }, 'loop', 'transformers.Trainer', []);
  it('clips by default, and a plain loop does not', () => {
    expect(byTrainer.clip).toBe('1');
    expect(toJob(byTrainer, llava).training).toMatchObject({ loop: trainer, max_grad_norm: 1 });
    expect(toJob({ ...byTrainer, clip: 'off' }, llava).training).toMatchObject({ max_grad_norm: 0 });
    expect(change(byTrainer, 'loop', 'step', []).clip).toBe('off');
    expect(toJob(START, llava).training).not.toHaveProperty('max_grad_norm');
    expect(toJob(START, llava).training).not.toHaveProperty('loop');
  });
  it('leaves autocast to nobody, and TRL’s begin with their own', () => {
    const byTrl = change(byTrainer, 'loop', 'trl.SFTTrainer', []);
    expect(byTrl).toMatchObject({ precision: 'amp-bf16', clip: '1' });
    expect(toJob(byTrl, llava).training).toMatchObject({ precision: 'amp-bf16', loop: { name: 'trl.SFTTrainer' } });
    const loop = { name: 'trl.SFTTrainer', args: { bf16: false } };
    expect(toJob({ ...byTrl, precision: 'bf16' }, llava).training).toMatchObject({ precision: 'bf16', loop });
    expect(change(byTrl, 'loop', 'step', [])).toEqual({ ...START, ...one });
    expect(change({ ...byTrl, precision: 'fp32' }, 'loop', 'step', []).precision).toBe('fp32');
  });
  it('is given its arguments by their own names, where they are not its defaults', () => {
    const training = (setup: Partial<typeof START>): unknown => toJob({ ...byTrainer, ...setup }, llava).training;
    expect(training({ smoothing: '0.1', eval: 'steps', evalbatch: '4' })).toMatchObject({
      loop: {
        name: 'transformers.Trainer',
        args: { label_smoothing_factor: 0.1, eval_strategy: 'steps', per_device_eval_batch_size: 4 },
      },
    });
    expect(training({ evalbatch: '4', metrics: 'on' })).toMatchObject({ loop: trainer });
    expect(toJob({ ...START, ...one, smoothing: '0.1' }, llava).training).not.toHaveProperty('loop');
    expect(toJob(byTrainer, tower).training).not.toHaveProperty('loop');
  });
  it('has a number of gathered batches where any are gathered', () => {
    const metrics = { eval: 'steps', metrics: 'on', evalbatch: '2', evalbatches: '3', seq: '128' };
    const full = [128, 128];
    expect(toJob({ ...byTrainer, ...metrics }, llava)).toMatchObject({
      data: { evaluation: { lengths: { batches: [full, full, full] } } },
      training: { loop: { compute_metrics: true } },
    });
    const [early, out] = [
      { ...metrics, evalaccumulate: '1' },
      { ...metrics, eval: 'no' },
    ];
    expect(toJob({ ...byTrainer, ...early }, llava).data).not.toHaveProperty('evaluation');
    expect(toJob({ ...byTrainer, ...out }, llava).data).not.toHaveProperty('evaluation');
    expect(unreadable({ ...byTrainer, ...metrics, evalbatches: '20000' }, llava)?.field.key).toBe('evalbatches');
  });
});

describe('samples', () => {
  const data = (setup: Partial<typeof START>, model = llama): object | undefined =>
    toJob({ ...START, stage: 'full', ...setup }, model).data;
  it('are full unless they have lengths', () => {
    expect(data({ padding: 'max', packed: 'bfd', steps: '4', padside: 'left' })).toEqual({
      micro_batch_size: 8,
      sequence_length: 2048,
    });
  });
  it('may have any length between two', () => {
    expect(data({ lengths: 'uniform' })).toMatchObject({ lengths: { uniform: [1024, 2048] } });
    const own = { lengths: 'uniform', shortest: '1,000', longest: '1500', padding: '64', steps: '4' };
    expect(data(own)).toMatchObject({ lengths: { uniform: [1000, 1500] }, padding: 64, steps: 4 });
  });
  it('may be packed, or be those of a list', () => {
    const list = { lengths: 'list', histogram: '512x300-1024x5', packed: 'bfd', padding: 'max', scored: '0.25' };
    expect(data(list)).toMatchObject({
      lengths: {
        histogram: [
          [512, 300],
          [1024, 5],
        ],
      },
      packed: 'bfd',
      padding: 'max',
      scored: { fraction: 0.25 },
    });
    expect(fieldAt('/data/lengths/histogram')?.key).toBe('lengths');
  });
  it('are asked for where a list has none', () => {
    expect(unreadable({ ...START, lengths: 'list' }, llava)?.field.key).toBe('histogram');
    expect(unreadable({ ...START, lengths: 'list', histogram: '5x1' }, llava)).toBeNull();
  });
  it('mean nothing where there is no text', () => {
    expect(data({ lengths: 'uniform', padding: 'max', packed: 'bfd' }, tower)).toEqual({ micro_batch_size: 8 });
  });
});

it('says the types of weights and autocast apart where no word does', () => {
  expect(toJob({ ...START, precision: 'bf16-autocast' }, llava).training).toMatchObject({
    precision: { weights: 'bf16', autocast: 'bf16' },
  });
  expect(toJob({ ...START, task: 'inference' }, llava).training).toMatchObject({ precision: 'bf16' });
});

describe('FSDP1', () => {
  it('says what is sharded by its own names, and offloads only that', () => {
    const fsdp = (setup: Partial<typeof START>): unknown =>
      toJob({ ...START, parallel: 'fsdp1', ...setup }, llava).parallel?.fsdp;
    expect(fsdp({})).toMatchObject({ sharding: 'FULL_SHARD' });
    expect(fsdp({ fsdpreshard: 'off' })).toMatchObject({ sharding: 'SHARD_GRAD_OP' });
    expect(fsdp({ fsdpshard: 'none', fsdpoffload: 'cpu' })).not.toHaveProperty('cpu_offload');
    expect(fsdp({ fsdpshard: 'none', parallel: 'fsdp2' })).toMatchObject({ reshard_after_forward: true });
  });
});

describe('DeepSpeed', () => {
  const parallel = (setup: Partial<typeof START>): unknown => toJob({ ...START, ...setup }, llava).parallel;
  it('is told LLaVA’s configuration with what is offloaded', () => {
    expect(parallel({})).toEqual({ strategy: 'deepspeed', zero_stage: 2, data: 8 });
    const offload = { device: 'cpu' };
    const zero = { overlap_comm: true, reduce_bucket_size: 'auto' };
    expect(parallel({ zerooffload: 'optimizer' })).toMatchObject({
      ds_config: { zero_optimization: { ...zero, stage: 2, offload_optimizer: offload } },
    });
    expect(parallel({ zerooffload: 'both', parallel: 'zero3' })).toMatchObject({
      ds_config: { zero_optimization: { ...zero, stage: 3, offload_optimizer: offload, offload_param: offload } },
    });
  });
});

describe('adapters', () => {
  const lora = (setup: Partial<typeof START>, model = llava): object | null | undefined =>
    toJob({ ...START, adapters: 'lora', ...setup }, model).training?.lora;
  it('are LLaVA’s own recipe where it is fine-tuned', () => {
    expect(lora({})).toEqual({
      rank: 128,
      alpha: 256,
      dropout: 0.05,
      target_modules:
        '(?!.*vision_tower).*\\.(q_proj|k_proj|v_proj|o_proj|out_proj|gate_proj|up_proj|down_proj|fc1|fc2)',
      also_train: ['multi_modal_projector'],
    });
    expect(lora({ framework: 'llava' })).toMatchObject({ also_train: ['mm_projector'] });
  });
  it('go everywhere where all of it learns, and where there is text alone', () => {
    const everywhere = { rank: 8, alpha: 16, dropout: 0, target_modules: '.*\\.(q_proj|v_proj)' };
    const setup = { stage: 'full', targets: 'qv', rank: '8', dropout: '0' };
    expect(lora(setup)).toEqual(everywhere);
    expect(lora({ ...setup, adapterdtype: 'weights' }, llama)).toEqual({
      ...everywhere,
      autocast_adapter_dtype: false,
    });
  });
  it('may be DoRA’s or IA³’s', () => {
    expect(lora({ adapters: 'dora' })).toMatchObject({ use_dora: true, rank: 128 });
    expect(toJob({ ...START, adapters: 'ia3', stage: 'full' }, llama).training?.ia3).toEqual({
      target_modules: '.*\\.(k_proj|v_proj|down_proj|fc2)',
      feedforward_modules: '.*\\.(down_proj|fc2)',
    });
    expect(fieldAt('/training/ia3/target_modules')?.key).toBe('adapters');
  });
  it('may stand beside weights in 4 bits', () => {
    const quantization = (setup: Partial<typeof START>, model = llava): unknown =>
      toJob({ ...START, adapters: 'lora', quantization: 'nf4-double', ...setup }, model).training?.quantization;
    expect(quantization({})).toEqual({
      load_in_4bit: true,
      bnb_4bit_quant_type: 'nf4',
      bnb_4bit_use_double_quant: true,
      bnb_4bit_compute_dtype: 'bfloat16',
      llm_int8_skip_modules: ['lm_head', 'model.multi_modal_projector'],
    });
    expect(quantization({ precision: 'fp16', quantization: 'nf4' }, llama)).toEqual({
      load_in_4bit: true,
      bnb_4bit_quant_type: 'nf4',
      bnb_4bit_compute_dtype: 'float16',
    });
    expect(quantization({ adapters: 'ia3' })).toBeUndefined();
  });
  it('have settings of their own, which mean nothing without them', () => {
    expect(unreadable({ ...START, rank: 'x' }, llava)).toBeNull();
    expect(unreadable({ ...START, adapters: 'lora', rank: 'x' }, llava)?.field.key).toBe('rank');
    expect(fieldAt('/training/lora/rank')?.key).toBe('rank');
    expect(fieldAt('/training/lora')?.key).toBe('adapters');
  });
});

it('an empty or wordy count is caught before the core is asked, unless its field is hidden', () => {
  expect(unreadable({ ...START, mbs: '' }, llava)?.field.key).toBe('mbs');
  expect(unreadable({ ...START, seq: 'many' }, llava)?.message).toBe('Type a whole number, such as 2048.');
  expect(unreadable({ ...START, seq: 'many' }, tower)).toBeNull();
  expect(unreadable(START, llava)).toBeNull();
});

describe('fieldAt', () => {
  it('finds the field that an error belongs to', () => {
    expect(fieldAt('/data/micro_batch_size')?.key).toBe('mbs');
    expect(fieldAt('/training/optimizer/implementation')?.key).toBe('impl');
    expect(fieldAt('/training/optimizer/name')?.key).toBe('optimizer');
    expect(fieldAt('/parallel/data')?.key).toBe('gpus');
    expect(fieldAt('/parallel/zero_stage')?.key).toBe('parallel');
    expect(fieldAt('/model/config/text_config')?.key).toBe('model');
  });
  it('does not take a longer name for a child', () => {
    expect(fieldAt('/modelling')).toBeNull();
    expect(fieldAt('')).toBeNull();
  });
});

describe('change', () => {
  it('brings the usual length of a newly picked model', () => {
    expect(change({ ...START }, 'model', 'llama-3-8b', [llava, llama]).seq).toBe('8192');
  });
  it('keeps a length that was typed', () => {
    expect(change({ ...START, seq: '1024' }, 'model', 'llama-3-8b', [llava, llama]).seq).toBe('1024');
  });
  it('brings a stage that the model has, and the usual one back', () => {
    const text = change({ ...START, stage: 'pretrain' }, 'model', 'llama-3-8b', [llava, llama]);
    expect(text.stage).toBe('full');
    expect(change(text, 'model', 'llava-1.5-7b', [llava, llama]).stage).toBe(START.stage);
    expect(change({ ...START, stage: 'full' }, 'model', 'llava-1.5-7b', [llava, llama]).stage).toBe('full');
  });
  it('of the preset leaves an own model', () => {
    expect(change({ ...START, config: 'abc' }, 'model', 'llama-3-8b', [llava, llama]).config).toBe('');
  });
});

it('every field starts with a value that it offers', () => {
  for (const field of FIELDS) {
    if (field.choices) expect(field.choices).toContain(START[field.key]);
    else if (field.kind !== 'config' && !RARE.includes(field))
      expect(START[field.key] || placeholderOf(field.key)).not.toBe('');
  }
});
