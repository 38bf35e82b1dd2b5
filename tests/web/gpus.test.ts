// On which GPU: the whole catalogue with one's settings.
import { expect, it } from 'vitest';
import { accessibility, headline, page, settled, useBrowser, visit } from './browser';

useBrowser();

const table = () => page.locator('oometer-gpus');
const rows = () => table().locator('tbody tr');

async function answered(): Promise<void> {
  await settled();
  await table().scrollIntoViewIfNeeded();
  await table().locator('section[aria-busy=false]').waitFor();
  await rows().first().waitFor();
}

it('has every GPU, the smallest of which fewest are enough first, and takes one with one press', async () => {
  await visit();
  await answered();
  expect(await rows().count()).toBeGreaterThan(45);
  const needed = (await rows().locator('td:nth-child(5)').allInnerTexts()).map((text) => parseInt(text) || 1000);
  expect(needed).toEqual([...needed].sort((a, b) => a - b));
  expect(await accessibility()).toEqual([]);
  await table().getByRole('button', { name: 'RTX 6000 Ada' }).click();
  await expect.poll(() => page.url()).toContain('gpu=rtx-6000-ada');
  await expect.poll(headline).toMatch(/^(Fits|Tight)/);
  await page.goBack();
  await expect.poll(() => page.url()).not.toContain('gpu=');
});

it('is filtered and sorted, and counts what somebody pays', async () => {
  await visit();
  await answered();
  await table().getByLabel('Vendor').selectOption('AMD');
  expect(await rows().locator('th').allInnerTexts()).toSatisfy((names: string[]) =>
    names.every((name) => name.includes('Instinct')),
  );
  await table().getByLabel('Vendor').selectOption('any');
  await table().getByLabel('Found').selectOption('on desks');
  await table().getByRole('combobox', { name: 'Memory' }).selectOption('24 GB or more');
  const names = await rows().locator('th').allInnerTexts();
  expect(names.some((name) => name.includes('RTX 4090'))).toBe(true);
  expect(names.some((name) => name.includes('H100') || name.includes('RTX 3070'))).toBe(false);
  const row = rows().filter({ hasText: 'RTX 6000 Ada' });
  const count = parseInt(await row.locator('td:nth-child(5)').innerText());
  await row.getByRole('spinbutton').fill('0.75');
  expect(await row.locator('td').last().innerText()).toBe((0.75 * count).toFixed(2));
  await table().getByRole('button', { name: 'Cost an hour' }).click();
  expect(await rows().first().innerText()).toContain('RTX 6000 Ada');
});
