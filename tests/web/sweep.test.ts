// The sweep: a map of answers, computed by workers, of which each cell can be used.
import { describe, expect, it } from 'vitest';
import { headline, number, page, requests, settled, shown, sweepOf, swept, total, useBrowser, visit } from './browser';

useBrowser();

const sweep = () => page.locator('oometer-sweep');
const said = () => sweep().getByRole('status').first();
/** Of 10,000 cells: no machine is done with it while a test presses a few keys. */
const longSweep = async (): Promise<void> => {
  await page.getByLabel('Micro-batch up to').fill('100');
  await sweepOf('100');
};

describe('a sweep', () => {
  it('answers edits meanwhile', async () => {
    await visit();
    await longSweep();
    await expect.poll(() => sweep().getByRole('progressbar').getAttribute('value')).not.toBe('0');
    for (const count of ['9', '10', '11']) {
      await number('Micro-batch').fill(count);
      await expect
        .poll(async () => JSON.parse((await shown()).job) as object)
        .toMatchObject({
          data: { micro_batch_size: Number(count) },
        });
      expect(await sweep().getByRole('progressbar').count()).toBe(1);
    }
  });

  it('of 32 × 32 is finished, with what the page has already', async () => {
    await visit();
    await settled();
    const before = requests.length;
    await sweepOf('32');
    expect(await swept(100_000)).toMatch(/^1,024 cells in/);
    // The browser may ask for the workers' own script once more.
    expect(requests.slice(before).filter((address) => !/\/oometer-[^/]*\.js$/.test(address))).toEqual([]);
  });

  it('says of a cell what the page says of its settings', async () => {
    await visit();
    await sweepOf('16');
    await swept(100_000);
    await sweep().getByText('As a table').click();
    expect(await sweep().locator('tbody tr').count()).toBe(16);
    const cells = sweep().getByRole('application');
    const box = await cells.boundingBox();
    if (!box) throw new Error('the map is not drawn');
    for (const [x, y] of [
      [0.35, 0.05],
      [0.55, 0.35],
      [0.95, 0.95],
    ] as const) {
      await settled(); // what comes into the page above the map moves it away from under the pointer
      await cells.hover({ position: { x: x * box.width, y: y * box.height } });
      const told = await sweep().locator('.readout').innerText();
      await cells.click({ position: { x: x * box.width, y: y * box.height } });
      const isShown = async (): Promise<boolean> => told.includes(` ${((await total()) / 1024 ** 3).toFixed(1)} of `);
      await expect.poll(isShown, { message: told }).toBe(true);
      expect(told).toContain(`Micro-batch ${await number('Micro-batch').inputValue()}, `);
      const words = /: (fits|tight|does not fit),/.exec(told)?.[1] ?? '';
      expect((await headline()).toLowerCase().startsWith(words)).toBe(true);
    }
  });

  it('is cancelled at once, and begun again', async () => {
    await visit();
    await longSweep();
    await sweep().getByRole('progressbar').waitFor();
    await sweep().getByRole('button', { name: 'Cancel' }).click();
    expect(await said().innerText()).toMatch(/^Cancelled after [\d,]+ of [\d,]+ cells/);
    expect(await sweep().getByRole('progressbar').count()).toBe(0);
    await sweepOf('16');
    await swept(100_000);
  });

  it('goes over GPUs, by keyboard', async () => {
    await visit();
    await sweep().getByLabel('GPU × micro-batch').check();
    await sweepOf('16');
    await swept(100_000);
    await sweep().getByRole('application').focus();
    for (const key of ['ArrowUp', 'ArrowRight', 'Enter']) await page.keyboard.press(key);
    await expect.poll(() => new URL(page.url()).hash).toMatch(/^#v1\?gpu=/);
  });
});
