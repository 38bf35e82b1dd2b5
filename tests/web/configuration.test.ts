// After a DeepSpeed or accelerate file was given: each of its keys, what became of it, and whether it matters.
import { expect, it } from 'vitest';
import { accessibility, drop, page, settled, useBrowser, visit } from './browser';

useBrowser();

const ZERO3 = JSON.stringify({
  bf16: { enabled: 'auto' },
  train_micro_batch_size_per_gpu: 'auto',
  zero_optimization: { stage: 3, overlap_comm: true, reduce_bucket_size: 'auto' },
  steps_per_print: 10,
});
const ACCELERATE = `compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_version: 2
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
mixed_precision: 'no'
num_machines: 1
num_processes: 4
`;

const section = () => page.locator('oometer-configuration');
/** A row's cells: key, value, where it is from, whether memory depends on it. */
const row = async (key: string): Promise<string[]> =>
  section()
    .locator('tbody tr', { has: page.getByText(key, { exact: true }) })
    .locator('th, td')
    .allInnerTexts();

it('a ds_config shows what "auto" became', async () => {
  await visit();
  await settled();
  expect(await section().count()).toBe(0);
  await drop(['zero3.json', ZERO3]);
  await section().getByText('Taken as').waitFor();
  await expect.poll(() => section().locator('tbody tr').count()).toBeGreaterThan(3);
  expect(await section().locator('p').first().innerText()).toBe('Taken as DeepSpeed ZeRO-3.');
  expect(await row('zero_optimization.stage')).toEqual(['zero_optimization.stage', '3', 'your file', 'yes']);
  const [, value, from] = await row('zero_optimization.reduce_bucket_size');
  expect(value).toBe(String(4096 ** 2)); // hidden_size squared, as transformers has it
  expect(from).toMatch(/^auto: /);
  expect((await row('train_micro_batch_size_per_gpu'))[1]).toBe('8');
  expect((await row('steps_per_print'))[3]).toBe('no');
  expect(await accessibility()).toEqual([]);
});

it('a file of accelerate shows its keys, too', async () => {
  await visit('#v1?model=llama-3-8b&stage=full&seq=2048');
  await settled();
  await drop(['accelerate.yaml', ACCELERATE]);
  await section().getByText('Taken as').waitFor();
  await expect.poll(() => section().locator('tbody tr').count()).toBeGreaterThan(3);
  expect(await section().locator('p').first().innerText()).toBe('Taken as FSDP2.');
  expect((await row('num_processes')).slice(0, 3)).toEqual(['num_processes', '4', 'your file']);
});
