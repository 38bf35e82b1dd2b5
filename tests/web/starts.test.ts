// What people come with, one press each.
import { expect, it } from 'vitest';
import { headline, open, page, shown, useBrowser, visit } from './browser';

useBrowser();

const starts = () => page.getByRole('group', { name: 'Start from' }).getByRole('button');

it('each start is answered with one press, and undone by the back button', async () => {
  await visit();
  const before = page.url();
  const count = await starts().count();
  expect(count).toBe(6);
  for (let i = 0; i < count; ++i) {
    const { job } = await shown();
    await starts().nth(i).click();
    await expect.poll(async () => (await shown()).job).not.toBe(job);
    await expect.poll(headline).toMatch(/^(Fits|Tight)/);
  }
  for (let i = 0; i < count; ++i) await page.goBack();
  await expect.poll(() => page.url()).toBe(before);
});

it('brings a model that no list of the core has', async () => {
  await open({ width: 390, height: 844 });
  await visit();
  await page.getByRole('button', { name: 'Serve a 70B' }).click();
  await expect.poll(async () => (await shown()).job).toContain('"num_hidden_layers":80');
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(390);
});
