// What each choice is called, where that is not its value. Beside the settings (fields.ts), so that what only reads a
// permalink does without.
import { BF16_IN_AUTOCAST, type Field, type FieldKey } from './fields';
import { LABELS } from './labels.generated';

/** Of choices that are the page's own: parts of a setting, several at once, or none of its values. */
const OWN: Readonly<Partial<Record<FieldKey, Readonly<Record<string, string>>>>> = {
  loss: { usual: 'The model’s own', mean: 'Mean of the output', last_hidden_state: 'Mean of the last hidden state' },
  tiles: {
    usual: 'As the processor does',
    '1': 'Off',
    '5': '2 × 2 tiles',
    '10': '3 × 3 tiles',
    '13': '3 × 4 tiles',
    '17': '4 × 4 tiles',
  },
  pool: { '90': '90 %', '95': '95 %', '80': '80 %', '70': '70 %', '50': '50 %' },
  chunk: {
    all: 'The whole prompt at once',
    '16384': '16,384 tokens at once',
    '4096': '4,096 tokens at once',
    '1024': '1,024 tokens at once',
  },
  lengths: { full: 'All full', uniform: 'Uniform', list: 'A list' },
  padding: { '8': 'To a multiple of 8', '64': 'To a multiple of 64', '512': 'To a multiple of 512' },
  packed: { none: 'Off' },
  scored: { '0.25': 'A quarter of each sample', '0.1': 'A tenth of each sample' },
  smoothing: { '0': 'Off', '0.1': '0.1' },
  evalaccumulate: { off: 'At the end', '1': 'After each batch', '8': 'After 8 batches' },
  emptycache: { off: 'Never', '1': 'Each step' },
  precision: {
    'amp-bf16': 'fp32 weights, bf16 autocast',
    'amp-fp16': 'fp32 weights, fp16 autocast',
    [BF16_IN_AUTOCAST]: 'bf16 weights, bf16 autocast',
  },
  losschunks: { off: 'Off' },
  ckptevery: { '1': 'All', '2': 'Every 2nd', '3': 'Every 3rd', '4': 'Every 4th' },
  saved: { gpu: 'On the GPU', checkpoints: 'Checkpoints on the host' },
  liger: { off: 'Off', on: 'All', loss: 'The loss alone', some: 'One by one' },
  ligerloss: { fused: 'With the head', plain: 'Cross-entropy', off: 'Off' },
  adapters: { none: 'None', lora: 'LoRA', dora: 'DoRA', ia3: 'IA³' },
  targets: { qv: 'Queries, values', attention: 'Attention', linear: 'Every linear layer' },
  dropout: { '0': 'None', '0.05': '5 %', '0.1': '10 %' },
  quantization: { none: 'Not quantized', nf4: 'NF4', 'nf4-double': 'NF4, double', fp4: 'FP4' },
  parallel: { zero1: 'DeepSpeed ZeRO-1', zero2: 'DeepSpeed ZeRO-2', zero3: 'DeepSpeed ZeRO-3' },
  ddpviews: { copied: 'Copied', views: 'Views', lazy: 'Lazy', 'lazy-views': 'Lazy views' },
  ddpgraph: { all: 'All used', unused: 'Some unused', static: 'Static' },
  fsdpshard: { full: 'Over all GPUs', none: 'None' },
  fsdpreshard: { on: 'Shard again', off: 'Keep gathered' },
  fsdpprefetch: { pre: 'Before backward', post: 'After backward', none: 'None', both: 'Forward too' },
  zerooffload: { off: 'Nothing', optimizer: 'The optimizer', both: 'Optimizer and weights' },
  optimizer: { 'sgd-momentum': 'SGD, momentum' },
  impl: { 'bnb-8bit-paged': '8-bit, paged', 'bnb-32bit-paged': '32-bit, paged' },
  clip: { off: 'Off', '1': 'To 1' },
  fsdpparam: { own: 'Its own' },
  fsdpreduce: { own: 'Its own' },
  fsdpbuffer: { own: 'Its own' },
};

export const choiceLabel = ({ key }: Pick<Field, 'key'>, value: string): string =>
  OWN[key]?.[value] ?? LABELS[key]?.[value] ?? value;
