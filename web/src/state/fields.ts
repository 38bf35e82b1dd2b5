// The settings of the page: one table that the form, the permalink and the errors all read.
//
// A setup holds what stands in each field, as text, so that a half-typed number survives; `toJob` (job.ts) makes a job of it.
// Keys and values are what permalinks hold: once published, they keep their meaning.
import { has, mixesImages, takes, type Traits } from './traits';

export type FieldKey =
  | 'task'
  | 'newtokens'
  | 'turns'
  | 'turntokens'
  | 'turnimages'
  | 'cache'
  | 'chunk'
  | 'stride'
  | 'pool'
  | 'cachebackend'
  | 'cachebits'
  | 'cachegroup'
  | 'cacheresidual'
  | 'logits'
  | 'model'
  | 'config'
  | 'stage'
  | 'gpu'
  | 'gpus'
  | 'mbs'
  | 'seq'
  | 'images'
  | 'tiles'
  | 'height'
  | 'width'
  | 'frames'
  | 'precision'
  | 'optimizer'
  | 'impl'
  | 'attention'
  | 'checkpointing'
  | 'ckptevery'
  | 'ckptplan'
  | 'saved'
  | 'liger'
  | 'ligernorm'
  | 'ligerrope'
  | 'ligermlp'
  | 'ligerloss'
  | 'losschunks'
  | 'adapters'
  | 'rank'
  | 'targets'
  | 'dropout'
  | 'lorabias'
  | 'adapterdtype'
  | 'quantization'
  | 'parallel'
  | 'runfile'
  | 'ddpviews'
  | 'ddpgraph'
  | 'ddpcap'
  | 'fsdpshard'
  | 'fsdpmp'
  | 'fsdpreshard'
  | 'fsdpparams'
  | 'fsdpprefetch'
  | 'fsdpoffload'
  | 'zerooffload'
  | 'accumulate'
  | 'outputs'
  | 'clip'
  | 'framework'
  | 'torch'
  | 'transformers'
  | 'deepspeed'
  | 'segments'
  | 'measured'
  | 'freeze'
  | 'trainonly'
  | 'nograd'
  | 'loss'
  | 'groups'
  | 'gpugib'
  | 'capability'
  | 'grid'
  | 'minpixels'
  | 'maxpixels'
  | 'loratrain'
  | 'lorascale'
  | 'lorab'
  | 'ligersum'
  | 'cacheroom'
  | 'block'
  | 'batched'
  | 'prefix'
  | 'fsdpparam'
  | 'fsdpreduce'
  | 'fsdpbuffer'
  | 'fsdpwrap'
  | 'fsdplimit'
  | 'fsdpsync'
  | 'ddpbuffers'
  | 'ddpcopy'
  | 'ddpskip'
  | 'peft'
  | 'cudnn';

export type Setup = Record<FieldKey, string>;

export interface Field {
  key: FieldKey;
  label: string;
  /** `names` and `numbers` are lists in a text, with commas or blanks between. */
  kind: 'catalogue' | 'config' | 'choice' | 'count' | 'names' | 'numbers';
  choices?: readonly string[];
  /** Whether a choice can mean anything for this model, where that is not what its traits say of the first pointer. */
  offers?: (model: Traits, value: string) => boolean;
  /** Where it stands in the job: an error at such a pointer, or under it, belongs to this field. */
  pointers: readonly string[];
  /** Whether the field means anything with the other settings, where the model has one of its pointers. */
  applies?: (model: Traits, setup: Setup) => boolean;
}

/** The settings of a job that infers; its own mean nothing in training. */
const OF_QUANTIZED: readonly FieldKey[] = ['cachebackend', 'cachebits', 'cachegroup', 'cacheresidual'];
const OF_INFERENCE: readonly FieldKey[] = [
  'newtokens',
  'turns',
  'turntokens',
  'turnimages',
  'cache',
  'pool',
  'stride',
  ...OF_QUANTIZED,
  'chunk',
  'logits',
  'cacheroom',
  'block',
  'batched',
  'prefix',
];
const SHARED = [
  'task',
  'model',
  'config',
  'gpu',
  'mbs',
  'seq',
  'images',
  'tiles',
  'height',
  'width',
  'frames',
  'precision',
  'attention',
  'torch',
  'segments',
  'gpugib',
  'capability',
  'cudnn',
];

export const infers = (setup: Setup): boolean => setup.task === 'inference';

/** Whether a setting has a meaning here. */
export function applies({ key, pointers, applies: asks }: Field, model: Traits, setup: Setup): boolean {
  const own = OF_INFERENCE.includes(key);
  if (infers(setup) ? !own && !SHARED.includes(key) : own) return false;
  if (pointers.length > 0 && !pointers.some((pointer) => has(model, pointer))) return false;
  return asks?.(model, setup) !== false;
}

/** "3" of "zero3" */
export const zeroStage = (parallel: string): string | undefined => /^zero(\d)$/.exec(parallel)?.[1];

/** The choices of a setting that can mean something for this model. */
export function choicesOf(
  { choices = [], offers, pointers: [own = ''] }: Field,
  model: Traits | null,
): readonly string[] {
  if (!model) return choices;
  return choices.filter((value) => (offers ? offers(model, value) : takes(model, own, value)));
}

/** What a setting is called where the model infers, if it is called otherwise. */
const OTHERWISE: Partial<Record<FieldKey, string>> = {
  mbs: 'Users at once',
  seq: 'Prompt tokens',
  images: 'Images per prompt',
};
export const labelOf = ({ key, label }: Field, setup: Setup): string =>
  (infers(setup) ? OTHERWISE[key] : undefined) ?? label;

const withAdapters = (_: Traits, setup: Setup): boolean => setup.adapters !== 'none';
const withLora = (model: Traits, setup: Setup): boolean => withAdapters(model, setup) && setup.adapters !== 'ia3';

/** Whether a file of one's own leaves the strategy to the settings, and it is one of these. */
const uses =
  (...strategies: string[]) =>
  (_: Traits, { parallel, runfile }: Setup): boolean =>
    runfile === '' && (strategies.length === 0 || strategies.includes(parallel));
const usesZero = uses('zero1', 'zero2', 'zero3');
const usesFsdp = uses('fsdp1', 'fsdp2');
const usesFsdp1 = uses('fsdp1');
const usesDdp = uses('ddp');

const withLiger = (_: Traits, setup: Setup): boolean => setup.liger === 'some';
const checkpoints = (_: Traits, { checkpointing }: Setup): boolean => checkpointing !== 'none';
export const isFsdpWhole = ({ parallel, fsdpshard }: Setup): boolean => parallel === 'fsdp1' && fsdpshard === 'none';
const shardsByFsdp = (model: Traits, setup: Setup): boolean => usesFsdp(model, setup) && !isFsdpWhole(setup);
const hasTurns = (_: Traits, { cache }: Setup): boolean => cache !== 'mtla';
const hasLaterTurns = (model: Traits, setup: Setup): boolean => hasTurns(model, setup) && setup.turns !== '1';
const inGroups = (_: Traits, { cache, cachebackend }: Setup): boolean =>
  cache === 'quantized' && cachebackend !== 'fp8';

const row = (
  key: FieldKey,
  label: string,
  pointer: string,
  kind: Field['kind'] | readonly string[],
  applies: NonNullable<Field['applies']>,
): Field => ({
  key,
  label,
  pointers: [pointer],
  applies,
  ...(typeof kind === 'string' ? { kind } : { kind: 'choice', choices: kind }),
});

/** What the list of GPUs calls one that it does not have. */
export const OWN_GPU = 'own';
const isOwnGpu = (_: Traits, { gpu }: Setup): boolean => gpu === OWN_GPU;

const ON_OFF = ['on', 'off'];
const FLOATS = ['own', 'bf16', 'fp16', 'fp32'];
const isCustom = (_: Traits, { stage }: Setup): boolean => stage === 'custom';
/** The size of its images, where tiles do not say it. */
const hasSize = (model: Traits, { grid }: Setup): boolean => grid === '' && !has(model, '/data/tiles');
const byPixels = (_: Traits, { grid }: Setup): boolean => grid === '';
const caches =
  (cache: string) =>
  (_: Traits, setup: Setup): boolean =>
    setup.cache === cache;
const isPaged = caches('paged');
const plainFsdp = (model: Traits, setup: Setup): boolean => usesFsdp(model, setup) && setup.fsdpmp === 'off';

/**
 * What few people set. Each stands at one place of the job, with the value that `literal` makes of it, and is left out where
 * it is as at the start.
 */
export const RARE: readonly Field[] = [
  row('freeze', 'Frozen modules', '/training/freeze', 'names', isCustom),
  row('trainonly', 'Trained modules', '/training/train_only', 'names', isCustom),
  row('nograd', 'Modules without gradient', '/training/no_grad', 'names', isCustom),
  row('grid', 'Patch grid', '/data/grid_thw', 'numbers', () => true),
  row('minpixels', 'Fewest pixels', '/data/min_pixels', 'count', byPixels),
  row('maxpixels', 'Most pixels', '/data/max_pixels', 'count', byPixels),
  row('cacheroom', 'Room of the cache', '/inference/cache/max_cache_len', 'count', caches('static')),
  row('block', 'Tokens of a block', '/inference/cache/block_size', 'count', isPaged),
  row('batched', 'Tokens of a forward', '/inference/cache/max_num_batched_tokens', 'count', isPaged),
  row('prefix', 'Shared prefix', '/inference/cache/shared_prefix', 'count', isPaged),
  {
    ...row('loss', 'Loss', '/training/loss', ['usual', 'mean', 'last_hidden_state'], () => true),
    offers: (model, value) => value === 'usual' || takes(model, '/training/loss', value),
  },
  row('groups', 'Parameter groups', '/training/optimizer/param_groups', ['2', '1'], () => true),
  row('loratrain', 'Modules saved whole', '/training/lora/modules_to_save', 'names', withLora),
  row('lorascale', 'LoRA scale by √rank', '/training/lora/use_rslora', ON_OFF, withLora),
  row(
    'lorab',
    'Bias of LoRA’s B',
    '/training/lora/lora_bias',
    ON_OFF,
    (m, s) => withLora(m, s) && s.adapters === 'lora',
  ),
  row(
    'ligersum',
    'Liger’s sums',
    '/training/liger/accum_dtype',
    ['weight', 'fp32'],
    (m, s) => withLiger(m, s) && s.ligerloss === 'fused',
  ),
  row('ddpbuffers', 'DDP sends buffers', '/parallel/ddp/broadcast_buffers', ON_OFF, usesDdp),
  row('ddpcopy', 'DDP copies by bucket', '/parallel/ddp/batched_grad_copy', ON_OFF, usesDdp),
  row('ddpskip', 'DDP skips unused', '/parallel/ddp/skip_all_reduce_unused_params', ON_OFF, usesDdp),
  row('fsdpparam', 'FSDP gathered type', '/parallel/fsdp/param_dtype', FLOATS, plainFsdp),
  row('fsdpreduce', 'FSDP reduced type', '/parallel/fsdp/reduce_dtype', FLOATS, plainFsdp),
  row(
    'fsdpbuffer',
    'FSDP1 buffer type',
    '/parallel/fsdp/buffer_dtype',
    FLOATS,
    (m, s) => plainFsdp(m, s) && usesFsdp1(m, s),
  ),
  row('fsdpwrap', 'FSDP units', '/parallel/fsdp/wrap', 'names', usesFsdp),
  row('fsdplimit', 'FSDP1 limits gathers', '/parallel/fsdp/limit_all_gathers', ON_OFF, usesFsdp1),
  row('fsdpsync', 'FSDP1 sends weights', '/parallel/fsdp/sync_module_states', ON_OFF, usesFsdp1),
  row('peft', 'PEFT', '/runtime/peft', ['0.21.2', '0.19.1', '0.17.1', '0.14.0', '0.12.0', '0.10.0'], withAdapters),
  row('cudnn', 'cuDNN', '/runtime/cudnn', ON_OFF, () => true),
];

export const FIELDS: readonly Field[] = [
  {
    key: 'task',
    label: 'Task',
    kind: 'choice',
    choices: ['train', 'inference'],
    pointers: ['/task'],
  },
  { key: 'model', label: 'Model', kind: 'catalogue', pointers: ['/model'] },
  // A pasted config.json, packed; where there is one, it stands for the model.
  { key: 'config', label: 'Own model', kind: 'config', pointers: [] },
  {
    key: 'stage',
    label: 'Stage',
    kind: 'choice',
    choices: ['pretrain', 'finetune', 'full', 'custom'],
    pointers: ['/training/stage'],
  },
  { key: 'gpu', label: 'GPU', kind: 'catalogue', pointers: ['/gpu'] },
  { key: 'gpus', label: 'Count', kind: 'count', pointers: ['/parallel/data', '/gpu/count'] },
  {
    key: 'mbs',
    label: 'Micro-batch',
    kind: 'count',
    pointers: ['/data/micro_batch_size'],
  },
  {
    key: 'seq',
    label: 'Sequence length',
    kind: 'count',
    pointers: ['/data/sequence_length'],
  },
  {
    key: 'images',
    label: 'Images per sample',
    kind: 'count',
    pointers: ['/data/images_per_sample'],
    applies: (model) => model.text,
  },
  {
    key: 'tiles',
    label: 'Image splitting',
    kind: 'choice',
    choices: ['usual', '1', '5', '10', '13', '17'],
    pointers: ['/data/tiles'],
  },
  {
    key: 'newtokens',
    label: 'New tokens',
    kind: 'count',
    pointers: ['/inference/new_tokens', '/inference'],
  },
  { key: 'turns', label: 'Turns', kind: 'count', pointers: ['/inference/turns'], applies: hasTurns },
  {
    key: 'turntokens',
    label: 'Tokens of later prompts',
    kind: 'count',
    pointers: ['/inference/turn_tokens'],
    applies: hasLaterTurns,
  },
  {
    key: 'turnimages',
    label: 'Images of later prompts',
    kind: 'count',
    pointers: ['/inference/turn_images'],
    applies: hasLaterTurns,
  },
  {
    key: 'cache',
    label: 'KV cache',
    kind: 'choice',
    choices: ['dynamic', 'static', 'offloaded', 'headinfer', 'mtla', 'quantized', 'paged'],
    pointers: ['/inference/cache/implementation', '/inference/cache'],
  },
  {
    key: 'pool',
    label: 'vLLM’s share of the GPU',
    kind: 'choice',
    choices: ['90', '95', '80', '70', '50'],
    pointers: ['/inference/cache/gpu_memory_utilization'],
    applies: isPaged,
  },
  {
    key: 'stride',
    label: 'Tokens that are merged',
    kind: 'choice',
    choices: ['2', '3', '4', '8'],
    pointers: ['/inference/cache/stride'],
    applies: caches('mtla'),
  },
  {
    key: 'cachebackend',
    label: 'Quantized by',
    kind: 'choice',
    choices: ['quanto', 'hqq', 'fp8'],
    pointers: ['/inference/cache/backend'],
    applies: caches('quantized'),
  },
  {
    key: 'cachebits',
    label: 'Bits of the cache',
    kind: 'choice',
    choices: ['4', '2'],
    pointers: ['/inference/cache/nbits'],
    applies: inGroups,
  },
  {
    key: 'cachegroup',
    label: 'Group of the cache',
    kind: 'choice',
    choices: ['64', '32', '128'],
    pointers: ['/inference/cache/q_group_size'],
    applies: inGroups,
  },
  {
    key: 'cacheresidual',
    label: 'Residual length',
    kind: 'count',
    pointers: ['/inference/cache/residual_length'],
    applies: inGroups,
  },
  {
    key: 'chunk',
    label: 'Prefill',
    kind: 'choice',
    choices: ['all', '16384', '4096', '1024'],
    pointers: ['/inference/prefill_chunk_size'],
    applies: (model, { cache }) => !mixesImages(model) && cache !== 'paged' && cache !== 'mtla',
  },
  {
    key: 'logits',
    label: 'Logits',
    kind: 'choice',
    choices: ['last', 'all'],
    pointers: ['/inference/logits'],
  },
  {
    key: 'height',
    label: 'Image height',
    kind: 'count',
    pointers: ['/data/image_size'],
    applies: hasSize,
  },
  { key: 'width', label: 'Image width', kind: 'count', pointers: ['/data/image_size'], applies: hasSize },
  {
    key: 'frames',
    label: 'Frames',
    kind: 'count',
    pointers: ['/data/frames'],
    applies: byPixels,
  },
  {
    key: 'checkpointing',
    label: 'Activation checkpointing',
    kind: 'choice',
    choices: ['none', 'non-reentrant', 'reentrant'],
    pointers: ['/training/activation_checkpointing'],
  },
  {
    key: 'ckptevery',
    label: 'Checkpointed blocks',
    kind: 'choice',
    choices: ['1', '2', '3', '4'],
    pointers: ['/training/activation_checkpointing/every'],
    applies: (model, setup) => checkpoints(model, setup) && setup.ckptplan === '',
  },
  // Blocks that the page's own panel chose, packed.
  {
    key: 'ckptplan',
    label: 'Chosen blocks',
    kind: 'config',
    pointers: ['/training/activation_checkpointing/segments'],
    applies: (model, setup) => checkpoints(model, setup) && setup.ckptplan !== '',
  },
  {
    key: 'saved',
    label: 'Saved for backward',
    kind: 'choice',
    choices: ['gpu', 'checkpoints', 'pinned', 'pageable'],
    pointers: ['/training/save_on_cpu', '/training/activation_checkpointing/offload'],
    offers: (model, value) => value !== 'checkpoints' || has(model, '/training/activation_checkpointing'),
  },
  {
    key: 'liger',
    label: 'Liger kernels',
    kind: 'choice',
    choices: ['off', 'on', 'loss', 'some'],
    pointers: ['/training/liger'],
  },
  {
    key: 'ligernorm',
    label: 'Liger RMSNorm',
    kind: 'choice',
    choices: ['on', 'off'],
    pointers: ['/training/liger/rms_norm'],
    applies: withLiger,
  },
  {
    key: 'ligerrope',
    label: 'Liger rotary embedding',
    kind: 'choice',
    choices: ['on', 'off'],
    pointers: ['/training/liger/rope'],
    applies: withLiger,
  },
  {
    key: 'ligermlp',
    label: 'Liger SwiGLU',
    kind: 'choice',
    choices: ['on', 'off'],
    pointers: ['/training/liger/swiglu'],
    applies: withLiger,
  },
  {
    key: 'ligerloss',
    label: 'Liger loss',
    kind: 'choice',
    choices: ['fused', 'plain', 'off'],
    pointers: ['/training/liger/fused_linear_cross_entropy', '/training/liger/cross_entropy'],
    applies: withLiger,
  },
  {
    key: 'losschunks',
    label: 'Loss in chunks',
    kind: 'choice',
    choices: ['off', '2', '4', '8', '16', '32'],
    pointers: ['/training/chunked_cross_entropy'],
  },
  {
    key: 'adapters',
    label: 'Adapters',
    kind: 'choice',
    choices: ['none', 'lora', 'dora', 'ia3'],
    pointers: ['/training/lora', '/training/ia3'],
  },
  {
    key: 'rank',
    label: 'LoRA rank',
    kind: 'count',
    pointers: ['/training/lora/rank'],
    applies: withLora,
  },
  {
    key: 'targets',
    label: 'LoRA layers',
    kind: 'choice',
    choices: ['qv', 'attention', 'linear'],
    pointers: ['/training/lora/target_modules'],
    applies: withLora,
  },
  {
    key: 'dropout',
    label: 'LoRA dropout',
    kind: 'choice',
    choices: ['0', '0.05', '0.1'],
    pointers: ['/training/lora/dropout'],
    applies: withLora,
  },
  {
    key: 'lorabias',
    label: 'LoRA biases',
    kind: 'choice',
    choices: ['none', 'lora_only', 'all'],
    pointers: ['/training/lora/bias'],
    applies: withLora,
  },
  {
    key: 'adapterdtype',
    label: 'Adapter precision',
    kind: 'choice',
    choices: ['fp32', 'weights'],
    pointers: ['/training/lora/autocast_adapter_dtype'],
    applies: withAdapters,
  },
  {
    key: 'quantization',
    label: 'Frozen weights',
    kind: 'choice',
    choices: ['none', 'nf4', 'nf4-double', 'fp4'],
    pointers: ['/training/quantization'],
    applies: (_, { adapters }) => adapters === 'lora',
  },
  {
    key: 'parallel',
    label: 'Parallelism',
    kind: 'choice',
    choices: ['none', 'ddp', 'zero1', 'zero2', 'zero3', 'fsdp1', 'fsdp2'],
    pointers: ['/parallel'],
    applies: uses(),
    offers: (model, value) => {
      const stage = zeroStage(value);
      if (stage === undefined) return takes(model, '/parallel/strategy', value);
      return takes(model, '/parallel/strategy', 'deepspeed') && takes(model, '/parallel/zero_stage', stage);
    },
  },
  // A pasted ds_config.json or accelerate configuration, packed; where there is one, it says what is run.
  {
    key: 'runfile',
    label: 'Own configuration',
    kind: 'config',
    pointers: ['/parallel/accelerate_config'],
  },
  {
    key: 'ddpviews',
    label: 'DDP gradients',
    kind: 'choice',
    choices: ['copied', 'views', 'lazy', 'lazy-views'],
    pointers: ['/parallel/ddp/gradient_as_bucket_view', '/parallel/ddp/lazy_bucket_allocation'],
    applies: usesDdp,
  },
  {
    key: 'ddpgraph',
    label: 'DDP graph',
    kind: 'choice',
    choices: ['all', 'unused', 'static'],
    pointers: ['/parallel/ddp'],
    applies: usesDdp,
  },
  {
    key: 'ddpcap',
    label: 'DDP bucket',
    kind: 'count',
    pointers: ['/parallel/ddp/bucket_cap_mb'],
    applies: usesDdp,
  },
  {
    key: 'fsdpshard',
    label: 'FSDP1 sharding',
    kind: 'choice',
    choices: ['full', 'none'],
    pointers: ['/parallel/fsdp/sharding'],
    applies: usesFsdp1,
  },
  {
    key: 'fsdpmp',
    label: 'FSDP precision',
    kind: 'choice',
    choices: ['off', 'on'],
    pointers: ['/parallel/fsdp/mp'],
    applies: usesFsdp,
  },
  {
    key: 'fsdpreshard',
    label: 'FSDP after forward',
    kind: 'choice',
    choices: ['on', 'off'],
    pointers: ['/parallel/fsdp'],
    applies: shardsByFsdp,
  },
  {
    key: 'fsdpparams',
    label: 'FSDP1 parameters',
    kind: 'choice',
    choices: ['original', 'flat'],
    pointers: ['/parallel/fsdp/use_orig_params'],
    applies: usesFsdp1,
  },
  {
    key: 'fsdpprefetch',
    label: 'FSDP1 prefetch',
    kind: 'choice',
    choices: ['pre', 'post', 'none', 'both'],
    pointers: ['/parallel/fsdp/backward_prefetch', '/parallel/fsdp/forward_prefetch'],
    applies: usesFsdp1,
  },
  {
    key: 'fsdpoffload',
    label: 'FSDP offload',
    kind: 'choice',
    choices: ['off', 'cpu'],
    pointers: ['/parallel/fsdp/cpu_offload'],
    applies: shardsByFsdp,
  },
  {
    key: 'zerooffload',
    label: 'ZeRO offload',
    kind: 'choice',
    choices: ['off', 'optimizer', 'both'],
    pointers: ['/parallel/ds_config'],
    applies: usesZero,
  },
  {
    key: 'precision',
    label: 'Precision',
    kind: 'choice',
    choices: ['bf16', 'fp16', 'fp32', 'amp-bf16', 'amp-fp16'],
    pointers: ['/training/precision'],
  },
  {
    key: 'optimizer',
    label: 'Optimizer',
    kind: 'choice',
    choices: ['adamw', 'adam', 'sgd', 'sgd-momentum'],
    pointers: ['/training/optimizer'],
  },
  {
    key: 'impl',
    label: 'Optimizer kernels',
    kind: 'choice',
    choices: ['fused', 'foreach', 'for-loop', 'bnb-8bit', 'bnb-8bit-paged', 'bnb-32bit-paged'],
    pointers: ['/training/optimizer/implementation'],
  },
  {
    key: 'attention',
    label: 'Attention',
    kind: 'choice',
    choices: ['sdpa', 'sdpa-flash', 'sdpa-efficient', 'sdpa-cudnn', 'sdpa-math', 'eager'],
    pointers: ['/training/attention'],
  },
  {
    key: 'accumulate',
    label: 'Gradient accumulation',
    kind: 'count',
    pointers: ['/training/gradient_accumulation_steps'],
  },
  {
    key: 'outputs',
    label: 'Model outputs',
    kind: 'choice',
    choices: ['dropped', 'kept'],
    pointers: ['/training/keep_outputs'],
  },
  {
    key: 'clip',
    label: 'Gradient clipping',
    kind: 'choice',
    choices: ['off', '1'],
    pointers: ['/training/max_grad_norm'],
  },
  {
    key: 'framework',
    label: 'Framework',
    kind: 'choice',
    choices: ['transformers', 'llava'],
    pointers: ['/runtime/framework'],
  },
  {
    key: 'segments',
    label: 'Expandable segments',
    kind: 'choice',
    choices: ['off', 'on'],
    pointers: ['/runtime/expandable_segments'],
  },
  {
    key: 'torch',
    label: 'PyTorch',
    kind: 'choice',
    choices: Array.from({ length: 16 }, (_, i) => `2.${15 - i}`),
    pointers: ['/runtime/torch'],
  },
  {
    key: 'transformers',
    label: 'transformers',
    kind: 'choice',
    choices: ['5.23', '4.57.1', '4.51.3', '4.48.3', '4.46.3', '4.44.2', '4.40.2', '4.37.2'],
    pointers: ['/runtime/transformers'],
  },
  {
    key: 'deepspeed',
    label: 'DeepSpeed',
    kind: 'choice',
    choices: ['0.19.8', '0.14.4', '0.12.6'],
    pointers: ['/runtime/deepspeed'],
  },
  // What the comparing page found: thousandths of the simulated reserved bytes, and MiB outside of the allocator.
  { key: 'measured', label: 'Measured', kind: 'config', pointers: ['/calibration'] },
  {
    key: 'gpugib',
    label: 'Usable memory',
    kind: 'count',
    pointers: ['/gpu/usable_bytes'],
    applies: isOwnGpu,
  },
  {
    key: 'capability',
    label: 'Compute capability',
    kind: 'choice',
    choices: ['12.0', '10.0', '9.0', '8.9', '8.6', '8.0', '7.5', '7.0', '6.0'],
    pointers: ['/gpu/compute_capability'],
    applies: isOwnGpu,
  },
  ...RARE,
];

/** What the page shows first. Permalinks of version 1 hold what differs from it, so it is frozen with that version. */
export const START: Readonly<Setup> = {
  task: 'train',
  newtokens: '256',
  turns: '1',
  turntokens: '128',
  turnimages: '0',
  cache: 'dynamic',
  chunk: 'all',
  stride: '2',
  pool: '90',
  cachebackend: 'quanto',
  cachebits: '4',
  cachegroup: '64',
  cacheresidual: '128',
  logits: 'last',
  model: 'llava-1.5-7b',
  config: '',
  stage: 'finetune',
  gpu: 'h100-80gb',
  gpus: '8',
  mbs: '8',
  seq: '2048',
  images: '1',
  tiles: 'usual',
  height: '672',
  width: '448',
  frames: '1',
  checkpointing: 'non-reentrant',
  ckptevery: '1',
  ckptplan: '',
  saved: 'gpu',
  liger: 'off',
  ligernorm: 'on',
  ligerrope: 'on',
  ligermlp: 'on',
  ligerloss: 'fused',
  losschunks: 'off',
  adapters: 'none',
  rank: '128',
  targets: 'linear',
  dropout: '0.05',
  lorabias: 'none',
  adapterdtype: 'fp32',
  quantization: 'none',
  parallel: 'zero2',
  runfile: '',
  ddpviews: 'copied',
  ddpgraph: 'all',
  ddpcap: '25',
  fsdpshard: 'full',
  fsdpmp: 'off',
  fsdpreshard: 'on',
  fsdpparams: 'original',
  fsdpprefetch: 'pre',
  fsdpoffload: 'off',
  zerooffload: 'off',
  precision: 'bf16',
  optimizer: 'adamw',
  impl: 'fused',
  attention: 'sdpa',
  accumulate: '1',
  outputs: 'dropped',
  clip: 'off',
  framework: 'transformers',
  torch: '2.15',
  transformers: '5.23',
  deepspeed: '0.19.8',
  segments: 'off',
  measured: '',
  gpugib: '24',
  capability: '8.9',
  freeze: '',
  trainonly: '',
  nograd: '',
  grid: '',
  minpixels: '',
  maxpixels: '',
  cacheroom: '',
  block: '16',
  batched: '',
  prefix: '0',
  loss: 'usual',
  groups: '2',
  loratrain: '',
  lorascale: 'off',
  lorab: 'off',
  ligersum: 'weight',
  ddpbuffers: 'on',
  ddpcopy: 'off',
  ddpskip: 'off',
  fsdpparam: 'own',
  fsdpreduce: 'own',
  fsdpbuffer: 'own',
  fsdpwrap: '',
  fsdplimit: 'on',
  fsdpsync: 'off',
  peft: '0.21.2',
  cudnn: 'on',
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
export function number(text: string): number {
  const value = text.replaceAll(/[\s,_]/g, '');
  return value === '' ? Number.NaN : Number(value);
}

/** A count that cannot be sent to the core: empty, or not a number at all. */
export function unreadable(setup: Setup, model: Traits): { field: Field; message: string } | null {
  for (const candidate of FIELDS) {
    const { key, kind } = candidate;
    const value = setup[key];
    if (kind !== 'count' || (value === '' && START[key] === '') || !applies(candidate, model, setup)) continue;
    if (!Number.isFinite(number(value)))
      return { field: candidate, message: `Type a whole number, such as ${START[key] || 4096}.` };
  }
  return null;
}
