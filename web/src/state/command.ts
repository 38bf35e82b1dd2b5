// The command that asks the same in a terminal.
import type { Job } from './job.generated';
import { at, isObject, keys } from './json';

/** Options by where their value stands in a job; the command's own list is core/cli/options.cpp. */
const OPTIONS: readonly [pointer: string, option: string][] = [
  ['/model/preset', '--preset'],
  ['/task', '--task'],
  ['/inference/new_tokens', '--new-tokens'],
  ['/inference/turns', '--turns'],
  ['/inference/turn_tokens', '--turn-tokens'],
  ['/inference/turn_images', '--turn-images'],
  ['/inference/prefill_chunk_size', '--prefill-chunk-size'],
  ['/inference/logits', '--logits'],
  ['/inference/cache/implementation', '--cache'],
  ['/inference/cache/backend', '--cache-backend'],
  ['/inference/cache/nbits', '--cache-nbits'],
  ['/inference/cache/axis_key', '--cache-axis-key'],
  ['/inference/cache/axis_value', '--cache-axis-value'],
  ['/inference/cache/q_group_size', '--cache-q-group-size'],
  ['/inference/cache/residual_length', '--cache-residual-length'],
  ['/inference/cache/gpu_memory_utilization', '--gpu-memory-utilization'],
  ['/data/micro_batch_size', '--micro-batch-size'],
  ['/data/sequence_length', '--sequence-length'],
  ['/data/images_per_sample', '--images-per-sample'],
  ['/data/tiles', '--tiles'],
  ['/data/image_size', '--image-size'],
  ['/data/frames', '--frames'],
  ['/training/stage', '--stage'],
  ['/training/freeze', '--freeze'],
  ['/training/train_only', '--train-only'],
  ['/training/precision', '--precision'],
  ['/training/optimizer/name', '--optimizer'],
  ['/training/optimizer/implementation', '--optimizer-implementation'],
  ['/training/optimizer/momentum', '--momentum'],
  ['/training/optimizer/paged', '--paged'],
  ['/training/attention', '--attention'],
  ['/training/activation_checkpointing', '--activation-checkpointing'],
  ['/training/quantization', '--quantization'],
  ['/training/save_on_cpu', '--save-on-cpu'],
  ['/training/liger', '--liger'],
  ['/training/chunked_cross_entropy', '--chunked-cross-entropy'],
  ['/training/gradient_accumulation_steps', '--gradient-accumulation-steps'],
  ['/training/max_grad_norm', '--max-grad-norm'],
  ['/training/keep_outputs', '--keep-outputs'],
  ['/training/lora/rank', '--lora-rank'],
  ['/training/lora/alpha', '--lora-alpha'],
  ['/training/lora/dropout', '--lora-dropout'],
  ['/training/lora/bias', '--lora-bias'],
  ['/training/lora/target_modules', '--lora-target-modules'],
  ['/training/lora/also_train', '--lora-also-train'],
  ['/training/lora/use_dora', '--lora-use-dora'],
  ['/training/lora/modules_to_save', '--lora-modules-to-save'],
  ['/training/ia3/target_modules', '--ia3-target-modules'],
  ['/training/ia3/feedforward_modules', '--ia3-feedforward-modules'],
  ['/training/ia3/also_train', '--ia3-also-train'],
  ['/training/ia3/autocast_adapter_dtype', '--ia3-autocast-adapter-dtype'],
  ['/training/lora/autocast_adapter_dtype', '--lora-autocast-adapter-dtype'],
  ['/parallel/strategy', '--strategy'],
  ['/parallel/zero_stage', '--zero-stage'],
  ['/parallel/ddp', '--ddp'],
  ['/parallel/fsdp', '--fsdp'],
  ['/parallel/data', '--data-parallel'],
  ['/parallel/rank', '--rank'],
  ['/training/loss', '--loss'],
  ['/gpu/name', '--gpu'],
  ['/gpu/usable_bytes', '--usable-bytes'],
  ['/gpu/compute_capability', '--compute-capability'],
  ['/runtime/framework', '--framework'],
  ['/runtime/torch', '--torch'],
  ['/runtime/transformers', '--transformers'],
  ['/runtime/deepspeed', '--deepspeed'],
  ['/runtime/peft', '--peft'],
  ['/runtime/cudnn', '--cudnn'],
  ['/runtime/expandable_segments', '--expandable-segments'],
];

/** What the command does without being told; it need not be said. */
const DEFAULTS: Readonly<Record<string, unknown>> = {
  '/task': 'train',
  '/training/gradient_accumulation_steps': 1,
  '/training/optimizer/name': 'adamw',
  '/training/optimizer/implementation': 'fused',
  '/training/precision': 'bf16',
  '/training/attention': 'sdpa',
  '/training/activation_checkpointing': 'none',
  '/parallel/strategy': 'none',
  '/parallel/data': 1,
  '/runtime/framework': 'transformers',
  '/runtime/torch': '2.15',
  '/runtime/transformers': '5.23',
  '/runtime/deepspeed': '0.19.8',
  '/runtime/expandable_segments': false,
};

/** Parts of a job that the command reads from files. */
const FILES: readonly [pointer: string, option: string][] = [
  ['/model/config', '--config config.json'],
  ['/model/graph', '--graph model.json'],
  ['/parallel/ds_config', '--ds-config ds_config.json'],
  ['/parallel/accelerate_config', '--accelerate-config accelerate.json'],
];

/** Takes the value out, and the objects that are empty without it. */
function take(job: Record<string, unknown>, [key = '', ...rest]: readonly string[]): void {
  const value = job[key];
  if (rest.length > 0 && isObject(value)) take(value, rest);
  if (rest.length === 0 || (isObject(value) && Object.keys(value).length === 0)) Reflect.deleteProperty(job, key);
}

/** What no option says goes ahead of them, as a job of its own. */
export function command(job: Job): string {
  const words: string[] = [];
  const unsaid = structuredClone<unknown>(job) as Record<string, unknown>;
  for (const pointer of ['/version', '/model/name']) take(unsaid, keys(pointer));
  for (const [pointer, file] of FILES) {
    if (at(job, pointer) === undefined) continue;
    words.push(file);
    take(unsaid, keys(pointer));
  }
  for (const [pointer, option] of OPTIONS) {
    const value = at(job, pointer);
    take(unsaid, keys(pointer));
    if (value === undefined || value === null || value === DEFAULTS[pointer]) continue;
    const empty = typeof value === 'object' && Object.keys(value).length === 0;
    if (!empty) words.push(value === true ? option : `${option} ${word(value)}`);
  }
  const options = words.join(' ');
  if (Object.keys(unsaid).length === 0) return `oometer estimate ${options}`;
  return `echo ${word(unsaid)} | oometer estimate - ${options}`;
}

/** Settings are plain words; whatever is not must not become a second command. */
function word(value: unknown): string {
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  return /^[\w.,:+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
