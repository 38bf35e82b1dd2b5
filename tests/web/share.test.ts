// What one takes away: links, text, files, pictures, paper.
import { readFile } from 'node:fs/promises';
import { describe, expect, it } from 'vitest';
import { complaints, copiedFrom, headline, page, shown, site, useBrowser, visit } from './browser';

useBrowser();

const copied = (button: string): Promise<string> => copiedFrom(page.locator('oometer-share'), button);

async function saved(button: string): Promise<{ name: string; bytes: Buffer }> {
  const [download] = await Promise.all([
    page.waitForEvent('download'),
    page.locator('oometer-share').getByRole('button', { name: button }).click(),
  ]);
  return { name: download.suggestedFilename(), bytes: await readFile(await download.path()) };
}

describe('copying', () => {
  it('gives a link to what is shown', async () => {
    await visit('#v1?mbs=16/mbs=4');
    expect(await copied('Copy link')).toBe(page.url());
  });

  it('gives Markdown with the sentence, the settings and who holds what', async () => {
    await visit('#v1?mbs=16');
    const text = await copied('Copy as Markdown');
    expect(text).toContain(`**${(await headline()).replaceAll('\u00a0', ' ').split('\n')[0] ?? ''}**`);
    expect(text).toContain('| Micro-batch | 16 |');
    expect(text).toMatch(/\| Total \| [\d.]+ \|/);
    expect(text).toContain(`](${page.url()})`);
  });

  it('gives the command', async () => {
    await visit('#v1?mbs=16');
    expect(await copied('Copy as command')).toMatch(/^oometer estimate --preset llava-1.5-7b --micro-batch-size 16 /);
  });

  it('gives what another page needs', async () => {
    await visit('#v1?mbs=16');
    const share = page.locator('oometer-share');
    await share.locator('summary').click();
    const [element = '', frame = ''] = await share.locator('pre').allInnerTexts();
    expect(element).toContain('<oometer-widget view="bar" job="#v1?mbs=16">');
    expect(frame).toContain('/embed.html#v1?mbs=16&amp;view=bar"');
    expect(await share.locator('details').innerText()).toMatch(
      /another origin needs .*Access-Control-Allow-Origin.*\(CORS\)/,
    );
  });
});

describe('saving', () => {
  it('says why where the rest of the core cannot be had, and tries again', async () => {
    let refused = true;
    await page.route('**/oometer.rest-*.wasm', (route) => (refused ? route.abort() : route.continue()));
    await page.goto(site.address);
    await headline();
    const share = page.locator('oometer-share');
    await share.getByRole('button', { name: 'Memory snapshot' }).click();
    await expect.poll(() => share.locator('p[role=status]').innerText()).toContain('could not be loaded');
    refused = false;
    expect((await saved('Memory snapshot')).bytes.length).toBeGreaterThan(10_000);
    await expect.poll(() => share.locator('p[role=status]').innerText()).toBe('');
    complaints.length = 0; // the browser's own, of the failed request
  });

  it('gives the report as the core wrote it', async () => {
    await visit();
    const { name, bytes } = await saved('Report, JSON');
    expect(name).toBe('oometer-llava-1.5-7b.json');
    expect(bytes.toString()).toBe((await shown()).report);
  });

  it('gives layers whose sum is the peak', async () => {
    await visit();
    const lines = (await saved('Layers, CSV')).bytes.toString().trim().split('\r\n');
    const total = lines.slice(1).reduce((sum, line) => sum + Number(line.split(',').at(-1)), 0);
    const { peak } = JSON.parse((await shown()).report) as { peak: { total: number } };
    expect(total).toBe(peak.total);
  });

  it('gives a memory snapshot as PyTorch pickles it', async () => {
    await visit();
    const { name, bytes } = await saved('Memory snapshot');
    expect(name).toBe('oometer-llava-1.5-7b.pickle');
    expect(bytes[0]).toBe(0x80); // a pickle begins with its protocol and ends with a stop
    expect(bytes.at(-1)).toBe('.'.charCodeAt(0));
    expect(bytes.includes('segment_alloc')).toBe(true);
  });

  it('gives the picture as SVG and as PNG', async () => {
    await visit();
    const svg = (await saved('Picture, SVG')).bytes.toString();
    expect(svg).toMatch(/^<svg xmlns/);
    expect(svg).toContain('to spare');
    for (const word of [
      'LLaVA-1.5 7B: fine-tuning',
      'micro-batch 8',
      'ZeRO-2',
      'Step 2, backward',
      'reserved',
      'Gradients: none at the peak',
    ])
      expect(svg).toContain(word);
    expect(svg).not.toMatch(/var\(|NaN|undefined|#888/);
    const png = (await saved('Picture, PNG')).bytes;
    expect(png.subarray(1, 4).toString()).toBe('PNG');
    expect(png.length).toBeGreaterThan(10_000);
  });
});

it('prints the answer and its settings, without what one presses', async () => {
  await visit('#v1?mbs=16');
  await page.emulateMedia({ media: 'print' });
  expect(await page.locator('oometer-form').isVisible()).toBe(false);
  expect(await page.locator('oometer-share .screen').isVisible()).toBe(false);
  const paper = await page.locator('oometer-share .paper').innerText();
  expect(paper).toContain('Micro-batch');
  expect(paper).toContain(page.url());
});
