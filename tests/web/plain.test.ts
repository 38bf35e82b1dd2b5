// What the page says is said in words that a person can use, and agrees with itself.
import { describe, expect, it } from 'vitest';
import { copiedFrom, drop, headline, number, page, pick, settled, shown, total, useBrowser, visit } from './browser';
import { INTERNLM2 } from '../../web/src/state/internlm2.fixture';

useBrowser();

describe('inference', () => {
  const LLAMA = '#v1?model=llama-3-8b&stage=full&task=inference';

  it('keeps the count of GPUs, each with users of its own, and offers no checkpoints', async () => {
    await visit(LLAMA);
    await settled();
    expect(await number('Count').inputValue()).toBe('8');
    const form = page.locator('oometer-form');
    await form.getByText('Each GPU holds the whole model and serves users of its own.').waitFor();
    await page.locator('oometer-trust').getByText('8 at once on each, 64 in all').waitFor();
    expect(await page.getByText('Which blocks to checkpoint').count()).toBe(0);
  });

  it('says what is left for the cache, takes its precision, and how many users fit', async () => {
    await visit(LLAMA);
    await settled();
    const serving = page.locator('oometer-serving');
    expect(await serving.locator('dl').innerText()).toContain('Left for the KV cache');
    await serving.getByLabel('4 bits').check();
    expect(JSON.parse((await shown()).job)).toMatchObject({
      inference: { cache: { implementation: 'quantized' } },
    });
    await settled();
    const row = serving.locator('tbody tr').nth(2);
    const users = (await row.locator('td').first().innerText()).replaceAll(',', '');
    await row.getByRole('button').click();
    expect(await headline()).toMatch(/^(Fits|Tight)/);
    expect(await number('Users at once').inputValue()).toBe(users);
  });
});

it('loads weights in 4 bits for inference, as transformers does', async () => {
  await visit('#v1?model=llama-3-8b&stage=full&task=inference&gpu=l4&gpus=1&mbs=16');
  await settled();
  const before = await total();
  const row = page.locator('details:has(> summary[data-key=quantization])');
  await row.locator('> summary').click();
  await row.getByText('NF4, double', { exact: true }).click();
  await expect.poll(total).toBeLessThan(before - 8 * 2 ** 30);
  expect(JSON.parse((await shown()).job)).toMatchObject({
    training: { quantization: { load_in_4bit: true, bnb_4bit_use_double_quant: true } },
  });
  await page.waitForFunction(() => location.hash.includes('quantization=nf4-double'));
});

it('says where a length is beyond what the model was made for', async () => {
  await visit();
  const form = page.locator('oometer-form');
  expect(await form.locator('.beyond').count()).toBe(0);
  await number('Sequence length').fill('32768');
  expect(await form.locator('.beyond').innerText()).toBe('Longer than the 4,096 tokens that this model was made for.');
});

it('says why training more takes less', async () => {
  await visit();
  const stage = page.locator('fieldset[data-key=stage]');
  await expect
    .poll(() => stage.locator('.hint').last().innerText())
    .toMatch(/^Full, Custom: tensors \+0\.\d\sGiB, unused cache −\d\.\d\sGiB/);
});

it('has the same rest in the map and in the bars', async () => {
  await visit();
  await settled();
  const map = page.locator('oometer-icicle .cell.rest').first();
  const inMap = /the rest ([\d.]+)\sGiB/.exec((await map.getAttribute('title')) ?? '')?.[1];
  await page.getByLabel('Bars', { exact: true }).check();
  const bars = page.locator('oometer-holders .modules tbody tr', { hasText: 'the rest' });
  expect(await bars.locator('td').last().innerText()).toBe(inMap);
});

it('knows that one GPU is enough for a job that fits on one', async () => {
  await visit('#v1?model=clip-vit-l-14&stage=full&seq=77&parallel=none&gpus=1');
  await settled();
  const fewest = page.locator('oometer-advice dl div', { hasText: 'Fewest GPUs' });
  expect(await fewest.locator('dd').innerText()).toMatch(/^1\s+as set$/);
});

it('says in one sentence what is not supported, and then what to do', async () => {
  await visit();
  await pick('Model', 'no model of this name');
  expect(await page.locator('oometer-picker[data-key=model] .none').innerText()).toBe(
    'No match: paste its config.json.',
  );
  await drop(['config.json', JSON.stringify(INTERNLM2)]);
  const dialog = page.locator('oometer-own-model dialog');
  await expect.poll(() => dialog.getByRole('alert').innerText()).toBe('InternLM 2 isn’t supported yet.');
  expect(await copiedFrom(dialog.locator('.graph').last(), 'Copy the command')).toBe(
    'python export_graph.py --hf config.json --task causal-lm --sequence-length 2048 -o internlm2.json',
  );
  expect(await dialog.getByText('LlamaForCausalLM').isVisible()).toBe(false);
  await dialog.getByRole('button', { name: 'Use Llama with its sizes' }).click();
  await expect.poll(() => page.getByRole('combobox', { name: 'Model' }).inputValue()).toBe('InternLM 2 as Llama');
  expect(await headline()).toMatch(/^(Fits|Tight|Does not fit)/);
});

it('leads a keyboard to the answer with the first stop', async () => {
  await visit();
  await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  const focused = await page.evaluate(
    () => document.querySelector('oometer-app')?.shadowRoot?.activeElement?.className,
  );
  expect(focused).toBe('answer');
});
