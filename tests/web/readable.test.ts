// Everybody can read the page, whatever it shows: axe finds nothing, and nothing is wider than the window.
import { expect, it } from 'vitest';
import {
  accessibility,
  number,
  open,
  page,
  pictures,
  settled,
  sweepOf,
  swept,
  useBrowser,
  VIEWS,
  visit,
  type View,
} from './browser';

useBrowser();

/** Everything below the answer is there: what would help, and a map of cells with its table. */
async function all(): Promise<void> {
  await page.goto('about:blank'); // or what stands there might be taken for it
  await visit('#v1?checkpointing=none&mbs=32'); // far too much
  await settled();
  await sweepOf('16');
  await swept(100_000);
  await page.locator('oometer-sweep').getByText('As a table').click();
}

async function inference(): Promise<void> {
  await visit('#v1?model=llama-3-8b&stage=full&task=inference&cache=paged');
  await settled();
}

async function more(view: View): Promise<void> {
  await page.getByLabel('Bars', { exact: true }).check();
  if (view.width < 960) await page.locator('details.more > summary').click();
  for (const key of ['checkpointing', 'attention', 'torch']) await page.locator(`[data-key=${key}]`).click();
  await page.getByRole('button', { name: 'Pin these settings' }).click();
}

async function table(): Promise<void> {
  await page.getByLabel('Table', { exact: true }).check();
  await page.getByRole('combobox', { name: 'GPU' }).click();
}

async function noModel(): Promise<void> {
  await page.keyboard.press('Escape');
  await page.getByRole('button', { name: 'Paste or drop a config.json' }).click();
  await page.getByRole('button', { name: 'Use it' }).click();
}

async function error(): Promise<void> {
  await page.keyboard.press('Escape');
  await number('Micro-batch').fill('0');
}

it.each(VIEWS)('at $width px, $colorScheme', async (view) => {
  await open(view);
  const states: [string, () => Promise<unknown>][] = [
    ['inference', inference],
    ['all of it', all],
    ['bars, more settings, a pin', () => more(view)],
    ['a table, a list', table],
    ['own model, none given', noModel],
    ['an error', error],
    ['a bad link', () => visit('#v7')],
  ];
  for (const [state, reach] of states) {
    await reach();
    expect(await accessibility(), state).toEqual([]);
    expect(await page.evaluate(() => document.documentElement.scrollWidth), state).toBeLessThanOrEqual(view.width);
    if (reach !== all) continue;
    for (const part of ['advice', 'sweep']) {
      const path = `${pictures}/${part}-${view.width}-${view.colorScheme ?? 'light'}.png`;
      await page.locator(`oometer-${part}`).screenshot({ path });
    }
  }
});
