// What was asked, in one line, for what leaves the page.
import type { Job } from '../state/job.generated';
import { grouped } from './bytes';

type Json = Readonly<Record<string, unknown>>;

const STRATEGIES: Readonly<Record<string, string>> = { ddp: 'DDP', fsdp1: 'FSDP1', fsdp2: 'FSDP2' };
const STAGES: Readonly<Record<string, string>> = { pretrain: 'pre-training', finetune: 'fine-tuning' };

function strategy(parallel: Json): string {
  const { strategy, zero_stage, ds_config, accelerate_config } = parallel;
  const zero = (ds_config as { zero_optimization?: Json } | undefined)?.zero_optimization;
  if (accelerate_config !== undefined) return 'accelerate configuration';
  if (strategy === 'deepspeed')
    return `ZeRO-${String(Number(zero?.stage ?? zero_stage ?? 2))}${zero?.offload_optimizer ? ', offload' : ''}`;
  return STRATEGIES[String(strategy)] ?? '';
}

function training(training: Json): string[] {
  const { stage, precision, lora, ia3, quantization, activation_checkpointing: checkpointing, liger } = training;
  const adapters =
    lora === undefined ? (ia3 === undefined ? '' : '(IA)³') : quantization === undefined ? 'LoRA' : 'QLoRA';
  return [
    STAGES[String(stage)] ?? 'training',
    adapters,
    typeof precision === 'string' ? precision : 'bf16',
    checkpointing === undefined || checkpointing === 'none' ? '' : 'checkpointing',
    liger === undefined || liger === false ? '' : 'Liger',
  ];
}

/** "LLaVA-1.5 7B: fine-tuning, bf16, checkpointing, micro-batch 8, 2,048 tokens, ZeRO-2" */
export function gist(model: string, job: Job): string {
  const { task, data = {}, parallel = {} } = job as { task?: string; data?: Json; parallel?: Json; training?: Json };
  const { micro_batch_size, sequence_length } = data;
  const count = Number(micro_batch_size ?? 1);
  const parts = [
    ...(task === 'inference' ? ['inference'] : training(job.training ?? {})),
    task === 'inference' ? `${grouped.format(count)} at once` : `micro-batch ${grouped.format(count)}`,
    sequence_length === undefined ? '' : `${grouped.format(Number(sequence_length))} tokens`,
    task === 'inference' ? '' : strategy(parallel),
  ];
  return `${model}: ${parts.filter((part) => part !== '').join(', ')}`;
}
