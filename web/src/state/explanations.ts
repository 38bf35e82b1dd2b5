// What the page says of each setting, and of each of its choices. Beside the settings themselves (fields.ts), so that
// what only reads a permalink does without.
import type { FieldKey } from './fields';

export interface Explanation {
  /** What an empty field means, or what to type. */
  placeholder?: string;
  /** One sentence: what the setting is, or what it does to memory. */
  hint?: string;
  /** By value, one sentence: what one gets by choosing it. */
  choices?: Readonly<Record<string, string>>;
}

export const EXPLANATIONS: Readonly<Partial<Record<FieldKey, Explanation>>> = {
  task: {
    choices: {
      train: 'Forward, backward and the optimizer’s step, twice.',
      inference: 'Prompts and their answers, as transformers’ generate() runs them, on one GPU.',
    },
  },
  newtokens: { hint: 'in each answer' },
  turns: { hint: 'prompts with answers; the cache is kept' },
  turntokens: { hint: 'after the first' },
  turnimages: { hint: 'in each sample; their tokens are among the prompt’s' },
  cache: {
    hint: 'Where keys and values of the tokens seen are kept.',
    choices: {
      dynamic: 'transformers’ default: it grows with each token, a layer’s keys at a time copied.',
      static: 'There in full from the first token on; without torch.compile here.',
      offloaded: 'transformers’ offloaded: the layer that runs and the next one on the GPU.',
      headinfer: 'HeadInfer’s: one key head at a time on the GPU; for models of Llama’s kind, from its source.',
      mtla: 'Multi-head Temporal Latent Attention’s, of DeepSeek’s models: one latent for several tokens; from its source.',
      quantized:
        'transformers’ QuantizedCache: kept in few bits, and taken back whole, a layer at a time, for each token.',
      paged: 'vLLM’s pool in blocks of 16 tokens; from its source.',
    },
  },
  pool: { hint: 'gpu_memory_utilization: the limit that weights, activations and blocks have together.' },
  cachebackend: {
    hint: 'cache_config’s backend.',
    choices: {
      quanto: 'Groups of elements with a scale each, the last tokens in full precision.',
      hqq: 'Groups as well, whose scales are fitted each time: more memory while it quantises.',
      fp8: '8 bits, one scale a layer; what is new is joined at once.',
    },
  },
  cachebits: { hint: 'nbits of keys and values' },
  cachegroup: { hint: 'q_group_size: elements that share a scale' },
  cacheresidual: { hint: 'residual_length: tokens that wait in full precision' },
  chunk: { hint: 'Tokens of a prompt that the model runs at once: generate()’s prefill_chunk_size.' },
  logits: {
    hint: 'What the prefill computes over the vocabulary.',
    choices: { last: 'As generate() asks for.', all: 'Of each prompt token: large where prompts are long.' },
  },
  stage: {
    choices: {
      pretrain: 'Only the projector between image and text learns.',
      finetune: 'Projector and language model learn; the vision encoder is frozen.',
      full: 'Every weight learns.',
      custom: 'Which weights learn, by the names of modules.',
    },
  },
  gpus: {
    hint: 'GPUs in the job.',
  },
  mbs: {
    hint: 'samples on one GPU at once',
  },
  seq: {
    hint: 'tokens, images’ too',
  },
  images: {
    hint: 'for the vision encoder',
  },
  tiles: {
    hint: 'How many tiles each image becomes; the whole image, scaled down, is one more.',
    choices: {
      usual: 'An image as large as the processor takes.',
      '1': 'do_image_splitting=False: the whole image alone.',
      '5': 'Five images for the vision encoder.',
      '10': 'Ten images for the vision encoder.',
      '13': 'Thirteen images for the vision encoder.',
      '17': 'Seventeen images for the vision encoder.',
    },
  },
  height: {
    hint: 'pixels',
  },
  width: {
    hint: 'pixels',
  },
  frames: {
    hint: 'of a video; 1 for images',
  },
  checkpointing: {
    hint: 'Forget activations, and compute them again when the backward pass needs them.',
    choices: {
      none: 'Every activation is kept: fastest, and the most memory.',
      'non-reentrant': 'Only each block’s input is kept; about a third more time.',
      reentrant: 'PyTorch’s older way, with its own peaks.',
    },
  },
  ckptevery: {
    hint: 'Those that are left out keep their activations, and save the time.',
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
    hint: 'Fused kernels of one more library, liger-kernel, for the language model and the loss.',
    choices: {
      off: 'transformers’ own modules; the loss sees every logit in fp32.',
      on: 'RMSNorm, rotary embedding and SwiGLU keep less, and logits exist for a chunk of tokens at a time.',
      loss: 'Head and cross-entropy by chunks of tokens; the model stays as it is.',
      some: 'Each kernel by a switch of its own, below.',
    },
  },
  ligernorm: {
    hint: 'rms_norm: each norm in one kernel.',
    choices: { on: 'The input and one number a token are kept.', off: 'transformers’ norm, computed in fp32.' },
  },
  ligerrope: {
    hint: 'rope: positions are turned into queries and keys in place.',
    choices: { on: 'No rotated copies.', off: 'transformers’ rotation, with copies.' },
  },
  ligermlp: {
    hint: 'swiglu: the MLP’s activation and product in one kernel.',
    choices: { on: 'Gate and up are kept.', off: 'The activation’s result is kept, too.' },
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
    hint: 'Cross-entropy of one piece of the sequence after another, as torchtune and Axolotl have it.',
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
  rank: {
    hint: 'columns of each matrix',
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
    hint: 'On each adapter’s input; with any, each layer keeps a mask.',
    choices: {
      '0': 'No masks.',
      '0.05': 'LLaVA’s own recipe; a byte an element for the mask.',
      '0.1': 'As much memory as 5 %.',
    },
  },
  lorabias: {
    hint: 'Which biases of the model learn beside the adapters; Llama has none, Qwen2 and CLIP have.',
    choices: {
      none: 'peft’s default.',
      lora_only: 'Those of the layers that have an adapter.',
      all: 'Every one, norms’ too.',
    },
  },
  adapterdtype: {
    hint: 'What peft makes of adapters beside half-precision weights; DeepSpeed turns them back.',
    choices: {
      fp32: 'peft’s default: more exact, and inputs are copied in four bytes an element.',
      weights: 'autocast_adapter_dtype=False: half of that.',
    },
  },
  quantization: {
    hint: 'QLoRA: bitsandbytes keeps the frozen weights in 4 bits, and makes each anew when it is used.',
    choices: {
      none: 'LoRA alone.',
      nf4: 'Half a byte a weight, and four bytes for every 64; all else becomes fp32.',
      'nf4-double': 'The bytes for every 64 are quantised too.',
      fp4: 'As much memory as NF4.',
    },
  },
  parallel: {
    hint: 'How the GPUs share the work and the memory.',
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
  ddpcap: {
    hint: 'MiB of gradients that travel together',
  },
  fsdpshard: {
    hint: 'Whether each GPU keeps a part or everything.',
    choices: {
      full: 'FULL_SHARD or SHARD_GRAD_OP, by what follows.',
      none: 'NO_SHARD: as DDP, with one flat parameter a block.',
    },
  },
  fsdpmp: {
    hint: 'Mixed precision for gathered parameters and reduced gradients; it wants fp32 weights.',
    choices: {
      off: 'Everything in the precision above.',
      on: 'fp32 shards, gathered and computed in bf16, gradients reduced in fp32.',
    },
  },
  fsdpreshard: {
    hint: 'What becomes of a block’s gathered parameters until backward.',
    choices: {
      on: 'They are gathered twice a step: the least memory.',
      off: 'FSDP1’s SHARD_GRAD_OP, FSDP2’s reshard_after_forward=False: all stay until backward.',
    },
  },
  fsdpparams: {
    hint: 'What the optimizer sees: it decides whether trained and frozen weights may share a block.',
    choices: {
      original: 'use_orig_params, accelerate’s default: a part of each weight.',
      flat: 'One flat parameter a block, all trained or all frozen.',
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
  fsdpoffload: {
    hint: 'Where the shards are between uses.',
    choices: {
      off: 'Shards, gradients and optimizer states stay.',
      cpu: 'Only what runs is on the GPU; much slower.',
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
  precision: {
    hint: 'The number format of weights and computation.',
    choices: {
      bf16: 'Two bytes a weight; the usual choice since A100.',
      fp16: 'Two bytes a weight; for older GPUs.',
      fp32: 'Four bytes a weight, four an activation.',
      'amp-bf16': 'fp32 weights, computed in bf16 (autocast).',
      'amp-fp16': 'fp32 weights, computed in fp16 (autocast).',
    },
  },
  optimizer: {
    hint: 'What it remembers of each trained weight.',
    choices: {
      adamw: 'Two moments a weight; the usual choice.',
      adam: 'Two moments a weight.',
      sgd: 'Nothing a weight; rarely trains a transformer well.',
      'sgd-momentum': 'One moment a weight.',
    },
  },
  impl: {
    hint: 'How PyTorch runs the optimizer; it changes what its step holds for a moment.',
    choices: {
      fused: 'One kernel, no temporaries.',
      foreach: 'Many weights at once: temporaries as large as the weights.',
      'for-loop': 'One weight after another: slow, small temporaries.',
      'bnb-8bit': 'bitsandbytes: moments in a byte each, and a number a block; embeddings keep fp32.',
      'bnb-8bit-paged': 'The same in unified memory, which the GPU holds while there is room.',
      'bnb-32bit-paged': 'bitsandbytes: fp32 moments, in unified memory.',
    },
  },
  attention: {
    hint: 'Which kernel computes attention.',
    choices: {
      sdpa: 'PyTorch picks the best kernel for the GPU.',
      'sdpa-flash': 'FlashAttention: keeps no score per pair of tokens.',
      'sdpa-efficient': 'The memory-efficient kernel.',
      'sdpa-cudnn': 'NVIDIA’s own kernel.',
      'sdpa-math': 'No special kernel: a score per pair of tokens.',
      eager: 'Plain PyTorch: keeps several scores per pair of tokens.',
    },
  },
  accumulate: {
    hint: 'micro-batches a step',
  },
  outputs: {
    hint: 'What a training loop does with logits once the loss is there.',
    choices: {
      dropped: 'As HF Trainer does.',
      kept: 'A loop of one’s own that holds them until the step is over.',
    },
  },
  clip: {
    hint: 'Scales gradients down where their norm is too large.',
    choices: {
      off: 'Gradients stay as they are.',
      '1': 'To a norm of 1, as most recipes do.',
    },
  },
  framework: {
    hint: 'Whose model code runs.',
    choices: {
      transformers: 'Hugging Face’s, checked against real runs.',
      llava: 'The original repository: from its source, so less sure.',
    },
  },
  segments: {
    hint: 'PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True',
    choices: {
      off: 'PyTorch’s default.',
      on: 'The allocator’s pieces can grow, so less is lost between them.',
    },
  },
  torch: {
    hint: 'Versions allocate differently.',
  },
  transformers: {
    hint: 'The version of Hugging Face’s library; those that were recorded.',
  },
  deepspeed: {
    hint: 'The version, where DeepSpeed spreads the job.',
  },
  freeze: {
    hint: 'These do not learn. Names at any depth, with commas between.',
    placeholder: 'vision_tower, lm_head',
  },
  trainonly: { hint: 'If there are any, nothing else learns.', placeholder: 'everything' },
  nograd: { hint: 'Their forward runs under torch.no_grad: nothing is kept for backward.', placeholder: 'none' },
  gpugib: { hint: 'GiB that programs can use: torch.cuda.mem_get_info()[1] / 2**30.' },
  capability: {
    hint: 'The GPU’s generation, as torch.cuda.get_device_capability() says it: it decides which kernels run.',
  },
  grid: {
    hint: 'grid_thw: frames, rows and columns of patches, in place of a size in pixels.',
    placeholder: '1, 48, 32',
  },
  minpixels: { hint: 'Pixels: smaller images are made larger.', placeholder: '3136' },
  maxpixels: { hint: 'Pixels: larger images are made smaller.', placeholder: '12845056' },
  cacheroom: {
    hint: 'max_cache_len: tokens that the static cache has room for, at least.',
    placeholder: 'as needed',
  },
  block: { hint: 'block_size: vLLM gives memory to a sequence by blocks of so many tokens.' },
  batched: {
    hint: 'max_num_batched_tokens: vLLM’s largest forward, in tokens.',
    placeholder: 'by the GPU',
  },
  prefix: { hint: 'Tokens with which every prompt begins: vLLM keeps them once.' },
  loss: {
    hint: 'What the backward pass begins with.',
    choices: {
      usual: 'The cross-entropy of classes; of a vision encoder, the mean of its pooled output.',
      mean: 'The mean of the first output: no labels, no softmax.',
      last_hidden_state: 'Of all patches, not of the pooled one.',
    },
  },
  groups: {
    hint: 'How the optimizer is given the weights.',
    choices: {
      '2': 'With and without weight decay, as HF Trainer does.',
      '1': 'All together, as torch.optim.AdamW(model.parameters()) does.',
    },
  },
  loratrain: { hint: 'modules_to_save: trained in full, as a copy beside the frozen one.', placeholder: 'lm_head' },
  lorascale: {
    hint: 'use_rslora: scales adapters by alpha / √rank.',
    choices: { on: 'The same memory.', off: 'By alpha / rank.' },
  },
  lorab: {
    hint: 'lora_bias: a bias beside each adapter’s second matrix.',
    choices: { on: 'One number an output more; PEFT 0.14 or later.', off: 'peft’s default.' },
  },
  ligersum: {
    hint: 'accum_dtype: in what Liger’s fused loss sums the head’s gradient.',
    choices: { weight: 'Liger’s default.', fp32: 'More exact: four bytes for each weight of the head.' },
  },
  ddpbuffers: {
    hint: 'broadcast_buffers: batch norm’s statistics and other buffers, before each forward.',
    choices: { on: 'PyTorch’s default.', off: 'Each GPU keeps its own.' },
  },
  ddpcopy: {
    hint: 'batched_grad_copy: gradients go into buckets many at a time.',
    choices: {
      on: 'Views of buckets: a bucket’s gradients lie beside it until all are there.',
      off: 'PyTorch’s default.',
    },
  },
  ddpskip: {
    hint: 'skip_all_reduce_unused_params',
    choices: { on: 'The same memory.', off: 'PyTorch’s default.' },
  },
  fsdpparam: {
    hint: 'param_dtype: in what gathered weights compute. Others than their own want fp32 weights.',
  },
  fsdpreduce: { hint: 'reduce_dtype: in what gradients are summed over GPUs.' },
  fsdpbuffer: { hint: 'buffer_dtype: of what is no weight, such as rotary tables.' },
  fsdpwrap: {
    hint: 'Classes whose modules are gathered one by one.',
    placeholder: 'each block',
  },
  fsdplimit: {
    hint: 'limit_all_gathers: waits before a third block is gathered.',
    choices: { on: 'PyTorch’s default.', off: 'Asks for the same memory.' },
  },
  fsdpsync: {
    hint: 'sync_module_states: the first GPU’s weights are sent to all at the start.',
    choices: { on: 'A moment’s memory while the model is wrapped.', off: 'PyTorch’s default.' },
  },
  peft: { hint: 'The version, where there are adapters.' },
  cudnn: {
    hint: 'NVIDIA’s library of convolutions; it has a workspace of its own.',
    choices: { on: 'As PyTorch’s own builds have it.', off: 'torch.backends.cudnn.enabled = False.' },
  },
};

export const placeholderOf = (key: FieldKey): string => EXPLANATIONS[key]?.placeholder ?? '';

export const hintOf = (key: FieldKey): string | undefined => EXPLANATIONS[key]?.hint;
export const aboutOf = (key: FieldKey, value: string): string => EXPLANATIONS[key]?.choices?.[value] ?? '';
