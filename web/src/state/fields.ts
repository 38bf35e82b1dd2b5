// The settings of the page: one table that the form, the permalink and the errors all read.
//
// A setup holds what stands in each field, as text, so that a half-typed number survives; `toJob` makes a job of it.
// Keys and values are what permalinks hold: once published, they keep their meaning.
import type { Preset } from '../wasm/catalogue';
import type { Job } from './job.generated';

export type FieldKey =
  | 'model'
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
  | 'parallel'
  | 'accumulate'
  | 'clip'
  | 'framework'
  | 'torch'
  | 'segments';

export type Setup = Record<FieldKey, string>;

export interface Choice {
  value: string;
  label: string;
}

export interface Field {
  key: FieldKey;
  label: string;
  /** One sentence: what it is, or what it does to memory. */
  hint?: string;
  kind: 'preset' | 'gpu' | 'segments' | 'select' | 'count' | 'number';
  choices?: readonly Choice[];
  /** Where it stands in the job: an error at such a pointer, or under it, belongs to this field. */
  pointers: readonly string[];
  /** Whether the field means anything for this model. */
  applies?: (preset: Preset) => boolean;
}

const choices = (...pairs: [value: string, label: string][]): Choice[] =>
  pairs.map(([value, label]) => ({ value, label }));

export const FIELDS: readonly Field[] = [
  { key: 'model', label: 'Model', kind: 'preset', pointers: ['/model'] },
  {
    key: 'stage',
    label: 'Stage',
    kind: 'segments',
    choices: choices(['pretrain', 'Pre-train'], ['finetune', 'Fine-tune'], ['full', 'Full']),
    pointers: ['/training/stage'],
  },
  { key: 'gpu', label: 'GPU', kind: 'gpu', pointers: ['/gpu'] },
  { key: 'gpus', label: 'Count', kind: 'count', pointers: ['/parallel/data', '/gpu/count'] },
  {
    key: 'mbs',
    label: 'Micro-batch',
    hint: 'Samples a GPU processes at once.',
    kind: 'count',
    pointers: ['/data/micro_batch_size'],
  },
  {
    key: 'seq',
    label: 'Sequence length',
    hint: 'All tokens of a sample.',
    kind: 'count',
    pointers: ['/data/sequence_length'],
    applies: (preset) => preset.text,
  },
  {
    key: 'images',
    label: 'Images per sample',
    kind: 'count',
    pointers: ['/data/images_per_sample'],
    applies: (preset) => preset.images && preset.text,
  },
  {
    key: 'checkpointing',
    label: 'Activation checkpointing',
    hint: 'Much less memory, about a third more time.',
    kind: 'select',
    choices: choices(
      ['none', 'Off'],
      ['non-reentrant', 'On (non-reentrant)'],
      ['reentrant', 'On (reentrant, the older way)'],
    ),
    pointers: ['/training/activation_checkpointing'],
  },
  {
    key: 'parallel',
    label: 'Data parallelism',
    hint: 'ZeRO-2 spreads gradients and optimizer states.',
    kind: 'select',
    choices: choices(['none', 'None (one GPU)'], ['zero2', 'DeepSpeed ZeRO-2']),
    pointers: ['/parallel'],
  },
  {
    key: 'precision',
    label: 'Precision',
    hint: 'Mixed keeps fp32 weights, computes in 16 bits.',
    kind: 'select',
    choices: choices(
      ['bf16', 'bf16'],
      ['fp16', 'fp16'],
      ['fp32', 'fp32'],
      ['amp-bf16', 'Mixed: fp32 + bf16 autocast'],
      ['amp-fp16', 'Mixed: fp32 + fp16 autocast'],
    ),
    pointers: ['/training/precision'],
  },
  {
    key: 'optimizer',
    label: 'Optimizer',
    kind: 'select',
    choices: choices(['adamw', 'AdamW'], ['adam', 'Adam'], ['sgd', 'SGD'], ['sgd-momentum', 'SGD with momentum']),
    pointers: ['/training/optimizer'],
  },
  {
    key: 'impl',
    label: 'Implementation',
    kind: 'select',
    choices: choices(['fused', 'fused'], ['foreach', 'foreach'], ['for-loop', 'for-loop']),
    pointers: ['/training/optimizer/implementation'],
  },
  {
    key: 'attention',
    label: 'Attention',
    hint: 'eager and math keep a score per pair of tokens.',
    kind: 'select',
    choices: choices(
      ['sdpa', 'SDPA (PyTorch chooses)'],
      ['sdpa-flash', 'SDPA, flash'],
      ['sdpa-efficient', 'SDPA, memory-efficient'],
      ['sdpa-cudnn', 'SDPA, cuDNN'],
      ['sdpa-math', 'SDPA, math'],
      ['eager', 'eager'],
    ),
    pointers: ['/training/attention'],
  },
  {
    key: 'accumulate',
    label: 'Gradient accumulation steps',
    kind: 'count',
    pointers: ['/training/gradient_accumulation_steps'],
  },
  {
    key: 'clip',
    label: 'Gradient clipping',
    kind: 'select',
    choices: choices(['off', 'Off'], ['1', 'To a norm of 1']),
    pointers: ['/training/max_grad_norm'],
  },
  {
    key: 'framework',
    label: 'Framework',
    kind: 'select',
    choices: choices(['transformers', 'Hugging Face transformers'], ['llava', 'Original LLaVA code']),
    pointers: ['/runtime/framework', '/runtime/transformers'],
  },
  {
    key: 'torch',
    label: 'PyTorch',
    kind: 'select',
    choices: Array.from({ length: 16 }, (_, i) => `2.${15 - i}`).map((value) => ({ value, label: value })),
    pointers: ['/runtime/torch'],
  },
  {
    key: 'segments',
    label: 'Expandable segments',
    hint: 'Less is lost to fragmentation.',
    kind: 'select',
    choices: choices(['off', 'Off'], ['on', 'On']),
    pointers: ['/runtime/expandable_segments'],
  },
];

/** What the page shows first. Permalinks of version 1 hold what differs from it, so it is frozen with that version. */
export const START: Readonly<Setup> = {
  model: 'llava-1.5-7b',
  stage: 'finetune',
  gpu: 'h100-80gb',
  gpus: '8',
  mbs: '8',
  seq: '2048',
  images: '1',
  checkpointing: 'non-reentrant',
  parallel: 'zero2',
  precision: 'bf16',
  optimizer: 'adamw',
  impl: 'fused',
  attention: 'sdpa',
  accumulate: '1',
  clip: 'off',
  framework: 'transformers',
  torch: '2.15',
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
export function unreadable(setup: Setup, preset: Preset): { field: Field; message: string } | null {
  for (const candidate of FIELDS) {
    if (candidate.kind !== 'count' || candidate.applies?.(preset) === false) continue;
    if (!Number.isFinite(number(setup[candidate.key]))) {
      return { field: candidate, message: `Type a whole number, such as ${START[candidate.key]}.` };
    }
  }
  return null;
}

/** The job that a setup stands for. Fields that mean nothing for the model are left out. */
export function toJob(setup: Setup, preset: Preset): Job {
  const applies = (key: FieldKey): boolean => field(key).applies?.(preset) !== false;
  const zero = /^zero(\d)$/.exec(setup.parallel);
  const job = {
    version: 1,
    model: { preset: setup.model },
    task: 'train',
    data: {
      micro_batch_size: number(setup.mbs),
      ...(applies('seq') ? { sequence_length: number(setup.seq) } : {}),
      ...(applies('images') ? { images_per_sample: number(setup.images) } : {}),
    },
    training: {
      stage: setup.stage,
      precision: setup.precision,
      optimizer: {
        name: setup.optimizer === 'sgd-momentum' ? 'sgd' : setup.optimizer,
        implementation: setup.impl,
        ...(setup.optimizer === 'sgd-momentum' ? { momentum: 0.9 } : {}),
      },
      attention: setup.attention,
      activation_checkpointing: setup.checkpointing,
      gradient_accumulation_steps: number(setup.accumulate),
      ...(setup.clip === 'off' ? {} : { max_grad_norm: number(setup.clip) }),
    },
    parallel: {
      strategy: zero ? 'deepspeed' : setup.parallel,
      ...(zero ? { zero_stage: Number(zero[1]) } : {}),
      data: number(setup.gpus),
    },
    gpu: { name: setup.gpu },
    runtime: { framework: setup.framework, torch: setup.torch, expandable_segments: setup.segments === 'on' },
  };
  // The values of selects come from the schema's own lists, which the compiler cannot see.
  return job as Job;
}

/** The setup after one field has changed. Picking a model brings its usual length, unless another was typed. */
export function change(setup: Setup, key: FieldKey, value: string, presets: readonly Preset[]): Setup {
  const next = { ...setup, [key]: value };
  if (key === 'model') {
    const usual = (id: string): string => String(presets.find((preset) => preset.id === id)?.sequence_length ?? '');
    const untouched = setup.seq === START.seq || setup.seq === usual(setup.model);
    if (untouched && usual(value) !== '') next.seq = usual(value);
  }
  return next;
}
