// What a machine's memory has to hold, and that the verdict counts it.
import { expect, it } from 'vitest';
import { accessibility, page, settled, useBrowser, visit } from './browser';

useBrowser();

const section = () => page.locator('oometer-host section');
const text = async (): Promise<string> => (await section().innerText()).replaceAll('\u00a0', ' ');

it('the processes of a machine have a need, and what it is made of', async () => {
  await visit('#v1?parallel=zero3&zerooffload=optimizer&gpus=8');
  await settled();
  await section().getByText('processes on a machine need').waitFor();
  expect(await text()).toMatch(/The 8 processes on a machine need [\d.]+ GiB while training, at most [\d.]+ GiB\./);
  await section().getByText('What is in it').click();
  const held = await section().locator('tbody th').allInnerTexts();
  expect(held).toContain('fp32 master weights');
  expect(held).toContain('loading');
  expect(await accessibility()).toEqual([]);
});

it('a machine that is too small is in the verdict', async () => {
  await visit('#v1?parallel=zero3&zerooffload=optimizer&gpus=8&hostmem=64');
  await settled();
  expect((await page.locator('oometer-verdict h2').first().innerText()).replaceAll('\u00a0', ' ')).toMatch(
    /^Does not fit: host memory is [\d.]+ GiB short/,
  );
  await section().getByText('of 64.0').waitFor();
});
