// The settings of the page: one table that the form, the permalink and the errors all read.
//
// A setup holds what stands in each field, as text, so that a half-typed number survives; `toJob` makes a job of it.
// Keys and values are what permalinks hold: once published, they keep their meaning.
import type { Job } from './job.generated';
import type { Model, Traits } from './model';

export type FieldKey =
  | 'model'
  | 'config'
  | 'stage'
  | 'gpu'
  | 'gpus'
  | 'mbs'
  | 'seq'
  | 'images'
  | 'precision'
  | 'optimizer'
  | 'impl'
  | 'attention'
  | 'checkpointing'
  | 'ckptevery'
  | 'saved'
  | 'liger'
  | 'adapters'
  | 'rank'
  | 'targets'
  | 'dropout'
  | 'adapterdtype'
  | 'quantization'
  | 'parallel'
  | 'ddpviews'
  | 'ddpgraph'
  | 'ddpcap'
  | 'fsdpmp'
  | 'fsdpreshard'
  | 'fsdpparams'
  | 'fsdpoffload'
  | 'zerooffload'
  | 'accumulate'
  | 'clip'
  | 'framework'
  | 'torch'
  | 'transformers'
  | 'deepspeed'
  | 'segments';

export type Setup = Record<FieldKey, string>;

export interface Choice {
  value: string;
  label: string;
  /** One sentence: what one gets by choosing it. */
  about: string;
}

export interface Field {
  key: FieldKey;
  label: string;
  /** One sentence: what it is, or what it does to memory. */
  hint?: string;
  kind: 'catalogue' | 'config' | 'choice' | 'count';
  choices?: readonly Choice[];
  /** Where it stands in the job: an error at such a pointer, or under it, belongs to this field. */
  pointers: readonly string[];
  /** Whether the field means anything for this model and the other settings. */
  applies?: (model: Traits, setup: Setup) => boolean;
}

/** Whether a setting has a meaning here. */
export function applies({ applies: asks }: Field, model: Traits, setup: Setup): boolean {
  return asks?.(model, setup) !== false;
}

const withAdapters = (_: Traits, setup: Setup): boolean => setup.adapters !== 'none';
const withLora = (_: Traits, setup: Setup): boolean => setup.adapters === 'lora' || setup.adapters === 'dora';

const choices = (...rows: [value: string, label: string, about: string][]): Choice[] =>
  rows.map(([value, label, about]) => ({ value, label, about }));

const versions = (...names: string[]): Choice[] =>
  choices(...names.map((name): [string, string, string] => [name, name, '']));

const usesZero = (_: Traits, { parallel }: Setup): boolean => parallel.startsWith('zero');
const usesFsdp = (_: Traits, { parallel }: Setup): boolean => parallel === 'fsdp1' || parallel === 'fsdp2';
const usesFsdp1 = (_: Traits, { parallel }: Setup): boolean => parallel === 'fsdp1';
const usesDdp = (_: Traits, { parallel }: Setup): boolean => parallel === 'ddp';

export const FIELDS: readonly Field[] = [
  { key: 'model', label: 'Model', kind: 'catalogue', pointers: ['/model'] },
  // A pasted config.json, packed; where there is one, it stands for the model.
  { key: 'config', label: 'Own model', kind: 'config', pointers: [] },
  {
    key: 'stage',
    label: 'Stage',
    kind: 'choice',
    choices: choices(
      ['pretrain', 'Pre-train', 'Only the projector between image and text learns.'],
      ['finetune', 'Fine-tune', 'Projector and language model learn; the vision encoder is frozen.'],
      ['full', 'Full', 'Every weight learns.'],
    ),
    pointers: ['/training/stage'],
  },
  { key: 'gpu', label: 'GPU', kind: 'catalogue', pointers: ['/gpu'] },
  { key: 'gpus', label: 'Count', hint: 'GPUs in the job.', kind: 'count', pointers: ['/parallel/data', '/gpu/count'] },
  {
    key: 'mbs',
    label: 'Micro-batch',
    hint: 'samples on one GPU at once',
    kind: 'count',
    pointers: ['/data/micro_batch_size'],
  },
  {
    key: 'seq',
    label: 'Sequence length',
    hint: 'tokens, images’ too',
    kind: 'count',
    pointers: ['/data/sequence_length'],
    applies: (model) => model.text,
  },
  {
    key: 'images',
    label: 'Images per sample',
    hint: 'for the vision encoder',
    kind: 'count',
    pointers: ['/data/images_per_sample'],
    applies: (model) => model.images && model.text,
  },
  {
    key: 'checkpointing',
    label: 'Activation checkpointing',
    hint: 'Forget activations, and compute them again when the backward pass needs them.',
    kind: 'choice',
    choices: choices(
      ['none', 'Off', 'Every activation is kept: fastest, and the most memory.'],
      ['non-reentrant', 'On', 'Only each block’s input is kept; about a third more time.'],
      ['reentrant', 'On, reentrant', 'PyTorch’s older way, with its own peaks.'],
    ),
    pointers: ['/training/activation_checkpointing'],
  },
  {
    key: 'ckptevery',
    label: 'Checkpointed blocks',
    hint: 'Those that are left out keep their activations, and save the time.',
    kind: 'choice',
    choices: choices(
      ['1', 'All', 'The least memory that checkpointing whole blocks gives.'],
      ['2', 'Every 2nd', 'transformers’ every_n_layers: half of the extra time.'],
      ['3', 'Every 3rd', 'A third of the extra time.'],
      ['4', 'Every 4th', 'A quarter of the extra time.'],
    ),
    pointers: ['/training/activation_checkpointing/every'],
    applies: (_, { checkpointing }) => checkpointing !== 'none',
  },
  {
    key: 'saved',
    label: 'Saved for backward',
    hint: 'Where what the forward pass keeps for the backward pass lies meanwhile.',
    kind: 'choice',
    choices: choices(
      ['gpu', 'On the GPU', 'PyTorch’s default.'],
      [
        'checkpoints',
        'Checkpoints on the host',
        'transformers’ offload: each checkpointed block’s input in pinned memory.',
      ],
      ['pinned', 'All on the host', 'save_on_cpu, pinned: activations and the weights that autograd keeps; slow.'],
    ),
    pointers: ['/training/save_on_cpu', '/training/activation_checkpointing/offload'],
  },
  {
    key: 'liger',
    label: 'Liger kernels',
    hint: 'Fused kernels of one more library, liger-kernel, for the language model and the loss.',
    kind: 'choice',
    choices: choices(
      ['off', 'Off', 'transformers’ own modules; the loss sees every logit in fp32.'],
      [
        'on',
        'All',
        'RMSNorm, rotary embedding and SwiGLU keep less, and logits exist for a chunk of tokens at a time.',
      ],
      ['loss', 'The loss alone', 'Head and cross-entropy by chunks of tokens; the model stays as it is.'],
    ),
    pointers: ['/training/liger'],
    applies: (model) => model.text,
  },
  {
    key: 'adapters',
    label: 'Adapters',
    hint: 'Freeze the weights of the language model, and train small matrices beside them (peft).',
    kind: 'choice',
    choices: choices(
      ['none', 'None', 'The weights that the stage names learn themselves.'],
      ['lora', 'LoRA', 'Two small matrices a layer learn; gradients and optimizer states are theirs alone.'],
      ['dora', 'DoRA', 'LoRA with a learnt length; each forward makes whole weights anew, for a moment or to keep.'],
      ['ia3', 'IA³', 'One learnt vector for keys, values and the MLP: next to nothing to train.'],
    ),
    pointers: ['/training/lora', '/training/ia3'],
  },
  {
    key: 'rank',
    label: 'LoRA rank',
    hint: 'columns of each matrix',
    kind: 'count',
    pointers: ['/training/lora/rank'],
    applies: withLora,
  },
  {
    key: 'targets',
    label: 'LoRA layers',
    hint: 'Which layers get an adapter. Each one keeps activations of its own.',
    kind: 'choice',
    choices: choices(
      ['qv', 'Queries, values', 'q_proj and v_proj: peft’s usual choice.'],
      ['attention', 'Attention', 'All four projections of attention.'],
      ['linear', 'Every linear layer', 'Attention and MLP, as LLaVA’s own recipe and QLoRA’s paper have it.'],
    ),
    pointers: ['/training/lora/target_modules'],
    applies: withLora,
  },
  {
    key: 'dropout',
    label: 'LoRA dropout',
    hint: 'On each adapter’s input; with any, each layer keeps a mask.',
    kind: 'choice',
    choices: choices(
      ['0', 'None', 'No masks.'],
      ['0.05', '5 %', 'LLaVA’s own recipe; a byte an element for the mask.'],
      ['0.1', '10 %', 'As much memory as 5 %.'],
    ),
    pointers: ['/training/lora/dropout'],
    applies: withLora,
  },
  {
    key: 'adapterdtype',
    label: 'Adapter precision',
    hint: 'What peft makes of adapters beside half-precision weights; DeepSpeed turns them back.',
    kind: 'choice',
    choices: choices(
      ['fp32', 'fp32', 'peft’s default: more exact, and inputs are copied in four bytes an element.'],
      ['weights', 'As the weights', 'autocast_adapter_dtype=False: half of that.'],
    ),
    pointers: ['/training/lora/autocast_adapter_dtype'],
    applies: withAdapters,
  },
  {
    key: 'quantization',
    label: 'Frozen weights',
    hint: 'QLoRA: bitsandbytes keeps the frozen weights in 4 bits, and makes each anew when it is used.',
    kind: 'choice',
    choices: choices(
      ['none', 'As the precision says', 'LoRA alone.'],
      ['nf4', 'NF4', 'Half a byte a weight, and four bytes for every 64; all else becomes fp32.'],
      ['nf4-double', 'NF4, double', 'The bytes for every 64 are quantised too.'],
    ),
    pointers: ['/training/quantization'],
    applies: (_, { adapters }) => adapters === 'lora',
  },
  {
    key: 'parallel',
    label: 'Parallelism',
    hint: 'How the GPUs share the work and the memory.',
    kind: 'choice',
    choices: choices(
      ['none', 'None', 'One GPU holds everything.'],
      ['ddp', 'DDP', 'Each GPU has its own samples, and holds everything.'],
      ['zero1', 'DeepSpeed ZeRO-1', 'Each GPU has its own samples; optimizer states are spread over all.'],
      [
        'zero2',
        'DeepSpeed ZeRO-2',
        'Each GPU has its own samples; gradients and optimizer states are spread over all.',
      ],
      [
        'zero3',
        'DeepSpeed ZeRO-3',
        'Weights, gradients and optimizer states are spread over all; each layer is gathered as it runs.',
      ],
      [
        'fsdp1',
        'FSDP1',
        'As FSDP2, with each block’s weights in one flat parameter; one that is partly trained has whole gradients.',
      ],
      [
        'fsdp2',
        'FSDP2',
        'Weights, gradients and optimizer states are spread over all; each block is gathered as it runs.',
      ],
    ),
    pointers: ['/parallel'],
  },
  {
    key: 'ddpviews',
    label: 'DDP gradients',
    hint: 'Gradients travel in buckets, which are as large as all of them.',
    kind: 'choice',
    choices: choices(
      ['copied', 'Copied', 'PyTorch’s default: gradients, and buckets beside them.'],
      ['views', 'Views', 'gradient_as_bucket_view: the buckets are the gradients.'],
      ['lazy', 'Lazy', 'lazy_bucket_allocation: buckets only while a backward runs; PyTorch 2.15.'],
      ['lazy-views', 'Lazy views', 'Both: neither buckets nor gradients between steps.'],
    ),
    pointers: ['/parallel/ddp/gradient_as_bucket_view', '/parallel/ddp/lazy_bucket_allocation'],
    applies: usesDdp,
  },
  {
    key: 'ddpgraph',
    label: 'DDP graph',
    hint: 'What DDP is told about the parameters that a step uses.',
    kind: 'choice',
    choices: choices(
      ['all', 'All used', 'PyTorch’s default.'],
      ['unused', 'Some unused', 'find_unused_parameters: every output is cloned, logits too.'],
      ['static', 'Static', 'static_graph: the first step finds out; it alone clones the outputs.'],
    ),
    pointers: ['/parallel/ddp'],
    applies: usesDdp,
  },
  {
    key: 'ddpcap',
    label: 'DDP bucket',
    hint: 'MiB of gradients that travel together',
    kind: 'count',
    pointers: ['/parallel/ddp/bucket_cap_mb'],
    applies: usesDdp,
  },
  {
    key: 'fsdpmp',
    label: 'FSDP precision',
    hint: 'Mixed precision for gathered parameters and reduced gradients; it wants fp32 weights.',
    kind: 'choice',
    choices: choices(
      ['off', 'The weights’ own', 'Everything in the precision above.'],
      ['on', 'Mixed, bf16', 'fp32 shards, gathered and computed in bf16, gradients reduced in fp32.'],
    ),
    pointers: ['/parallel/fsdp/mp'],
    applies: usesFsdp,
  },
  {
    key: 'fsdpreshard',
    label: 'FSDP after forward',
    hint: 'What becomes of a block’s gathered parameters until backward.',
    kind: 'choice',
    choices: choices(
      ['on', 'Shard again', 'They are gathered twice a step: the least memory.'],
      ['off', 'Keep gathered', 'FSDP1’s SHARD_GRAD_OP, FSDP2’s reshard_after_forward=False: all stay until backward.'],
    ),
    pointers: ['/parallel/fsdp'],
    applies: usesFsdp,
  },
  {
    key: 'fsdpparams',
    label: 'FSDP1 parameters',
    hint: 'What the optimizer sees: it decides whether trained and frozen weights may share a block.',
    kind: 'choice',
    choices: choices(
      ['original', 'Original', 'use_orig_params, accelerate’s default: a part of each weight.'],
      ['flat', 'Flat', 'One flat parameter a block, all trained or all frozen.'],
    ),
    pointers: ['/parallel/fsdp/use_orig_params'],
    applies: usesFsdp1,
  },
  {
    key: 'fsdpoffload',
    label: 'FSDP offload',
    hint: 'Where the shards are between uses.',
    kind: 'choice',
    choices: choices(
      ['off', 'On the GPU', 'Shards, gradients and optimizer states stay.'],
      ['cpu', 'In host memory', 'Only what runs is on the GPU; much slower.'],
    ),
    pointers: ['/parallel/fsdp/cpu_offload'],
    applies: usesFsdp,
  },
  {
    key: 'zerooffload',
    label: 'ZeRO offload',
    hint: 'What waits in host memory until it is needed.',
    kind: 'choice',
    choices: choices(
      ['off', 'Nothing', 'Everything stays on the GPUs.'],
      ['optimizer', 'The optimizer', 'offload_optimizer: masters, moments and gradients; the step runs on the CPU.'],
      ['both', 'Optimizer and weights', 'offload_param too: only what runs is on the GPU; stage 3, and much slower.'],
    ),
    pointers: ['/parallel/ds_config'],
    applies: usesZero,
  },
  {
    key: 'precision',
    label: 'Precision',
    hint: 'The number format of weights and computation.',
    kind: 'choice',
    choices: choices(
      ['bf16', 'bf16', 'Two bytes a weight; the usual choice since A100.'],
      ['fp16', 'fp16', 'Two bytes a weight; for older GPUs.'],
      ['fp32', 'fp32', 'Four bytes a weight, four an activation.'],
      ['amp-bf16', 'Mixed, bf16', 'fp32 weights, computed in bf16 (autocast).'],
      ['amp-fp16', 'Mixed, fp16', 'fp32 weights, computed in fp16 (autocast).'],
    ),
    pointers: ['/training/precision'],
  },
  {
    key: 'optimizer',
    label: 'Optimizer',
    hint: 'What it remembers of each trained weight.',
    kind: 'choice',
    choices: choices(
      ['adamw', 'AdamW', 'Two moments a weight; the usual choice.'],
      ['adam', 'Adam', 'Two moments a weight.'],
      ['sgd', 'SGD', 'Nothing a weight; rarely trains a transformer well.'],
      ['sgd-momentum', 'SGD, momentum', 'One moment a weight.'],
    ),
    pointers: ['/training/optimizer'],
  },
  {
    key: 'impl',
    label: 'Optimizer kernels',
    hint: 'How PyTorch runs the optimizer; it changes what its step holds for a moment.',
    kind: 'choice',
    choices: choices(
      ['fused', 'fused', 'One kernel, no temporaries.'],
      ['foreach', 'foreach', 'Many weights at once: temporaries as large as the weights.'],
      ['for-loop', 'for-loop', 'One weight after another: slow, small temporaries.'],
      ['bnb-8bit', '8-bit', 'bitsandbytes: moments in a byte each, and a number a block; embeddings keep fp32.'],
      ['bnb-8bit-paged', '8-bit, paged', 'The same in unified memory, which the GPU holds while there is room.'],
      ['bnb-32bit-paged', '32-bit, paged', 'bitsandbytes: fp32 moments, in unified memory.'],
    ),
    pointers: ['/training/optimizer/implementation'],
  },
  {
    key: 'attention',
    label: 'Attention',
    hint: 'Which kernel computes attention.',
    kind: 'choice',
    choices: choices(
      ['sdpa', 'SDPA', 'PyTorch picks the best kernel for the GPU.'],
      ['sdpa-flash', 'SDPA, flash', 'FlashAttention: keeps no score per pair of tokens.'],
      ['sdpa-efficient', 'SDPA, efficient', 'The memory-efficient kernel.'],
      ['sdpa-cudnn', 'SDPA, cuDNN', 'NVIDIA’s own kernel.'],
      ['sdpa-math', 'SDPA, math', 'No special kernel: a score per pair of tokens.'],
      ['eager', 'eager', 'Plain PyTorch: keeps several scores per pair of tokens.'],
    ),
    pointers: ['/training/attention'],
  },
  {
    key: 'accumulate',
    label: 'Gradient accumulation',
    hint: 'micro-batches a step',
    kind: 'count',
    pointers: ['/training/gradient_accumulation_steps'],
  },
  {
    key: 'clip',
    label: 'Gradient clipping',
    hint: 'Scales gradients down where their norm is too large.',
    kind: 'choice',
    choices: choices(
      ['off', 'Off', 'Gradients stay as they are.'],
      ['1', 'To 1', 'To a norm of 1, as most recipes do.'],
    ),
    pointers: ['/training/max_grad_norm'],
  },
  {
    key: 'framework',
    label: 'Framework',
    hint: 'Whose model code runs.',
    kind: 'choice',
    choices: choices(
      ['transformers', 'transformers', 'Hugging Face’s, checked against real runs.'],
      ['llava', 'LLaVA’s code', 'The original repository: from its source, so less sure.'],
    ),
    pointers: ['/runtime/framework'],
  },
  {
    key: 'segments',
    label: 'Expandable segments',
    hint: 'PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True',
    kind: 'choice',
    choices: choices(
      ['off', 'Off', 'PyTorch’s default.'],
      ['on', 'On', 'The allocator’s pieces can grow, so less is lost between them.'],
    ),
    pointers: ['/runtime/expandable_segments'],
  },
  {
    key: 'torch',
    label: 'PyTorch',
    hint: 'Versions allocate differently.',
    kind: 'choice',
    choices: versions(...Array.from({ length: 16 }, (_, i) => `2.${15 - i}`)),
    pointers: ['/runtime/torch'],
  },
  {
    key: 'transformers',
    label: 'transformers',
    hint: 'The version of Hugging Face’s library; those that were recorded.',
    kind: 'choice',
    choices: versions('5.23', '4.57.1', '4.51.3', '4.48.3', '4.46.3', '4.44.2', '4.40.2', '4.37.2'),
    pointers: ['/runtime/transformers'],
  },
  {
    key: 'deepspeed',
    label: 'DeepSpeed',
    hint: 'The version, where DeepSpeed spreads the job.',
    kind: 'choice',
    choices: versions('0.19.8', '0.14.4', '0.12.6'),
    pointers: ['/runtime/deepspeed'],
  },
];

/** What the page shows first. Permalinks of version 1 hold what differs from it, so it is frozen with that version. */
export const START: Readonly<Setup> = {
  model: 'llava-1.5-7b',
  config: '',
  stage: 'finetune',
  gpu: 'h100-80gb',
  gpus: '8',
  mbs: '8',
  seq: '2048',
  images: '1',
  checkpointing: 'non-reentrant',
  ckptevery: '1',
  saved: 'gpu',
  liger: 'off',
  adapters: 'none',
  rank: '128',
  targets: 'linear',
  dropout: '0.05',
  adapterdtype: 'fp32',
  quantization: 'none',
  parallel: 'zero2',
  ddpviews: 'copied',
  ddpgraph: 'all',
  ddpcap: '25',
  fsdpmp: 'off',
  fsdpreshard: 'on',
  fsdpparams: 'original',
  fsdpoffload: 'off',
  zerooffload: 'off',
  precision: 'bf16',
  optimizer: 'adamw',
  impl: 'fused',
  attention: 'sdpa',
  accumulate: '1',
  clip: 'off',
  framework: 'transformers',
  torch: '2.15',
  transformers: '5.23',
  deepspeed: '0.19.8',
  segments: 'off',
};

const BY_KEY = new Map(FIELDS.map((field) => [field.key, field]));

export function field(key: FieldKey): Field {
  const found = BY_KEY.get(key);
  if (!found) throw new Error(`no such field: ${key}`);
  return found;
}

/** The field that an error's JSON pointer belongs to: the one that names the longest part of it. */
export function fieldAt(pointer: string): Field | null {
  let best: Field | null = null;
  let length = 0;
  for (const candidate of FIELDS) {
    for (const own of candidate.pointers) {
      if ((pointer === own || pointer.startsWith(own + '/')) && own.length > length) {
        best = candidate;
        length = own.length;
      }
    }
  }
  return best;
}

/** "2,048" and " 8 " are numbers; what is none stays text, which the core refuses at the right pointer. */
function number(text: string): number {
  const value = text.replaceAll(/[\s,_]/g, '');
  return value === '' ? Number.NaN : Number(value);
}

/** A count that cannot be sent to the core: empty, or not a number at all. */
export function unreadable(setup: Setup, model: Traits): { field: Field; message: string } | null {
  for (const candidate of FIELDS) {
    if (candidate.kind !== 'count' || !applies(candidate, model, setup)) continue;
    if (!Number.isFinite(number(setup[candidate.key]))) {
      return { field: candidate, message: `Type a whole number, such as ${START[candidate.key]}.` };
    }
  }
  return null;
}

/** What differs from DistributedDataParallel's defaults: with 25 MiB it begins with a bucket of 1 MiB. */
/** The two versions name the same choice otherwise. */
function fsdpOptions({ parallel, fsdpmp, fsdpreshard, fsdpparams, fsdpoffload }: Setup): Record<string, unknown> {
  const first = parallel === 'fsdp1';
  return {
    mp: fsdpmp === 'on',
    cpu_offload: fsdpoffload === 'cpu',
    ...(first
      ? {
          sharding: fsdpreshard === 'on' ? 'FULL_SHARD' : 'SHARD_GRAD_OP',
          use_orig_params: fsdpparams === 'original',
        }
      : { reshard_after_forward: fsdpreshard === 'on' }),
  };
}

function ddpOptions({ ddpviews, ddpgraph, ddpcap }: Setup): Record<string, unknown> {
  return {
    ...(ddpviews.endsWith('views') ? { gradient_as_bucket_view: true } : {}),
    ...(ddpviews.startsWith('lazy') ? { lazy_bucket_allocation: true } : {}),
    ...(ddpgraph === 'unused' ? { find_unused_parameters: true } : {}),
    ...(ddpgraph === 'static' ? { static_graph: true } : {}),
    ...(ddpcap === START.ddpcap ? {} : { bucket_cap_mb: number(ddpcap) }),
  };
}

/** transformers’ own word where it says all. */
function checkpointing({ checkpointing: mode, ckptevery, saved }: Setup): unknown {
  const options = {
    ...(ckptevery === '1' ? {} : { every: number(ckptevery) }),
    ...(saved === 'checkpoints' ? { offload: true } : {}),
  };
  return mode === 'none' || Object.keys(options).length === 0 ? mode : { mode, ...options };
}

const LIGER: Readonly<Record<string, unknown>> = {
  on: true,
  loss: { rope: false, rms_norm: false, swiglu: false },
};

const ATTENTION = ['q_proj', 'k_proj', 'v_proj', 'o_proj', 'out_proj'];
const LAYERS: Readonly<Record<string, readonly string[]>> = {
  qv: ['q_proj', 'v_proj'],
  attention: ATTENTION,
  linear: [...ATTENTION, 'gate_proj', 'up_proj', 'down_proj', 'fc1', 'fc2'],
};

/**
 * What peft is told. Fine-tuning a model that takes images is LLaVA's own recipe (scripts/v1_5/finetune_lora.sh): adapters in
 * the language model, the projector trained in full, nothing in the vision encoder.
 */
function adapters(setup: Setup, model: Traits): object {
  if (setup.adapters === 'none') return {};
  const recipe = model.images && setup.stage !== 'full';
  const named = (names: readonly string[]): string => `${recipe ? '(?!.*vision_tower)' : ''}.*\\.(${names.join('|')})`;
  const common = {
    ...(recipe ? { also_train: [setup.framework === 'llava' ? 'mm_projector' : 'multi_modal_projector'] } : {}),
    ...(setup.adapterdtype === 'weights' ? { autocast_adapter_dtype: false } : {}),
  };
  if (setup.adapters === 'ia3') {
    const targets = named(['k_proj', 'v_proj', 'down_proj', 'fc2']);
    return { ia3: { target_modules: targets, feedforward_modules: '.*\\.(down_proj|fc2)', ...common } };
  }
  const rank = number(setup.rank);
  return {
    lora: {
      rank,
      alpha: 2 * rank,
      dropout: number(setup.dropout),
      target_modules: named(LAYERS[setup.targets] ?? []),
      ...(setup.adapters === 'dora' ? { use_dora: true } : {}),
      ...common,
    },
  };
}

/** QLoRA's recipe; where a projector trains in full beside the adapters, it is left as it is. */
function quantization(setup: Setup, model: Model): object {
  return {
    load_in_4bit: true,
    bnb_4bit_quant_type: 'nf4',
    ...(setup.quantization === 'nf4-double' ? { bnb_4bit_use_double_quant: true } : {}),
    bnb_4bit_compute_dtype: setup.precision.endsWith('fp16') ? 'float16' : 'bfloat16',
    ...(model.images && setup.stage !== 'full'
      ? { llm_int8_skip_modules: ['lm_head', 'model.multi_modal_projector'] }
      : {}),
  };
}

/** LLaVA's zero2.json or zero3.json, which the stage alone means, with what is offloaded. */
function zeroOptions(setup: Setup, stage: number): object {
  if (setup.zerooffload === 'off') return { zero_stage: stage };
  const offload = { device: 'cpu' };
  return {
    ds_config: {
      zero_optimization: {
        stage,
        overlap_comm: true,
        reduce_bucket_size: 'auto',
        ...(stage === 3 ? { stage3_prefetch_bucket_size: 'auto', stage3_param_persistence_threshold: 'auto' } : {}),
        offload_optimizer: offload,
        ...(setup.zerooffload === 'both' ? { offload_param: offload } : {}),
      },
    },
  };
}

/** The job that a setup stands for. Fields that mean nothing for the model are left out. */
export function toJob(setup: Setup, model: Model): Job {
  const means = (key: FieldKey): boolean => applies(field(key), model, setup);
  const zero = /^zero(\d)$/.exec(setup.parallel);
  const job = {
    version: 1,
    model: model.job,
    task: 'train',
    data: {
      micro_batch_size: number(setup.mbs),
      ...(means('seq') ? { sequence_length: number(setup.seq) } : {}),
      ...(means('images') ? { images_per_sample: number(setup.images) } : {}),
    },
    training: {
      stage: setup.stage,
      precision: setup.precision,
      optimizer: {
        name: setup.optimizer === 'sgd-momentum' ? 'sgd' : setup.optimizer,
        implementation: setup.impl.replace('-paged', ''),
        ...(setup.impl.endsWith('-paged') ? { paged: true } : {}),
        ...(setup.optimizer === 'sgd-momentum' ? { momentum: 0.9 } : {}),
      },
      attention: setup.attention,
      activation_checkpointing: checkpointing(setup),
      ...(setup.saved === 'pinned' ? { save_on_cpu: 'pinned' } : {}),
      ...(setup.quantization === 'none' || !means('quantization') ? {} : { quantization: quantization(setup, model) }),
      ...(setup.liger === 'off' || !means('liger') ? {} : { liger: LIGER[setup.liger] }),
      ...adapters(setup, model),
      gradient_accumulation_steps: number(setup.accumulate),
      ...(setup.clip === 'off' ? {} : { max_grad_norm: number(setup.clip) }),
    },
    parallel: {
      strategy: zero ? 'deepspeed' : setup.parallel,
      ...(zero ? zeroOptions(setup, Number(zero[1])) : {}),
      ...(setup.parallel === 'ddp' ? { ddp: ddpOptions(setup) } : {}),
      ...(setup.parallel === 'fsdp1' || setup.parallel === 'fsdp2' ? { fsdp: fsdpOptions(setup) } : {}),
      data: number(setup.gpus),
    },
    gpu: { name: setup.gpu },
    runtime: {
      framework: setup.framework,
      torch: setup.torch,
      // The original code brings its own; DeepSpeed's version means something only where it runs.
      ...(setup.framework === 'transformers' ? { transformers: setup.transformers } : {}),
      ...(zero ? { deepspeed: setup.deepspeed } : {}),
      expandable_segments: setup.segments === 'on',
    },
  };
  // The values of selects come from the schema's own lists, which the compiler cannot see.
  return job as Job;
}

/** The setup after one field has changed. */
export function change(setup: Setup, key: FieldKey, value: string, presets: readonly Model[]): Setup {
  const next = { ...setup, [key]: value };
  if (key !== 'model') return next;
  const preset = (id: string): Model | undefined => presets.find((candidate) => candidate.id === id);
  return adopt({ ...next, config: '' }, setup.config === '' ? preset(setup.model) : undefined, preset(value));
}

/**
 * Another model brings its usual length, unless another was typed, and a stage that means something for it: without a
 * part for images there is nothing to train alone.
 */
export function adopt(setup: Setup, before: Model | undefined, after: Model | undefined): Setup {
  const next = { ...setup };
  const usual = (model: Model | undefined): string => String(model?.sequence_length ?? '');
  const untouched = setup.seq === START.seq || setup.seq === usual(before);
  if (untouched && usual(after) !== '') next.seq = usual(after);
  if (after?.images === false) next.stage = 'full';
  else if (before?.images === false && setup.stage === 'full') next.stage = START.stage;
  return next;
}
