// What the page says of a setting that is its own: parts of a setting, several at once, or no value of one. Of the others
// the core's table does. Beside the settings themselves (fields.ts), so that what only reads a permalink does without.
import { BF16_IN_AUTOCAST, type FieldKey } from './fields';
import type * as Words from './words.generated';

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
    },
  },
  lengths: {
    hint: 'Tokens of a sample, image tokens included. Where they differ, batches are padded, and memory fragments.',
    choices: {
      full: 'Every sample has the sequence length; no padding, no mask.',
      uniform: 'Any length between two is as likely; they come in a random order.',
      list: 'Lengths of your own data, pasted or dropped; they come in a random order.',
    },
  },
  shortest: { placeholder: 'half', hint: 'Tokens of the shortest sample; empty: half of the longest.' },
  longest: { placeholder: 'full', hint: 'Tokens of the longest sample; empty: the sequence length.' },
  histogram: { hint: 'One length a sample, or lengths with how many samples have each: 512 × 300.' },
  padding: {
    hint: 'To what the samples of a micro-batch are padded.',
    choices: {
      '8': 'pad_to_multiple_of=8, over the longest of the micro-batch.',
      '64': 'A little more padding, fewer different lengths.',
      '512': 'More padding, few different lengths.',
    },
  },
  packed: {
    hint: 'Several samples share a row of the sequence length, as TRL packs them.',
    choices: { none: 'A sample a row.' },
  },
  steps: { placeholder: '8', hint: 'Optimizer steps that are run, with samples drawn anew for each.' },
  scored: {
    hint: 'Labels that are not -100: what the loss is computed of where a trainer leaves the others out.',
    choices: {
      '0.25': 'Short answers to long prompts.',
      '0.1': 'Very short answers.',
    },
  },
  loop: { hint: 'Whose code runs the steps. A trainer has defaults of its own, and evaluates and saves.' },
  smoothing: {
    hint: 'label_smoothing_factor: the loss outside of the model, from all logits in fp32.',
    choices: { '0': 'The model’s own loss.', '0.1': 'Two more tensors of all classes in fp32.' },
  },
  eval: {
    hint: 'eval_strategy: the peak of an evaluation counts, too.',
    choices: {
      no: 'Trainer’s default.',
      steps: 'Forward passes alone, between steps.',
      epoch: 'The same after each pass over the data.',
    },
  },
  evalbatch: { hint: 'per_device_eval_batch_size; Trainer’s default is 8, whatever the micro-batch.' },
  metrics: {
    hint: 'A function compute_metrics is given to the trainer: logits of all batches stay on the GPU.',
    choices: { off: 'Only the loss is kept.', on: 'Logits and labels are gathered until they go to the host.' },
  },
  evalaccumulate: {
    hint: 'eval_accumulation_steps: when gathered predictions go to the host.',
    choices: { off: 'Trainer’s default: all of them are on the GPU first.' },
  },
  evalbatches: { hint: 'Batches of an evaluation, each of full length.' },
  usecache: {
    hint: 'use_cache, transformers’ default: outputs hold a copy of keys and values.',
  },
  emptycache: { hint: 'torch_empty_cache_steps: torch.cuda.empty_cache() after the forward pass.' },
  ckptevery: {
    choices: {
      '1': 'The least memory that checkpointing whole blocks gives.',
      '2': 'transformers’ every_n_layers: half of the extra time.',
      '3': 'A third of the extra time.',
      '4': 'A quarter of the extra time.',
    },
  },
  saved: {
    hint: 'Where activations wait for the backward pass.',
    choices: {
      gpu: 'PyTorch’s default.',
      checkpoints: 'transformers’ offload: the input of each checkpointed block waits in pinned host memory.',
      pinned: 'save_on_cpu, pinned: activations and the weights that autograd keeps; slow.',
      pageable: 'The same in ordinary host memory; slower.',
    },
  },
  liger: {
    hint: 'Fused kernels of liger-kernel for the language model and the loss.',
    choices: {
      off: 'transformers’ own modules; the loss casts every logit to fp32.',
      on: 'Fused RMSNorm, rotary embedding, SwiGLU and loss keep less; logits exist one chunk of tokens at a time.',
      loss: 'Only head and cross-entropy are fused, one chunk of tokens at a time.',
      some: 'Switch each kernel on or off below.',
    },
  },
  ligerloss: {
    hint: 'fused_linear_cross_entropy, or cross_entropy.',
    choices: {
      fused: 'Logits exist one chunk of tokens at a time.',
      plain: 'All logits at once; their gradient takes their place.',
      off: 'transformers’ loss: all logits in fp32.',
    },
  },
  losschunks: {
    choices: {
      off: 'transformers’ loss: all logits in fp32 at once.',
      '2': 'Half of the logits in fp32 at a time.',
      '4': 'A quarter at a time.',
      '8': 'An eighth at a time: Axolotl’s and torchtune’s default.',
    },
  },
  adapters: {
    hint: 'Freeze the language model and train small matrices beside it (peft).',
    choices: {
      none: 'No adapters: the weights that the stage names are trained.',
      lora: 'Two small matrices per layer are trained; only they have gradients and optimizer states.',
      dora: 'LoRA with a trained length; each forward computes whole weights again.',
      ia3: 'One trained vector for keys, values and the MLP: next to nothing to train.',
    },
  },
  targets: {
    hint: 'Which layers get an adapter. Each adapter keeps activations of its own.',
    choices: {
      qv: 'q_proj and v_proj: peft’s usual choice.',
      attention: 'All four projections of attention.',
      linear: 'Attention and MLP, as LLaVA’s own recipe and QLoRA’s paper have it.',
    },
  },
  dropout: {
    choices: {
      '0': 'No masks.',
      '0.05': 'LLaVA’s recipe; the mask takes one byte per element.',
      '0.1': 'As much memory as 5 %.',
    },
  },
  quantization: {
    choices: {
      none: 'Weights stay as they are.',
      nf4: 'Half a byte per weight, and four bytes per 64 weights. To train beside them, everything else becomes fp32.',
      'nf4-double': 'The constants per 64 weights are quantized too.',
      fp4: 'As much memory as NF4.',
    },
  },
  precision: {
    hint: 'Data type of the weights, and of what autocast computes in.',
    choices: {
      [BF16_IN_AUTOCAST]: 'HF Trainer’s bf16=True over bf16 weights: norms and softmax compute in fp32.',
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
        'Like FSDP2, but the weights of a block are one flat parameter; a partly trained block has full gradients.',
      fsdp2: 'Weights, gradients and optimizer states are spread over all; each block is gathered as it runs.',
    },
  },
  ddpviews: {
    hint: 'Gradients are exchanged in buckets, which together are as large as the gradients.',
    choices: {
      copied: 'PyTorch’s default: gradients and separate buckets.',
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
    hint: 'What happens to a block’s gathered weights between forward and backward.',
    choices: {
      on: 'Freed, and gathered again for backward: least memory.',
      off: 'Kept until backward: FSDP1’s SHARD_GRAD_OP, FSDP2’s reshard_after_forward=False.',
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
    hint: 'What is kept in host memory.',
    choices: {
      off: 'Everything stays on the GPUs.',
      optimizer: 'offload_optimizer: masters, moments and gradients; the step runs on the CPU.',
      both: 'offload_param too: only the layer that runs is on the GPU; needs stage 3, much slower.',
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
  hostmem: {
    hint: 'Of one machine, in GiB or with its unit (1.5TB): does the job fit there, too?',
    placeholder: 'unknown',
  },
  watts: {
    hint: 'Power of one GPU, as nvidia-smi shows it while the job runs: the time below then says the energy.',
    placeholder: 'unknown',
  },
  price: {
    hint: 'Of one GPU, in any currency: the time below then says what a step costs.',
    placeholder: 'unknown',
  },
  tokens: {
    hint: 'Of the whole training, padding too: the time below then says how many days it takes.',
    placeholder: 'unknown',
  },
  gpugib: {
    hint: 'GiB that programs can use: torch.cuda.mem_get_info()[1] / 2**30.',
  },
  loss: {
    hint: 'What the backward pass begins with.',
    choices: {
      usual: 'Cross-entropy over classes; for a vision encoder, the mean of its pooled output.',
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
  imagesizes: {
    placeholder: '672x448, 224x224',
  },
  video: {
    placeholder: '8 s, 2 fps, 360x640',
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
  targetlength: {
    placeholder: 'as long as the text',
  },
  objects: {
    placeholder: '7, as in COCO',
  },
  audio: {
    placeholder: '30',
  },
  audios: {
    placeholder: '1',
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

/** The core's own words, seven kilobytes that no answer waits for. */
let words: typeof Words | undefined;
export const loadWords = async (): Promise<void> => {
  words ??= await import('./words.generated');
};

export const placeholderOf = (key: FieldKey): string => OWN[key]?.placeholder ?? '';
/** In one sentence; undefined where there is nothing to say. */
export const hintOf = (key: FieldKey): string | undefined => OWN[key]?.hint ?? words?.HINTS[key];
/** Of a count, in a word. */
export const unitOf = (key: FieldKey): string => words?.UNITS[key] ?? '';
export const aboutOf = (key: FieldKey, value: string): string =>
  OWN[key]?.choices?.[value] ?? words?.ABOUTS[key]?.[value] ?? '';
