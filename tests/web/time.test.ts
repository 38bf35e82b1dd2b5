// How long a step takes, and what a change does to that.
import { expect, it } from 'vitest';
import { accessibility, page, settled, useBrowser, visit } from './browser';

useBrowser();

const section = () => page.locator('oometer-time section');
const text = async (): Promise<string> => (await section().innerText()).replaceAll('\u00a0', ' ');

it('a step has a time with its range, and what takes it', async () => {
  await visit();
  await settled();
  await page.locator('oometer-time section[aria-busy=false] dl').waitFor();
  expect(await text()).toMatch(/One step\s+[\d.]+ (ms|s|min) [\d.]+ (ms|s|min) to [\d.]+ (ms|s|min)/);
  expect(await text()).toMatch(/MFU\s+\d+ %/);
  const kinds = await section().locator('tbody th').allInnerTexts();
  expect(kinds).toContain('Matrix products');
  expect(kinds).toContain('Attention');
  expect(await text()).toMatch(/How busy the GPU is\s+The last step, [\d.]+ (ms|s|min) from left to right/);
  expect(kinds.some((kind) => kind.startsWith('Tensor cores'))).toBe(true);
  expect(await section().locator('svg path').count()).toBeGreaterThanOrEqual(4);
  expect(await accessibility()).toEqual([]);
});

it('a price, a power and tokens say what a training costs', async () => {
  await visit('#v1?watts=650&price=2.5&tokens=1000000000');
  await section().getByText('1,000,000,000 tokens').waitFor();
  expect(await text()).toMatch(/One step costs\s+[\d.,]+ kWh, price [\d.,]+/);
  expect(await text()).toMatch(/1,000,000,000 tokens\s+[\d.,]+ days [\d.,]+ to [\d.,]+\s+[\d.,]+ kWh, price [\d.,]+/);
});

it('a generation has the first token and the others', async () => {
  await visit('#v1?model=llama-3-8b&stage=full&task=inference');
  await section().getByText('Each further token').waitFor();
  expect(await text()).toMatch(/One generation\s+[\d.]+/);
});

it('where oometer knows none, it says why', async () => {
  await visit('#v1?gpu=mi300x');
  await section().getByText('No time: no kernel of the architecture').waitFor();
});

it('a change says what it does to the time of a token', async () => {
  await visit('#v1?checkpointing=none&mbs=32');
  await settled();
  const row = page.locator('oometer-advice tbody tr', { hasText: 'Activation checkpointing' }).first();
  expect((await row.innerText()).replaceAll('\u00a0', ' ')).toMatch(/\+\d+ % time/);
});
