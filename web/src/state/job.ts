// The job that a setup stands for.
import {
  applies,
  BF16_IN_AUTOCAST,
  byTrl,
  field,
  FIELDS,
  infers,
  isByTrainer,
  isFsdpWhole,
  number,
  MOST_BATCHES,
  OWN_GPU,
  START,
  zeroStage,
} from './fields';
import type { Field, FieldKey, Setup } from './fields';
import type { Job } from './job.generated';
import { histogramOf } from './lengths';
import { imageSizesOf, videoOf } from './media';
import type { Model } from './model';
import { unpackPlan } from './plan';
import { unpackRun, type RunFile } from './runfile';
import { ownChoice, type Traits } from './traits';

const PREFETCH: Readonly<Record<string, object>> = {
  post: { backward_prefetch: 'BACKWARD_POST' },
  none: { backward_prefetch: 'NO_PREFETCH' },
  both: { forward_prefetch: true },
};

/** The two versions name the same choice otherwise. */
function fsdpOptions(setup: Setup): object {
  const { parallel, fsdpreshard, fsdpprefetch } = setup;
  if (parallel === 'fsdp2') return { reshard_after_forward: fsdpreshard === 'on' };
  const sharding = isFsdpWhole(setup) ? 'NO_SHARD' : fsdpreshard === 'on' ? 'FULL_SHARD' : 'SHARD_GRAD_OP';
  return { sharding, ...PREFETCH[fsdpprefetch] };
}

function ddpOptions({ ddpviews, ddpgraph }: Setup): object {
  return {
    ...(ddpviews.endsWith('views') ? { gradient_as_bucket_view: true } : {}),
    ...(ddpviews.startsWith('lazy') ? { lazy_bucket_allocation: true } : {}),
    ...(ddpgraph === 'unused' ? { find_unused_parameters: true } : {}),
    ...(ddpgraph === 'static' ? { static_graph: true } : {}),
  };
}

/** How long samples are, and what a batch is made of. */
function samples(setup: Setup, means: (key: FieldKey) => boolean): object {
  const { shortest, longest, histogram, padding, scored } = setup;
  const multiple = /^\d+$/.test(padding);
  const most = number(longest === START.longest ? setup.seq : longest);
  const least = shortest === START.shortest ? Math.ceil(most / 2) : number(shortest);
  return {
    ...(means('shortest') ? { lengths: { uniform: [least, most] } } : {}),
    ...(means('histogram') ? { lengths: { histogram: histogramOf(histogram) } } : {}),
    ...(means('padding') && padding !== START.padding ? { padding: multiple ? number(padding) : padding } : {}),
    ...(means('scored') && scored !== START.scored
      ? { scored: /^\d/.test(scored) ? { fraction: number(scored) } : scored }
      : {}),
    ...(means('evalbatches') ? evaluation(setup) : {}),
  };
}

/** Full batches: what they predict stays on the device until all are done. */
function evaluation({ evalbatches, evalbatch, seq }: Setup): object {
  const times = (count: string, what: unknown): unknown[] =>
    Array.from({ length: Math.min(number(count) || 0, MOST_BATCHES) }, () => what);
  return { evaluation: { lengths: { batches: times(evalbatches, times(evalbatch, number(seq))) } } };
}

/** Whose code runs the steps. What a trainer would do by itself and does not here, the job says: clipping, and TRL's autocast. */
function loop(setup: Setup, byTrainer: boolean): object {
  const clips = setup.clip !== START.clip;
  const casts = setup.precision.startsWith('amp-') || setup.precision === BF16_IN_AUTOCAST;
  const args = byTrl(setup.loop) && !casts ? { args: { bf16: false } } : {};
  return {
    ...(byTrainer ? { loop: { name: setup.loop, ...args } } : {}),
    ...(byTrainer || clips ? { max_grad_norm: clips ? number(setup.clip) : 0 } : {}),
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

/** The model's tower and projector, where these are not all trained: what trains beside adapters. */
const partsOf = (setup: Setup, model: Model): Traits['components'][string] | undefined =>
  setup.stage === 'full' ? undefined : model.components[frameworkOf(setup, model)];

const frameworkOf = (setup: Setup, model: Model): string =>
  applies(field('framework'), model, setup) ? setup.framework : 'transformers';

/**
 * The adapters, as peft takes them. Fine-tuning a model that takes images is LLaVA's own recipe (scripts/v1_5/finetune_lora.sh): adapters in
 * the language model, the projector trained in full, nothing in the vision encoder.
 */
function adapters(setup: Setup, model: Model): object {
  if (setup.adapters === 'none') return {};
  const parts = partsOf(setup, model);
  const named = (names: readonly string[]): string => `${parts ? `(?!.*${parts.tower})` : ''}.*\\.(${names.join('|')})`;
  const common = {
    ...(parts ? { also_train: [parts.projector] } : {}),
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
      target_modules: named(LAYERS[setup.targets] ?? []),
      ...(setup.adapters === 'dora' ? { use_dora: true } : {}),
      ...common,
    },
  };
}

/** As QLoRA has it; where a projector trains in full beside the adapters, it is left as it is. */
function quantization(setup: Setup, model: Model): object {
  return {
    load_in_4bit: true,
    bnb_4bit_quant_type: setup.quantization.slice(0, 3),
    ...(setup.quantization === 'nf4-double' ? { bnb_4bit_use_double_quant: true } : {}),
    bnb_4bit_compute_dtype: setup.precision.endsWith('fp16') ? 'float16' : 'bfloat16',
    ...(!infers(setup) && partsOf(setup, model) ? { llm_int8_skip_modules: model.skip_modules } : {}),
  };
}

function runOptions({ kind, config }: RunFile): object {
  return kind === 'ds_config' ? { strategy: 'deepspeed', ds_config: config } : { accelerate_config: config };
}

function strategyOptions(setup: Setup): object {
  const { parallel } = setup;
  const stage = zeroStage(parallel);
  return {
    strategy: stage === undefined ? parallel : 'deepspeed',
    ...(stage === undefined ? {} : zeroOptions(setup, Number(stage))),
    ...(parallel === 'ddp' ? { ddp: ddpOptions(setup) } : {}),
    ...(parallel === 'fsdp1' || parallel === 'fsdp2' ? { fsdp: fsdpOptions(setup) } : {}),
  };
}

/** LLaVA's zero2.json or zero3.json, which the stage alone means, with what is offloaded: as llava_config of core/advice writes it. */
function zeroOptions(setup: Setup, stage: number): object {
  if (setup.zerooffload === 'off') return { zero_stage: stage };
  const auto = 'auto';
  const offload = { device: 'cpu' };
  const ofStage3 = {
    stage3_prefetch_bucket_size: auto,
    stage3_param_persistence_threshold: auto,
    stage3_gather_16bit_weights_on_model_save: true,
  };
  return {
    ds_config: {
      fp16: { enabled: auto },
      bf16: { enabled: auto },
      train_micro_batch_size_per_gpu: auto,
      train_batch_size: auto,
      gradient_accumulation_steps: auto,
      zero_optimization: {
        stage,
        overlap_comm: true,
        contiguous_gradients: true,
        sub_group_size: 1_000_000_000,
        reduce_bucket_size: auto,
        ...(stage === 3 ? ofStage3 : {}),
        offload_optimizer: offload,
        ...(setup.zerooffload === 'both' ? { offload_param: offload } : {}),
      },
    },
  };
}

/** "1032-141" */
function calibration({ measured }: Setup): object {
  const [, thousandths, mib] = /^(\d+)(?:-(\d+))?$/.exec(measured) ?? [];
  if (thousandths === undefined) return {};
  const outside = mib === undefined ? {} : { outside_allocator: Number(mib) * 1048576 };
  return { calibration: { reserved: Number(thousandths) / 1000, ...outside } };
}

const words = (text: string): string[] => text.split(/[\s,]+/).filter((word) => word !== '');

/** What a setting is in a job. */
function literal({ type, kind, yes = 'on' }: Field, value: string): unknown {
  if (kind === 'names') return words(value);
  if (kind === 'numbers') return words(value).map(number);
  if (type === 'boolean') return value === yes;
  return type === 'string' ? value : number(value);
}

function put(job: Record<string, unknown>, pointer: string, value: unknown): void {
  const [, ...path] = pointer.split('/');
  const last = path.pop() ?? '';
  let at = job;
  for (const key of path) at = (at[key] ??= {}) as Record<string, unknown>;
  at[last] = value;
}

/** The job that a setup stands for. Fields that mean nothing for the model are left out. */
export function toJob(setup: Setup, model: Model): Job {
  const means = (key: FieldKey): boolean => applies(field(key), model, setup);
  const job = madeJob(setup, model, means);
  for (const field of FIELDS) {
    const value = setup[field.key];
    if (field.made || (!field.told && value === field.start) || !applies(field, model, setup)) continue;
    put(job, field.pointers[0] ?? '', literal(field, value));
  }
  const loss = ownChoice(model, '/training/loss');
  if (loss !== undefined && means('loss') && setup.loss === START.loss) put(job, '/training/loss', loss);
  // The values of selects come from the schema's own lists, which the compiler cannot see.
  return job as unknown as Job;
}

const precisionOf = ({ precision }: Setup): unknown =>
  precision === BF16_IN_AUTOCAST ? { weights: 'bf16', autocast: 'bf16' } : precision;

const gpuOf = ({ gpu, gpugib, capability }: Setup): object =>
  gpu === OWN_GPU
    ? { usable_bytes: Math.round(number(gpugib) * 2 ** 30), compute_capability: capability }
    : { name: gpu };

/** A number alone is of GiB. */
const hostMemory = (text: string): string => (/^[\d.]+$/.test(text) ? `${text}GiB` : text);

/** What fields make together, or otherwise than they have it. */
function madeJob(setup: Setup, model: Model, means: (key: FieldKey) => boolean): Record<string, unknown> {
  const shared = {
    version: 1,
    model: model.job,
    task: setup.task,
    data: {
      ...(means('height') ? { image_size: [number(setup.height), number(setup.width)] } : {}),
      ...(setup.imagesizes !== '' && means('imagesizes') ? { image_sizes: imageSizesOf(setup.imagesizes) } : {}),
      ...(setup.video !== '' && means('video') ? { video: videoOf(setup.video) } : {}),
      ...samples(setup, means),
    },
    gpu: gpuOf(setup),
    ...(setup.hostmem === '' ? {} : { host: { memory: hostMemory(setup.hostmem) } }),
  };
  const byTrainer = means('loop') && isByTrainer(setup);
  const precision = means('precision') ? { precision: precisionOf(setup) } : {};
  const quantized =
    setup.quantization === 'none' || !means('quantization') ? {} : { quantization: quantization(setup, model) };
  const share = means('pool') && setup.pool !== START.pool;
  if (infers(setup))
    return {
      ...shared,
      training: { ...precision, ...quantized },
      ...(share ? { inference: { cache: { gpu_memory_utilization: number(setup.pool) / 100 } } } : {}),
    };
  const run = setup.runfile === '' || !means('runfile') ? null : unpackRun(setup.runfile);
  const deepspeed = run ? run.config.distributed_type !== 'FSDP' : setup.parallel.startsWith('zero');
  return {
    ...shared,
    training: {
      ...precision,
      ...loop(setup, byTrainer),
      optimizer: {
        name: setup.optimizer === 'sgd-momentum' ? 'sgd' : setup.optimizer,
        implementation: setup.impl.replace('-paged', ''),
        ...(setup.impl.endsWith('-paged') ? { paged: true } : {}),
        ...(setup.optimizer === 'sgd-momentum' ? { momentum: 0.9 } : {}),
      },
      ...(means('checkpointing') ? { activation_checkpointing: checkpointing(setup) } : {}),
      ...(setup.saved.startsWith('p') ? { save_on_cpu: setup.saved } : {}),
      ...quantized,
      ...(setup.liger === 'off' || !means('liger') ? {} : { liger: liger(setup) }),
      ...(means('adapters') ? adapters(setup, model) : {}),
    },
    parallel: run ? runOptions(run) : strategyOptions(setup),
    runtime: {
      // The original code brings its own; DeepSpeed's version means something only where it runs.
      ...(setup.framework === 'transformers' && means('transformers') ? { transformers: setup.transformers } : {}),
      ...(deepspeed ? { deepspeed: setup.deepspeed } : {}),
    },
    ...calibration(setup),
  };
}
