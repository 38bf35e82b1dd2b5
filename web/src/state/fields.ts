// The settings of the page: one table that the form, the permalink and the errors all read.
//
// A setup holds what stands in each field, as text, so that a half-typed number survives; `toJob` makes a job of it.
// Keys and values are what permalinks hold: once published, they keep their meaning.
import type { Job } from './job.generated';
import type { Model, Traits } from './model';
import { unpackPlan } from './plan';
import { unpackRun, type RunFile } from './runfile';

export type FieldKey =
  | 'task'
  | 'newtokens'
  | 'turns'
  | 'turntokens'
  | 'cache'
  | 'chunk'
  | 'stride'
  | 'pool'
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
  | 'measured';

export type Setup = Record<FieldKey, string>;

export interface Choice {
  value: string;
  label: string;
}

export interface Field {
  key: FieldKey;
  label: string;
  kind: 'catalogue' | 'config' | 'choice' | 'count';
  choices?: readonly Choice[];
  /** Where it stands in the job: an error at such a pointer, or under it, belongs to this field. */
  pointers: readonly string[];
  /** Whether the field means anything for this model and the other settings. */
  applies?: (model: Traits, setup: Setup) => boolean;
}

/** The settings of a job that infers; its own mean nothing in training. */
const OF_INFERENCE = ['newtokens', 'turns', 'turntokens', 'cache', 'pool', 'stride', 'chunk', 'logits'];
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
];

export const infers = (setup: Setup): boolean => setup.task === 'inference';

/** Whether a setting has a meaning here. */
export function applies({ key, applies: asks }: Field, model: Traits, setup: Setup): boolean {
  const own = OF_INFERENCE.includes(key);
  if (infers(setup) ? !own && !SHARED.includes(key) : own) return false;
  return asks?.(model, setup) !== false;
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
const withLora = (_: Traits, setup: Setup): boolean => setup.adapters === 'lora' || setup.adapters === 'dora';

const choices = (...rows: [value: string, label: string][]): Choice[] =>
  rows.map(([value, label]) => ({ value, label }));

const versions = (...names: string[]): Choice[] => choices(...names.map((name): [string, string] => [name, name]));

/** Whether a file of one's own leaves the strategy to the settings, and it is one of these. */
const uses =
  (...strategies: string[]) =>
  (_: Traits, { parallel, runfile }: Setup): boolean =>
    runfile === '' && (strategies.length === 0 || strategies.includes(parallel));
const usesZero = uses('zero1', 'zero2', 'zero3');
const usesFsdp = uses('fsdp1', 'fsdp2');
const usesFsdp1 = uses('fsdp1');
const usesDdp = uses('ddp');

const readsText = (model: Traits): boolean => model.text;
const withLiger = (model: Traits, setup: Setup): boolean => model.text && setup.liger === 'some';
const isFsdpWhole = ({ parallel, fsdpshard }: Setup): boolean => parallel === 'fsdp1' && fsdpshard === 'none';
const shardsByFsdp = (model: Traits, setup: Setup): boolean => usesFsdp(model, setup) && !isFsdpWhole(setup);
const hasTurns = (model: Traits, setup: Setup): boolean =>
  model.text && setup.cache !== 'static' && setup.cache !== 'mtla';

export const FIELDS: readonly Field[] = [
  {
    key: 'task',
    label: 'Task',
    kind: 'choice',
    choices: choices(['train', 'Training'], ['inference', 'Inference']),
    pointers: ['/task'],
  },
  { key: 'model', label: 'Model', kind: 'catalogue', pointers: ['/model'] },
  // A pasted config.json, packed; where there is one, it stands for the model.
  { key: 'config', label: 'Own model', kind: 'config', pointers: [] },
  {
    key: 'stage',
    label: 'Stage',
    kind: 'choice',
    choices: choices(['pretrain', 'Pre-train'], ['finetune', 'Fine-tune'], ['full', 'Full']),
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
    applies: (model) => model.text,
  },
  {
    key: 'images',
    label: 'Images per sample',
    kind: 'count',
    pointers: ['/data/images_per_sample'],
    applies: (model) => model.images && model.text,
  },
  {
    key: 'tiles',
    label: 'Image splitting',
    kind: 'choice',
    choices: choices(
      ['usual', 'As the processor does'],
      ['1', 'Off'],
      ['5', '2 × 2 tiles'],
      ['10', '3 × 3 tiles'],
      ['13', '3 × 4 tiles'],
      ['17', '4 × 4 tiles'],
    ),
    pointers: ['/data/tiles'],
    applies: ({ splits }) => splits === true,
  },
  {
    key: 'newtokens',
    label: 'New tokens',
    kind: 'count',
    pointers: ['/inference/new_tokens', '/inference'],
    applies: readsText,
  },
  { key: 'turns', label: 'Turns', kind: 'count', pointers: ['/inference/turns'], applies: hasTurns },
  {
    key: 'turntokens',
    label: 'Tokens of later prompts',
    kind: 'count',
    pointers: ['/inference/turn_tokens'],
    applies: (model, setup) => hasTurns(model, setup) && setup.turns !== '1',
  },
  {
    key: 'cache',
    label: 'KV cache',
    kind: 'choice',
    choices: choices(
      ['dynamic', 'Dynamic'],
      ['static', 'Static'],
      ['offloaded', 'On the host'],
      ['headinfer', 'HeadInfer’s, on the host'],
      ['mtla', 'MTLA’s, merged tokens'],
      ['paged', 'vLLM’s blocks'],
    ),
    pointers: ['/inference/cache'],
    applies: readsText,
  },
  {
    key: 'pool',
    label: 'vLLM’s share of the GPU',
    kind: 'choice',
    choices: choices(['90', '90 %'], ['95', '95 %'], ['80', '80 %'], ['70', '70 %'], ['50', '50 %']),
    pointers: ['/inference/cache/gpu_memory_utilization'],
    applies: (model, { cache }) => model.text && cache === 'paged',
  },
  {
    key: 'stride',
    label: 'Tokens that are merged',
    kind: 'choice',
    choices: choices(['2', '2'], ['3', '3'], ['4', '4'], ['8', '8']),
    pointers: ['/inference/cache/stride'],
    applies: (model, { cache }) => model.text && cache === 'mtla',
  },
  {
    key: 'chunk',
    label: 'Prefill',
    kind: 'choice',
    choices: choices(
      ['all', 'The whole prompt at once'],
      ['16384', '16,384 tokens at once'],
      ['4096', '4,096 tokens at once'],
      ['1024', '1,024 tokens at once'],
    ),
    pointers: ['/inference/prefill_chunk_size'],
    applies: (model, { cache }) => model.text && !model.images && cache !== 'paged' && cache !== 'mtla',
  },
  {
    key: 'logits',
    label: 'Logits',
    kind: 'choice',
    choices: choices(['last', 'Of the last token'], ['all', 'Of all tokens']),
    pointers: ['/inference/logits'],
    applies: readsText,
  },
  {
    key: 'height',
    label: 'Image height',
    kind: 'count',
    pointers: ['/data/image_size'],
    applies: ({ sizes }) => sizes === true,
  },
  { key: 'width', label: 'Image width', kind: 'count', pointers: [], applies: ({ sizes }) => sizes === true },
  {
    key: 'frames',
    label: 'Frames',
    kind: 'count',
    pointers: ['/data/frames'],
    applies: ({ resizes }) => resizes === true,
  },
  {
    key: 'checkpointing',
    label: 'Activation checkpointing',
    kind: 'choice',
    choices: choices(['none', 'Off'], ['non-reentrant', 'On'], ['reentrant', 'On, reentrant']),
    pointers: ['/training/activation_checkpointing'],
  },
  {
    key: 'ckptevery',
    label: 'Checkpointed blocks',
    kind: 'choice',
    choices: choices(['1', 'All'], ['2', 'Every 2nd'], ['3', 'Every 3rd'], ['4', 'Every 4th']),
    pointers: ['/training/activation_checkpointing/every'],
    applies: (_, { checkpointing, ckptplan }) => checkpointing !== 'none' && ckptplan === '',
  },
  // Blocks that the page's own panel chose, packed.
  {
    key: 'ckptplan',
    label: 'Chosen blocks',
    kind: 'config',
    pointers: ['/training/activation_checkpointing/segments'],
    applies: (_, { checkpointing, ckptplan }) => checkpointing !== 'none' && ckptplan !== '',
  },
  {
    key: 'saved',
    label: 'Saved for backward',
    kind: 'choice',
    choices: choices(
      ['gpu', 'On the GPU'],
      ['checkpoints', 'Checkpoints on the host'],
      ['pinned', 'All on the host'],
      ['pageable', 'All, pageable'],
    ),
    pointers: ['/training/save_on_cpu', '/training/activation_checkpointing/offload'],
  },
  {
    key: 'liger',
    label: 'Liger kernels',
    kind: 'choice',
    choices: choices(['off', 'Off'], ['on', 'All'], ['loss', 'The loss alone'], ['some', 'One by one']),
    pointers: ['/training/liger'],
    applies: (model) => model.text,
  },
  {
    key: 'ligernorm',
    label: 'Liger RMSNorm',
    kind: 'choice',
    choices: choices(['on', 'On'], ['off', 'Off']),
    pointers: ['/training/liger/rms_norm'],
    applies: withLiger,
  },
  {
    key: 'ligerrope',
    label: 'Liger rotary embedding',
    kind: 'choice',
    choices: choices(['on', 'On'], ['off', 'Off']),
    pointers: ['/training/liger/rope'],
    applies: withLiger,
  },
  {
    key: 'ligermlp',
    label: 'Liger SwiGLU',
    kind: 'choice',
    choices: choices(['on', 'On'], ['off', 'Off']),
    pointers: ['/training/liger/swiglu'],
    applies: withLiger,
  },
  {
    key: 'ligerloss',
    label: 'Liger loss',
    kind: 'choice',
    choices: choices(['fused', 'With the head'], ['plain', 'Cross-entropy'], ['off', 'Off']),
    pointers: ['/training/liger/fused_linear_cross_entropy', '/training/liger/cross_entropy'],
    applies: withLiger,
  },
  {
    key: 'losschunks',
    label: 'Loss in chunks',
    kind: 'choice',
    choices: choices(['off', 'Off'], ['2', '2'], ['4', '4'], ['8', '8'], ['16', '16'], ['32', '32']),
    pointers: ['/training/chunked_cross_entropy'],
    applies: (model) => model.text,
  },
  {
    key: 'adapters',
    label: 'Adapters',
    kind: 'choice',
    choices: choices(['none', 'None'], ['lora', 'LoRA'], ['dora', 'DoRA'], ['ia3', 'IA³']),
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
    choices: choices(['qv', 'Queries, values'], ['attention', 'Attention'], ['linear', 'Every linear layer']),
    pointers: ['/training/lora/target_modules'],
    applies: withLora,
  },
  {
    key: 'dropout',
    label: 'LoRA dropout',
    kind: 'choice',
    choices: choices(['0', 'None'], ['0.05', '5 %'], ['0.1', '10 %']),
    pointers: ['/training/lora/dropout'],
    applies: withLora,
  },
  {
    key: 'lorabias',
    label: 'LoRA biases',
    kind: 'choice',
    choices: choices(['none', 'None'], ['lora_only', 'Of layers with adapters'], ['all', 'All']),
    pointers: ['/training/lora/bias'],
    applies: withLora,
  },
  {
    key: 'adapterdtype',
    label: 'Adapter precision',
    kind: 'choice',
    choices: choices(['fp32', 'fp32'], ['weights', 'As the weights']),
    pointers: ['/training/lora/autocast_adapter_dtype'],
    applies: withAdapters,
  },
  {
    key: 'quantization',
    label: 'Frozen weights',
    kind: 'choice',
    choices: choices(['none', 'As the precision says'], ['nf4', 'NF4'], ['nf4-double', 'NF4, double'], ['fp4', 'FP4']),
    pointers: ['/training/quantization'],
    applies: (_, { adapters }) => adapters === 'lora',
  },
  {
    key: 'parallel',
    label: 'Parallelism',
    kind: 'choice',
    choices: choices(
      ['none', 'None'],
      ['ddp', 'DDP'],
      ['zero1', 'DeepSpeed ZeRO-1'],
      ['zero2', 'DeepSpeed ZeRO-2'],
      ['zero3', 'DeepSpeed ZeRO-3'],
      ['fsdp1', 'FSDP1'],
      ['fsdp2', 'FSDP2'],
    ),
    pointers: ['/parallel'],
    applies: uses(),
  },
  // A pasted ds_config.json or accelerate configuration, packed; where there is one, it says what is run.
  { key: 'runfile', label: 'Own configuration', kind: 'config', pointers: ['/parallel/accelerate_config'] },
  {
    key: 'ddpviews',
    label: 'DDP gradients',
    kind: 'choice',
    choices: choices(['copied', 'Copied'], ['views', 'Views'], ['lazy', 'Lazy'], ['lazy-views', 'Lazy views']),
    pointers: ['/parallel/ddp/gradient_as_bucket_view', '/parallel/ddp/lazy_bucket_allocation'],
    applies: usesDdp,
  },
  {
    key: 'ddpgraph',
    label: 'DDP graph',
    kind: 'choice',
    choices: choices(['all', 'All used'], ['unused', 'Some unused'], ['static', 'Static']),
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
    choices: choices(['full', 'Over all GPUs'], ['none', 'None']),
    pointers: ['/parallel/fsdp/sharding'],
    applies: usesFsdp1,
  },
  {
    key: 'fsdpmp',
    label: 'FSDP precision',
    kind: 'choice',
    choices: choices(['off', 'The weights’ own'], ['on', 'Mixed, bf16']),
    pointers: ['/parallel/fsdp/mp'],
    applies: usesFsdp,
  },
  {
    key: 'fsdpreshard',
    label: 'FSDP after forward',
    kind: 'choice',
    choices: choices(['on', 'Shard again'], ['off', 'Keep gathered']),
    pointers: ['/parallel/fsdp'],
    applies: shardsByFsdp,
  },
  {
    key: 'fsdpparams',
    label: 'FSDP1 parameters',
    kind: 'choice',
    choices: choices(['original', 'Original'], ['flat', 'Flat']),
    pointers: ['/parallel/fsdp/use_orig_params'],
    applies: usesFsdp1,
  },
  {
    key: 'fsdpprefetch',
    label: 'FSDP1 prefetch',
    kind: 'choice',
    choices: choices(['pre', 'Before backward'], ['post', 'After backward'], ['none', 'None'], ['both', 'Forward too']),
    pointers: ['/parallel/fsdp/backward_prefetch', '/parallel/fsdp/forward_prefetch'],
    applies: usesFsdp1,
  },
  {
    key: 'fsdpoffload',
    label: 'FSDP offload',
    kind: 'choice',
    choices: choices(['off', 'On the GPU'], ['cpu', 'In host memory']),
    pointers: ['/parallel/fsdp/cpu_offload'],
    applies: shardsByFsdp,
  },
  {
    key: 'zerooffload',
    label: 'ZeRO offload',
    kind: 'choice',
    choices: choices(['off', 'Nothing'], ['optimizer', 'The optimizer'], ['both', 'Optimizer and weights']),
    pointers: ['/parallel/ds_config'],
    applies: usesZero,
  },
  {
    key: 'precision',
    label: 'Precision',
    kind: 'choice',
    choices: choices(
      ['bf16', 'bf16'],
      ['fp16', 'fp16'],
      ['fp32', 'fp32'],
      ['amp-bf16', 'Mixed, bf16'],
      ['amp-fp16', 'Mixed, fp16'],
    ),
    pointers: ['/training/precision'],
  },
  {
    key: 'optimizer',
    label: 'Optimizer',
    kind: 'choice',
    choices: choices(['adamw', 'AdamW'], ['adam', 'Adam'], ['sgd', 'SGD'], ['sgd-momentum', 'SGD, momentum']),
    pointers: ['/training/optimizer'],
  },
  {
    key: 'impl',
    label: 'Optimizer kernels',
    kind: 'choice',
    choices: choices(
      ['fused', 'fused'],
      ['foreach', 'foreach'],
      ['for-loop', 'for-loop'],
      ['bnb-8bit', '8-bit'],
      ['bnb-8bit-paged', '8-bit, paged'],
      ['bnb-32bit-paged', '32-bit, paged'],
    ),
    pointers: ['/training/optimizer/implementation'],
  },
  {
    key: 'attention',
    label: 'Attention',
    kind: 'choice',
    choices: choices(
      ['sdpa', 'SDPA'],
      ['sdpa-flash', 'SDPA, flash'],
      ['sdpa-efficient', 'SDPA, efficient'],
      ['sdpa-cudnn', 'SDPA, cuDNN'],
      ['sdpa-math', 'SDPA, math'],
      ['eager', 'eager'],
    ),
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
    choices: choices(['dropped', 'Dropped'], ['kept', 'Kept']),
    pointers: ['/training/keep_outputs'],
  },
  {
    key: 'clip',
    label: 'Gradient clipping',
    kind: 'choice',
    choices: choices(['off', 'Off'], ['1', 'To 1']),
    pointers: ['/training/max_grad_norm'],
  },
  {
    key: 'framework',
    label: 'Framework',
    kind: 'choice',
    choices: choices(['transformers', 'transformers'], ['llava', 'LLaVA’s code']),
    pointers: ['/runtime/framework'],
  },
  {
    key: 'segments',
    label: 'Expandable segments',
    kind: 'choice',
    choices: choices(['off', 'Off'], ['on', 'On']),
    pointers: ['/runtime/expandable_segments'],
  },
  {
    key: 'torch',
    label: 'PyTorch',
    kind: 'choice',
    choices: versions(...Array.from({ length: 16 }, (_, i) => `2.${15 - i}`)),
    pointers: ['/runtime/torch'],
  },
  {
    key: 'transformers',
    label: 'transformers',
    kind: 'choice',
    choices: versions('5.23', '4.57.1', '4.51.3', '4.48.3', '4.46.3', '4.44.2', '4.40.2', '4.37.2'),
    pointers: ['/runtime/transformers'],
  },
  {
    key: 'deepspeed',
    label: 'DeepSpeed',
    kind: 'choice',
    choices: versions('0.19.8', '0.14.4', '0.12.6'),
    pointers: ['/runtime/deepspeed'],
  },
  // What the comparing page found: thousandths of the simulated reserved bytes, and MiB outside of the allocator.
  { key: 'measured', label: 'Measured', kind: 'config', pointers: ['/calibration'] },
];

/** What the page shows first. Permalinks of version 1 hold what differs from it, so it is frozen with that version. */
export const START: Readonly<Setup> = {
  task: 'train',
  newtokens: '256',
  turns: '1',
  turntokens: '128',
  cache: 'dynamic',
  chunk: 'all',
  stride: '2',
  pool: '90',
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

const PREFETCH: Readonly<Record<string, object>> = {
  post: { backward_prefetch: 'BACKWARD_POST' },
  none: { backward_prefetch: 'NO_PREFETCH' },
  both: { forward_prefetch: true },
};

/** The two versions name the same choice otherwise. */
function fsdpOptions(setup: Setup): Record<string, unknown> {
  const { parallel, fsdpmp, fsdpreshard, fsdpparams, fsdpprefetch, fsdpoffload } = setup;
  const first = parallel === 'fsdp1';
  const whole = isFsdpWhole(setup);
  return {
    mp: fsdpmp === 'on',
    cpu_offload: fsdpoffload === 'cpu' && !whole,
    ...(first
      ? {
          sharding: whole ? 'NO_SHARD' : fsdpreshard === 'on' ? 'FULL_SHARD' : 'SHARD_GRAD_OP',
          use_orig_params: fsdpparams === 'original',
          ...(fsdpprefetch === 'pre' ? {} : PREFETCH[fsdpprefetch]),
        }
      : { reshard_after_forward: fsdpreshard === 'on' }),
  };
}

/** What differs from DistributedDataParallel's defaults: with 25 MiB it begins with a bucket of 1 MiB. */
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
function checkpointing({ checkpointing: mode, ckptevery, ckptplan, saved }: Setup): unknown {
  const segments = unpackPlan(ckptplan);
  const options = {
    ...(Object.keys(segments).length > 0 ? { segments } : ckptevery === '1' ? {} : { every: number(ckptevery) }),
    ...(saved === 'checkpoints' ? { offload: true } : {}),
  };
  return mode === 'none' || Object.keys(options).length === 0 ? mode : { mode, ...options };
}

function liger({ liger: which, ligernorm, ligerrope, ligermlp, ligerloss }: Setup): unknown {
  if (which === 'on') return true;
  if (which === 'loss') return { rope: false, rms_norm: false, swiglu: false };
  return {
    rms_norm: ligernorm === 'on',
    rope: ligerrope === 'on',
    swiglu: ligermlp === 'on',
    fused_linear_cross_entropy: ligerloss === 'fused',
    cross_entropy: ligerloss === 'plain',
  };
}

const ATTENTION = ['q_proj', 'k_proj', 'v_proj', 'o_proj', 'out_proj'];
const LAYERS: Readonly<Record<string, readonly string[]>> = {
  qv: ['q_proj', 'v_proj'],
  attention: ATTENTION,
  linear: [...ATTENTION, 'gate_proj', 'up_proj', 'down_proj', 'fc1', 'fc2'],
};

const projectorOf = ({ resizes }: Traits): string => (resizes === true ? 'visual.merger' : 'multi_modal_projector');

/**
 * What peft is told. Fine-tuning a model that takes images is LLaVA's own recipe (scripts/v1_5/finetune_lora.sh): adapters in
 * the language model, the projector trained in full, nothing in the vision encoder.
 */
function adapters(setup: Setup, model: Traits): object {
  if (setup.adapters === 'none') return {};
  const recipe = model.images && setup.stage !== 'full';
  const named = (names: readonly string[]): string =>
    `${recipe ? `(?!.*${model.resizes === true ? 'visual' : 'vision_tower'})` : ''}.*\\.(${names.join('|')})`;
  const common = {
    ...(recipe ? { also_train: [setup.framework === 'llava' ? 'mm_projector' : projectorOf(model)] } : {}),
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
      ...(setup.lorabias === 'none' ? {} : { bias: setup.lorabias }),
      ...(setup.adapters === 'dora' ? { use_dora: true } : {}),
      ...common,
    },
  };
}

/** QLoRA's recipe; where a projector trains in full beside the adapters, it is left as it is. */
function quantization(setup: Setup, model: Model): object {
  return {
    load_in_4bit: true,
    bnb_4bit_quant_type: setup.quantization.slice(0, 3),
    ...(setup.quantization === 'nf4-double' ? { bnb_4bit_use_double_quant: true } : {}),
    bnb_4bit_compute_dtype: setup.precision.endsWith('fp16') ? 'float16' : 'bfloat16',
    ...(model.images && setup.stage !== 'full'
      ? { llm_int8_skip_modules: ['lm_head', `model.${projectorOf(model)}`] }
      : {}),
  };
}

function runOptions({ kind, config }: RunFile): object {
  return kind === 'ds_config' ? { strategy: 'deepspeed', ds_config: config } : { accelerate_config: config };
}

function strategyOptions(setup: Setup): object {
  const { parallel } = setup;
  const stage = /^zero(\d)$/.exec(parallel)?.[1];
  return {
    strategy: stage === undefined ? parallel : 'deepspeed',
    ...(stage === undefined ? {} : zeroOptions(setup, Number(stage))),
    ...(parallel === 'ddp' ? { ddp: ddpOptions(setup) } : {}),
    ...(parallel === 'fsdp1' || parallel === 'fsdp2' ? { fsdp: fsdpOptions(setup) } : {}),
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

/** What differs from a greedy answer of 256 tokens. */
function inference(setup: Setup, means: (key: FieldKey) => boolean): object {
  const differs = (key: FieldKey): boolean => setup[key] !== START[key] && means(key);
  const own = {
    ...(differs('pool') ? { gpu_memory_utilization: number(setup.pool) / 100 } : {}),
    ...(differs('stride') ? { stride: number(setup.stride) } : {}),
  };
  return {
    ...(differs('newtokens') ? { new_tokens: number(setup.newtokens) } : {}),
    ...(differs('turns') ? { turns: number(setup.turns) } : {}),
    ...(differs('turntokens') ? { turn_tokens: number(setup.turntokens) } : {}),
    ...(differs('chunk') ? { prefill_chunk_size: number(setup.chunk) } : {}),
    ...(differs('logits') ? { logits: setup.logits } : {}),
    ...(differs('cache') ? { cache: { implementation: setup.cache, ...own } } : {}),
  };
}

/** "1032-141" */
function calibration({ measured }: Setup): object {
  const [, thousandths, mib] = /^(\d+)(?:-(\d+))?$/.exec(measured) ?? [];
  if (thousandths === undefined) return {};
  const outside = mib === undefined ? {} : { outside_allocator: Number(mib) * 1048576 };
  return { calibration: { reserved: Number(thousandths) / 1000, ...outside } };
}

/** The job that a setup stands for. Fields that mean nothing for the model are left out. */
export function toJob(setup: Setup, model: Model): Job {
  const means = (key: FieldKey): boolean => applies(field(key), model, setup);
  const data = {
    micro_batch_size: number(setup.mbs),
    ...(means('seq') ? { sequence_length: number(setup.seq) } : {}),
    ...(means('images') ? { images_per_sample: number(setup.images) } : {}),
    ...(means('tiles') && setup.tiles !== 'usual' ? { tiles: number(setup.tiles) } : {}),
    ...(means('height') ? { image_size: [number(setup.height), number(setup.width)] as [number, number] } : {}),
    ...(means('frames') && setup.frames !== '1' ? { frames: number(setup.frames) } : {}),
  };
  if (infers(setup))
    return {
      version: 1,
      model: model.job,
      task: 'inference',
      data,
      training: { precision: setup.precision, attention: setup.attention },
      inference: inference(setup, means),
      gpu: { name: setup.gpu },
      runtime: { torch: setup.torch, expandable_segments: setup.segments === 'on' },
    } as Job;
  const run = setup.runfile === '' ? null : unpackRun(setup.runfile);
  const deepspeed = run ? run.config.distributed_type !== 'FSDP' : setup.parallel.startsWith('zero');
  const job = {
    version: 1,
    model: model.job,
    task: 'train',
    data,
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
      ...(setup.saved.startsWith('p') ? { save_on_cpu: setup.saved } : {}),
      ...(setup.quantization === 'none' || !means('quantization') ? {} : { quantization: quantization(setup, model) }),
      ...(setup.liger === 'off' || !means('liger') ? {} : { liger: liger(setup) }),
      ...(setup.losschunks === 'off' || !means('losschunks')
        ? {}
        : { chunked_cross_entropy: number(setup.losschunks) }),
      ...adapters(setup, model),
      gradient_accumulation_steps: number(setup.accumulate),
      ...(setup.outputs === 'kept' ? { keep_outputs: true } : {}),
      ...(setup.clip === 'off' ? {} : { max_grad_norm: number(setup.clip) }),
    },
    parallel: { ...(run ? runOptions(run) : strategyOptions(setup)), data: number(setup.gpus) },
    gpu: { name: setup.gpu },
    runtime: {
      framework: setup.framework,
      torch: setup.torch,
      // The original code brings its own; DeepSpeed's version means something only where it runs.
      ...(setup.framework === 'transformers' ? { transformers: setup.transformers } : {}),
      ...(deepspeed ? { deepspeed: setup.deepspeed } : {}),
      expandable_segments: setup.segments === 'on',
    },
    ...calibration(setup),
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
