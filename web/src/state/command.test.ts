import { expect, it } from 'vitest';
import { command } from './command';
import { START } from './fields';
import { toJob } from './job';
import { llava as model, preset } from './model.fixture';

it('says what differs from the command’s own defaults', () => {
  expect(command(toJob(START, model))).toBe(
    'oometer estimate --preset llava-1.5-7b --micro-batch-size 8 --sequence-length 2048 --images-per-sample 1 ' +
      '--stage finetune --activation-checkpointing non-reentrant --strategy deepspeed ' +
      '--data-parallel 8 --zero-stage 2',
  );
});

it('writes lists and expressions so that a shell passes them on', () => {
  expect(command(toJob({ ...START, adapters: 'lora', targets: 'qv', adapterdtype: 'weights' }, model))).toContain(
    "--lora-rank 128 --lora-alpha 256 --lora-dropout 0.05 --lora-target-modules '(?!.*vision_tower).*\\.(q_proj|v_proj)' " +
      '--lora-also-train \'["multi_modal_projector"]\' --lora-autocast-adapter-dtype false ',
  );
});

it('names what else an option sets', () => {
  const inference: typeof START = { ...START, task: 'inference', gpus: '1', cache: 'paged', pool: '80' };
  expect(command(toJob(inference, model))).toMatch(/ --cache paged --gpu-memory-utilization 0.8$/);
  const quantized: typeof START = {
    ...START,
    task: 'inference',
    gpus: '1',
    cache: 'quantized',
    cachebits: '2',
    cacheresidual: '64',
  };
  expect(command(toJob(quantized, model))).toMatch(/ --cache quantized --cache-nbits 2 --cache-residual-length 64$/);
  expect(command(toJob({ ...START, task: 'inference' }, model))).toMatch(/ --data-parallel 8$/);
  expect(command(toJob({ ...START, tiles: '5' }, preset('smolvlm-2.2b')))).toContain('--tiles 5 ');
  expect(command(toJob({ ...START, adapters: 'lora', lorabias: 'all' }, model))).toContain('--lora-bias all ');
});

it('gives what has no option of its own as a job', () => {
  const adapters: typeof START = { ...START, adapters: 'lora', lorascale: 'on' };
  expect(command(toJob(adapters, model))).toMatch(
    /^echo '\{"training":\{"lora":\{"use_rslora":true\}\}\}' \| oometer estimate - --preset llava-1.5-7b .* --lora-rank 128 /,
  );
  const stride: typeof START = { ...START, task: 'inference', gpus: '1', cache: 'mtla', stride: '3' };
  expect(command(toJob(stride, preset('deepseek-v2-lite')))).toMatch(
    /^echo '\{"inference":\{"cache":\{"stride":3\}\}\}' \| oometer estimate - .* --cache mtla$/,
  );
});

it('names the file of an own model, and quotes what a shell would read', () => {
  const own = { ...model, job: { name: 'x', config: { model_type: 'llama' } } };
  expect(command(toJob({ ...START, segments: 'on', torch: '2.1; ls' }, own))).toMatch(
    /^oometer estimate --config config\.json .* --torch '2\.1; ls' --expandable-segments$/,
  );
});
