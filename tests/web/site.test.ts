// The site around the page: what explains it, and what is left of it without a network.
import { describe, expect, it } from 'vitest';
import { complaints, detail, headline, number, open, page, settled, site, useBrowser, visit } from './browser';

useBrowser();

describe('how it is calculated', () => {
  it('has a place for every number that leads there', async () => {
    await visit('#v1?/mbs=4');
    const topics = new Set<string>();
    for (const view of ['Map', 'Bars', 'Table']) {
      await page.getByLabel(view, { exact: true }).check();
      for (const link of await page.locator('a[href*="method.html#"]').all()) {
        topics.add(((await link.getAttribute('href')) ?? '').split('#')[1] ?? '');
      }
    }
    expect(topics.size).toBeGreaterThan(8);
    await page.goto(`${site.address}method.html`);
    const known = new Set(await page.locator('[id]').evaluateAll((all) => all.map(({ id }) => id)));
    expect([...topics].filter((topic) => !known.has(topic))).toEqual([]);
  });

  it('shows the README’s accuracy', async () => {
    await page.goto(`${site.address}method.html#accuracy`);
    expect(await page.locator('table tbody tr').count()).toBeGreaterThan(4);
  });
});

describe('without a network', () => {
  it('is there again after a first visit, and answers', async () => {
    await visit('#v1?mbs=16');
    const before = await detail();
    await settled(); // nothing is being loaded any more
    await page.evaluate(() => navigator.serviceWorker.ready);
    await page.context().setOffline(true);
    await page.reload();
    await page.locator('oometer-verdict h2').waitFor();
    expect(await detail()).toBe(before);
    await number('Micro-batch').fill('4');
    await expect.poll(detail).not.toBe(before);
    await settled();
    await page.goto(`${site.address}method.html`);
    expect(await page.locator('h1').innerText()).toBe('How it is calculated');
  });

  it('is not needed: the page works where service workers are refused', async () => {
    await open({ width: 1440, height: 900, serviceWorkers: 'block' });
    await visit();
    expect(await headline()).not.toBe('');
    complaints.splice(0, complaints.length, ...complaints.filter((text) => !/service worker/i.test(text)));
  });
});

it('is usable at 200 % zoom and with reduced motion', async () => {
  await open({ width: 720, height: 450, deviceScaleFactor: 2, reducedMotion: 'reduce' });
  await visit();
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(720);
  await number('Images per sample').scrollIntoViewIfNeeded();
  await number('Images per sample').fill('2');
  expect(await number('Images per sample').inputValue()).toBe('2');
});
