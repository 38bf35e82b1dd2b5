// What the page says of a setting that is its own: parts of a setting, several at once, or no value of one. Of the others
// the core's table does. Beside the settings themselves (fields.ts), so that what only reads a permalink does without.
import type { FieldKey } from './fields';
import { ABOUTS, HINTS, UNITS } from './words.generated';

interface Explanation {
  /** What an empty field means, or what to type. */
  placeholder?: string;
  /** One sentence: what the setting is, or what it does to memory. */
  hint?: string;
  /** By value, one sentence: what one gets by choosing it. */
  choices?: Readonly<Record<string, string>>;
}

const OWN: Readonly<Partial<Record<FieldKey, Explanation>>> = {
  tiles: {
    choices: {
      usual: 'An image as large as the processor takes.',
      '1': 'do_image_splitting=False: the whole image alone.',
      '5': 'Five images for the vision encoder.',
      '10': 'Ten images for the vision encoder.',
      '13': 'Thirteen images for the vision encoder.',
      '17': 'Seventeen images for the vision encoder.',
    },
  },
  ckptevery: {
    choices: {
      '1': 'The least memory that checkpointing whole blocks gives.',
      '2': 'transformers’ every_n_layers: half of the extra time.',
      '3': 'A third of the extra time.',
      '4': 'A quarter of the extra time.',
    },
  },
  saved: {
    hint: 'Where what the forward pass keeps for the backward pass lies meanwhile.',
    choices: {
      gpu: 'PyTorch’s default.',
      checkpoints: 'transformers’ offload: each checkpointed block’s input in pinned memory.',
      pinned: 'save_on_cpu, pinned: activations and the weights that autograd keeps; slow.',
      pageable: 'The same in ordinary host memory; slower.',
    },
  },
  liger: {
    choices: {
      off: 'transformers’ own modules; the loss sees every logit in fp32.',
      on: 'RMSNorm, rotary embedding and SwiGLU keep less, and logits exist for a chunk of tokens at a time.',
      loss: 'Head and cross-entropy by chunks of tokens; the model stays as it is.',
      some: 'Each kernel by a switch of its own, below.',
    },
  },
  ligerloss: {
    hint: 'fused_linear_cross_entropy, or cross_entropy.',
    choices: {
      fused: 'Logits exist for a chunk of tokens at a time.',
      plain: 'All logits, whose gradient takes their place.',
      off: 'transformers’ loss: every logit in fp32.',
    },
  },
  losschunks: {
    choices: {
      off: 'transformers’ loss: every logit in fp32 at once, and its logarithm.',
      '2': 'All logits as the model gives them; in fp32 a half at a time.',
      '4': 'A quarter at a time.',
      '8': 'An eighth at a time: the two libraries’ default.',
      '16': 'A sixteenth at a time.',
      '32': 'A thirty-second at a time.',
    },
  },
  adapters: {
    hint: 'Freeze the weights of the language model, and train small matrices beside them (peft).',
    choices: {
      none: 'The weights that the stage names learn themselves.',
      lora: 'Two small matrices a layer learn; gradients and optimizer states are theirs alone.',
      dora: 'LoRA with a learnt length; each forward makes whole weights anew, for a moment or to keep.',
      ia3: 'One learnt vector for keys, values and the MLP: next to nothing to train.',
    },
  },
  targets: {
    hint: 'Which layers get an adapter. Each one keeps activations of its own.',
    choices: {
      qv: 'q_proj and v_proj: peft’s usual choice.',
      attention: 'All four projections of attention.',
      linear: 'Attention and MLP, as LLaVA’s own recipe and QLoRA’s paper have it.',
    },
  },
  dropout: {
    choices: {
      '0': 'No masks.',
      '0.05': 'LLaVA’s own recipe; a byte an element for the mask.',
      '0.1': 'As much memory as 5 %.',
    },
  },
  quantization: {
    choices: {
      none: 'LoRA alone.',
      nf4: 'Half a byte a weight, and four bytes for every 64; all else becomes fp32.',
      'nf4-double': 'The bytes for every 64 are quantised too.',
      fp4: 'As much memory as NF4.',
    },
  },
  parallel: {
    choices: {
      none: 'One GPU holds everything.',
      ddp: 'Each GPU has its own samples, and holds everything.',
      zero1: 'Each GPU has its own samples; optimizer states are spread over all.',
      zero2: 'Each GPU has its own samples; gradients and optimizer states are spread over all.',
      zero3: 'Weights, gradients and optimizer states are spread over all; each layer is gathered as it runs.',
      fsdp1:
        'As FSDP2, with each block’s weights in one flat parameter; one that is partly trained has whole gradients.',
      fsdp2: 'Weights, gradients and optimizer states are spread over all; each block is gathered as it runs.',
    },
  },
  ddpviews: {
    hint: 'Gradients travel in buckets, which are as large as all of them.',
    choices: {
      copied: 'PyTorch’s default: gradients, and buckets beside them.',
      views: 'gradient_as_bucket_view: the buckets are the gradients.',
      lazy: 'lazy_bucket_allocation: buckets only while a backward runs; PyTorch 2.15.',
      'lazy-views': 'Both: neither buckets nor gradients between steps.',
    },
  },
  ddpgraph: {
    hint: 'What DDP is told about the parameters that a step uses.',
    choices: {
      all: 'PyTorch’s default.',
      unused: 'find_unused_parameters: every output is cloned, logits too.',
      static: 'static_graph: the first step finds out; it alone clones the outputs.',
    },
  },
  fsdpshard: {
    hint: 'Whether each GPU keeps a part or everything.',
    choices: {
      full: 'FULL_SHARD or SHARD_GRAD_OP, by what follows.',
      none: 'NO_SHARD: as DDP, with one flat parameter a block.',
    },
  },
  fsdpreshard: {
    hint: 'What becomes of a block’s gathered parameters until backward.',
    choices: {
      on: 'They are gathered twice a step: the least memory.',
      off: 'FSDP1’s SHARD_GRAD_OP, FSDP2’s reshard_after_forward=False: all stay until backward.',
    },
  },
  fsdpprefetch: {
    hint: 'When the next block’s weights are gathered.',
    choices: {
      pre: 'BACKWARD_PRE: while this block’s backward runs; two blocks are whole.',
      post: 'BACKWARD_POST: when it is over.',
      none: 'Only when they are needed: least memory.',
      both: 'BACKWARD_PRE, and forward_prefetch.',
    },
  },
  zerooffload: {
    hint: 'What waits in host memory until it is needed.',
    choices: {
      off: 'Everything stays on the GPUs.',
      optimizer: 'offload_optimizer: masters, moments and gradients; the step runs on the CPU.',
      both: 'offload_param too: only what runs is on the GPU; stage 3, and much slower.',
    },
  },
  optimizer: {
    choices: {
      'sgd-momentum': 'One moment a weight.',
    },
  },
  impl: {
    choices: {
      'bnb-8bit-paged': 'The same in unified memory, which the GPU holds while there is room.',
      'bnb-32bit-paged': 'bitsandbytes: fp32 moments, in unified memory.',
    },
  },
  clip: {
    choices: {
      off: 'Gradients stay as they are.',
      '1': 'To a norm of 1, as most recipes do.',
    },
  },
  gpugib: {
    hint: 'GiB that programs can use: torch.cuda.mem_get_info()[1] / 2**30.',
  },
  loss: {
    hint: 'What the backward pass begins with.',
    choices: {
      usual: 'The cross-entropy of classes; of a vision encoder, the mean of its pooled output.',
      mean: 'The mean of the first output: no labels, no softmax.',
      last_hidden_state: 'Of all patches, not of the pooled one.',
    },
  },
  groups: {
    choices: {
      '2': 'With and without weight decay, as HF Trainer does.',
      '1': 'All together, as torch.optim.AdamW(model.parameters()) does.',
    },
  },
  freeze: {
    placeholder: 'vision_tower, lm_head',
  },
  trainonly: {
    placeholder: 'everything',
  },
  nograd: {
    placeholder: 'none',
  },
  grid: {
    placeholder: '1, 48, 32',
  },
  minpixels: {
    placeholder: '3136',
  },
  maxpixels: {
    placeholder: '12845056',
  },
  cacheroom: {
    placeholder: 'as needed',
  },
  batched: {
    placeholder: 'by the GPU',
  },
  loratrain: {
    placeholder: 'lm_head',
  },
  fsdpwrap: {
    placeholder: 'each block',
  },
};

export const placeholderOf = (key: FieldKey): string => OWN[key]?.placeholder ?? '';
/** In one sentence; undefined where there is nothing to say. */
export const hintOf = (key: FieldKey): string | undefined => OWN[key]?.hint ?? HINTS[key];
/** Of a count, in a word. */
export const unitOf = (key: FieldKey): string => UNITS[key] ?? '';
export const aboutOf = (key: FieldKey, value: string): string =>
  OWN[key]?.choices?.[value] ?? ABOUTS[key]?.[value] ?? '';
