// What would help: found by a worker, applied with one press.
import { describe, expect, it } from 'vitest';
import { headline, number, page, settled, total, useBrowser, visit } from './browser';

useBrowser();

/** Fine-tuning with nothing saved: far too much for the example's GPUs. */
const TOO_MUCH = '#v1?checkpointing=none&mbs=32';

const advice = () => page.locator('oometer-advice');
describe('what would help', () => {
  it('is applied with one press, and gives the peak that it promised', async () => {
    await visit(TOO_MUCH);
    await settled();
    const row = advice()
      .locator('tbody tr', { has: page.getByRole('button') })
      .first();
    const promised = (await row.locator('td').nth(2).getAttribute('title')) ?? '';
    const before = page.url();
    await row.getByRole('button').click();
    await expect.poll(total).toBe(Number(promised.replaceAll(/\D/g, '')));
    expect(page.url()).not.toBe(before);
    await page.goBack();
    await expect.poll(() => page.url()).toBe(before);
  });

  it('gives a combination that fits', async () => {
    await visit(TOO_MUCH);
    expect(await headline()).toMatch(/^Does not fit/);
    await settled();
    await advice().locator('.together').getByRole('button').first().click();
    await expect.poll(headline).toMatch(/^(Fits|Tight)/);
  });

  it('says how far the micro-batch goes', async () => {
    // On one GPU: where ranks differ, the worst one's answer comes after the first.
    await visit('#v1?model=clip-vit-l-14&stage=full&seq=77&parallel=none&gpus=1');
    await settled();
    await advice().getByRole('button', { name: 'Use largest micro-batch' }).click();
    expect(await headline()).toMatch(/^(Fits|Tight)/);
    const most = Number(await number('Micro-batch').inputValue());
    await number('Micro-batch').fill(String(most + 1));
    expect(await headline()).not.toMatch(/^Fits/);
  });

  it('is about the newest settings', async () => {
    await visit();
    for (const count of ['1', '3', '64']) await number('Micro-batch').fill(count);
    await settled();
    const promised = await advice().locator('tbody tr').first().locator('td').nth(2).getAttribute('title');
    await page.waitForFunction(() => location.hash === '#v1?mbs=64');
    await page.reload();
    await settled();
    expect(await advice().locator('tbody tr').first().locator('td').nth(2).getAttribute('title')).toBe(promised);
  });
});

describe('which blocks to checkpoint', () => {
  const panel = () => page.locator('oometer-checkpoints');

  it('is found when it is asked for, and applied with one press', async () => {
    await visit('#v1?checkpointing=none&parallel=none&gpus=1');
    const before = await total();
    await panel().locator('summary').click();
    const rows = panel().locator('table').last().locator('tbody tr');
    await rows.first().waitFor();
    expect(await rows.count()).toBeGreaterThan(4);
    const bytes = (await rows.locator('td:nth-child(2)').allInnerTexts()).map(Number);
    expect(bytes).toEqual([...bytes].sort((a, b) => b - a));
    expect((await rows.locator('td:nth-child(4)').allInnerTexts()).every((step) => /^[\d.]+\s(s|ms)$/.test(step))).toBe(
      true,
    );
    await rows.last().getByRole('button').click();
    await expect.poll(total).toBeLessThan(before);
    expect(page.url()).toMatch(/ckptplan=[\w-]+/);
    const chosen = await total();
    await page.reload();
    await expect.poll(total).toBe(chosen);
    await page.getByRole('button', { name: 'Remove Chosen blocks' }).click();
    await expect.poll(() => page.url()).not.toContain('ckptplan');
  });
});

describe('ranks', () => {
  it('that differ stand beside each other', async () => {
    await visit();
    const rows = page.locator('table[aria-labelledby=ranks] tbody tr');
    await rows.first().waitFor();
    expect(await rows.count()).toBe(8);
    expect(await rows.filter({ hasText: 'shown' }).count()).toBeGreaterThan(0);
    await visit('#v1?parallel=ddp');
    await expect.poll(async () => rows.count()).toBe(0);
  });
});
