// The pictures and what one does with them.
import type { Locator } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { copiedFrom, number, page, shown, useBrowser, visit } from './browser';

useBrowser();

interface Factors {
  parameters: number;
  activations: number;
}
interface Report {
  peak: { total: number };
  breakdown: Factors;
}

const report = async (): Promise<Report> => JSON.parse((await shown()).report) as Report;

describe('the map of modules', () => {
  it('is walked into and out of, by mouse and by keyboard', async () => {
    await visit();
    const tree = page.getByRole('tree');
    const way = page.getByRole('navigation', { name: 'Way into the model' });
    await tree.getByRole('treeitem', { name: 'language_model' }).click();
    expect(await way.innerText()).toContain('language_model');
    await way.getByRole('button', { name: 'Whole model' }).click();
    await tree.getByRole('treeitem').first().focus();
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('Enter');
    expect(await way.innerText()).toMatch(/Whole model\s*›\s*model$/);
    await page.keyboard.press('Escape');
    expect(await way.innerText()).toContain('Press a module');
  });

  it('leads below the layers, down to tensors', async () => {
    await visit();
    const cell = (path: string): Locator => page.locator(`oometer-icicle [data-path="${path}"]:not(.rest)`);
    const layer = 'model.language_model.layers.3';
    await cell('model.language_model').click();
    await cell(layer).click();
    const tensors = page.getByRole('table', { name: `Tensors of ${layer}` });
    expect(await tensors.getByRole('row').count()).toBeGreaterThan(10);
    await cell(`${layer}.mlp`).click();
    await cell(`${layer}.mlp.up_proj`).click();
    const own = page.getByRole('table', { name: `Tensors of ${layer}.mlp.up_proj` });
    // ZeRO keeps a parameter in a flat buffer: 11008 × 4096 elements of two bytes.
    expect(await own.getByRole('row', { name: /45088768.*parameter/ }).innerText()).toMatch(
      /86\.0.MiB.*bf16.*in a flat buffer/s,
    );
    await page.keyboard.press('Escape');
    await page.getByRole('table', { name: `Tensors of ${layer}.mlp`, exact: true }).waitFor();
    // Another answer about the same model is walked into as deeply.
    await number('Micro-batch').fill('2');
    await page.getByRole('table', { name: `Tensors of ${layer}.mlp`, exact: true }).waitFor();
  });
});

describe('the table of layers', () => {
  it('is sorted by any column, and sums', async () => {
    await visit();
    await page.getByLabel('Table', { exact: true }).check();
    const column = (n: number): Promise<number[]> =>
      page
        .locator(`oometer-layers tbody tr td:nth-child(${n})`)
        .allInnerTexts()
        .then((texts) => texts.map((text) => (text === '–' ? 0 : Number(text))));
    const heading = page.getByRole('columnheader', { name: 'Activations' });
    await heading.getByRole('button').click();
    expect(await heading.getAttribute('aria-sort')).toBe('descending');
    const falling = await column(5);
    expect(falling).toEqual([...falling].sort((a, b) => b - a));
    await heading.getByRole('button').click();
    expect(await column(5)).toEqual([...falling].sort((a, b) => a - b));
    const activations = (await report()).breakdown.activations / 1024 ** 3;
    expect(await page.locator('oometer-layers tfoot td').nth(3).innerText()).toBe(activations.toFixed(2));
  });

  it('is copied for a spreadsheet', async () => {
    await visit();
    await page.getByLabel('Table', { exact: true }).check();
    const lines = (await copiedFrom(page.locator('oometer-holders .modules'), 'Copy table')).split('\n');
    expect(lines[0]).toBe(
      'Layer\tParameters, GiB\tGradients, GiB\tOptimizer, GiB\tActivations, GiB\tOther, GiB\tTotal, GiB',
    );
    expect(lines.length).toBeGreaterThan(50);
  });
});

describe('the timeline', () => {
  it('tells a moment, by pointer and by keyboard', async () => {
    await visit();
    const slider = page.getByRole('slider', { name: 'Moment of the run' });
    await slider.scrollIntoViewIfNeeded();
    await slider.hover();
    expect(await page.locator('oometer-timeline .readout').innerText()).toMatch(
      /Step 1, \w+, event [\d,]+, \w+( in [\w.]+)?: .* reserved/s,
    );
    await slider.focus();
    await page.keyboard.press('End');
    expect(await slider.getAttribute('aria-valuetext')).toMatch(/^Step 2, optimizer, \w+( in [\w.]+)?: /);
    const before = await slider.getAttribute('aria-valuetext');
    await page.keyboard.press('Home');
    expect(await slider.getAttribute('aria-valuetext')).not.toBe(before);
  });

  it('zooms into a phase, and out again', async () => {
    await visit();
    const box = page.locator('oometer-timeline .plot svg');
    const whole = await box.getAttribute('viewBox');
    await page.getByRole('button', { name: 'Step 2, backward' }).click();
    expect(await box.getAttribute('viewBox')).not.toBe(whole);
    await page.getByRole('button', { name: 'Whole run' }).click();
    expect(await box.getAttribute('viewBox')).toBe(whole);
  });

  it('zooms with the wheel and with W, A, S and D, and keeps labels and a small picture of the whole', async () => {
    await visit();
    const plot = page.locator('oometer-timeline .plot');
    const minimap = page.locator('oometer-timeline .minimap');
    const sight = async (): Promise<[from: number, width: number]> => {
      const [from = 0, , width = 0] = ((await plot.locator('svg').getAttribute('viewBox')) ?? '')
        .split(' ')
        .map(Number);
      return [from, width];
    };
    await plot.scrollIntoViewIfNeeded();
    const place = await plot.boundingBox();
    if (!place) throw new Error('the plot is not drawn');
    await page.mouse.move(place.x + 0.8 * place.width, place.y + 50);
    await page.mouse.move(place.x + 0.75 * place.width, place.y + 60);
    await page.mouse.wheel(0, -100);
    await expect.poll(async () => (await sight())[1]).toBe(800);
    expect((await sight())[0]).toBeCloseTo(150, 0); // what was pointed at stays there
    expect(await minimap.isVisible()).toBe(true);
    expect(await page.getByRole('button', { name: 'Step 2, backward' }).isVisible()).toBe(true);
    await plot.focus();
    for (const key of 'wdd') await page.keyboard.press(key);
    const [from, width] = await sight();
    expect(width).toBeCloseTo(640, 6);
    await page.keyboard.press('a');
    expect((await sight())[0]).toBeLessThan(from);
    const small = await minimap.boundingBox();
    if (!small) throw new Error('the small picture is not drawn');
    await page.mouse.click(small.x + 2, small.y + 5);
    expect(await sight()).toEqual([0, 640]);
    await plot.focus();
    for (const key of 'sss') await page.keyboard.press(key);
    expect(await sight()).toEqual([0, 1000]);
    expect(await minimap.count()).toBe(0);
  });

  it('is copied as numbers', async () => {
    await visit();
    const lines = (await copiedFrom(page.locator('oometer-phases'), 'Copy timeline')).trim().split('\n');
    expect(lines[0]).toMatch(/^event\tallocated\treserved\tparameters/);
    expect(lines.length).toBeGreaterThan(100);
  });

  it('zooms where one drags', async () => {
    await visit();
    const plot = page.locator('oometer-timeline .plot');
    await plot.scrollIntoViewIfNeeded();
    const place = await plot.boundingBox();
    if (!place) throw new Error('the plot is not drawn');
    await page.mouse.move(place.x + 100, place.y + 50);
    await page.mouse.down();
    await page.mouse.move(place.x + 300, place.y + 60);
    await page.mouse.up();
    expect(await page.getByRole('button', { name: 'Whole run' }).isVisible()).toBe(true);
  });
});

describe('effects', () => {
  it('are what choosing would give', async () => {
    await visit();
    await page.locator('[data-key=checkpointing]').click();
    const off = page.locator('.option', { hasText: 'Every activation is kept' });
    await expect.poll(() => off.locator('.effect').innerText()).toMatch(/GiB/);
    const promised = Number((await off.locator('.effect').innerText()).replace(/[^\d.]/g, ''));
    const before = (await report()).peak.total;
    await off.locator('input').check();
    const after = (await report()).peak.total;
    expect(((after - before) / 1024 ** 3).toFixed(1)).toBe(promised.toFixed(1));
  });

  it('are known of what the first core does not carry, too', async () => {
    await visit();
    await page.locator('[data-key=parallel]').click();
    for (const value of ['fsdp2', 'zero3']) {
      const effect = page.locator(`.option:has(input[name=parallel][value=${value}]) .effect`);
      await expect.poll(() => effect.innerText()).toMatch(/GiB/);
    }
  });

  it('are shown for GPUs once their list is open', async () => {
    await visit();
    await page.getByRole('combobox', { name: 'GPU' }).click();
    const t4 = page.getByRole('option', { name: 'Tesla T4' });
    await expect.poll(() => t4.innerText()).toMatch(/✕ [\d.]+/);
  });

  it('of half a micro-batch are one press away', async () => {
    await visit();
    await page.getByRole('button', { name: /^Micro-batch 4/ }).click();
    expect(await number('Micro-batch').inputValue()).toBe('4');
  });
});
