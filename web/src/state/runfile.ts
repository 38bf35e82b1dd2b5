// One's own DeepSpeed or accelerate configuration: pasted or dropped, and carried by links as text.
import type { Setup } from './fields';
import { fromText, isObject, toText, within } from './json';

export interface RunFile {
  /** What it is called in a job. */
  kind: 'ds_config' | 'accelerate_config';
  config: Readonly<Record<string, unknown>>;
}

/** What the tree of a file is; null where it is something else. */
export function runOf(config: unknown): RunFile | null {
  if (!isObject(config)) return null;
  if ('zero_optimization' in config) return { kind: 'ds_config', config };
  if ('distributed_type' in config) return { kind: 'accelerate_config', config };
  return null;
}

export const packRun = ({ config }: RunFile): string => toText(config);
export const unpackRun = (packed: string): RunFile | null => (packed === '' ? null : runOf(fromText(packed)));

/** What it runs, in a few words: "DeepSpeed ZeRO-3, optimizer on the host", "FSDP2". */
export function describeRun({ kind, config }: RunFile): string {
  const accelerate = kind === 'accelerate_config';
  if (accelerate && config.distributed_type !== 'DEEPSPEED') {
    const version = within(config, ['fsdp_config', 'fsdp_version']);
    const types: Record<string, string> = { FSDP: `FSDP${version === 2 ? 2 : 1}`, MULTI_GPU: 'DDP', NO: 'One process' };
    return types[String(config.distributed_type)] ?? String(config.distributed_type);
  }
  const at = (own: string[], short: string): unknown =>
    within(config, own) ?? within(config, ['deepspeed_config', short]);
  const stage = at(['zero_optimization', 'stage'], 'zero_stage');
  const device = (name: string): unknown => at(['zero_optimization', name, 'device'], `${name}_device`);
  const away = (name: string, what: string): string[] => {
    const where = device(name);
    return where === undefined || where === 'none' ? [] : [`${what} on the ${where === 'nvme' ? 'disk' : 'host'}`];
  };
  const words = typeof stage === 'number' ? `DeepSpeed ZeRO-${stage}` : 'DeepSpeed';
  return [words, ...away('offload_optimizer', 'optimizer'), ...away('offload_param', 'weights')].join(', ');
}

/** The settings with the file in them, and what it says of others: there must be no two answers to one question. */
export function withRun(setup: Setup, file: RunFile): Setup {
  const next = { ...setup, runfile: packRun(file) };
  const { config } = file;
  const at = (...path: string[]): unknown => within(config, path);
  const number = (key: 'gpus' | 'mbs' | 'accumulate', value: unknown): void => {
    if (typeof value === 'number') next[key] = String(value);
  };
  if (file.kind === 'ds_config') {
    for (const precision of ['bf16', 'fp16']) if (at(precision, 'enabled') === true) next.precision = precision;
    number('mbs', config.train_micro_batch_size_per_gpu);
    number('accumulate', config.gradient_accumulation_steps);
    return next;
  }
  next.gpus = '1';
  number('gpus', config.num_processes);
  const precision = config.mixed_precision;
  if (precision === 'bf16' || precision === 'fp16')
    next.precision = config.distributed_type === 'DEEPSPEED' ? precision : `amp-${precision}`;
  number('accumulate', at('deepspeed_config', 'gradient_accumulation_steps'));
  return next;
}
