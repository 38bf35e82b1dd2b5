// A file that is dropped anywhere does what it is.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { drop, headline, page, root, settled, shown, total, useBrowser, visit } from './browser';

useBrowser();

const dialog = () => page.getByRole('dialog');

it('a job is shown with its settings, and its answer is the same', async () => {
  await visit();
  await settled();
  const job = readFileSync(join(root, 'presets/jobs/llama-3-8b-qlora-one-gpu.json'), 'utf8');
  await drop(['job.json', job]);
  await expect.poll(() => page.url()).toContain('quantization=nf4-double');
  expect(await headline()).toMatch(/^Fits/);
  expect(JSON.parse((await shown()).job)).toEqual(JSON.parse(job));
  expect(await total()).toBeGreaterThan(1e9);
});

it('a job that says more than the settings can is not shown as another one', async () => {
  await visit();
  await settled();
  const before = page.url();
  await drop([
    'job.json',
    '{"version": 1, "model": {"preset": "llama-2-7b"}, "training": {"optimizer": {"momentum": 0.3, "name": "sgd"}}}',
  ]);
  await dialog().getByRole('alert').filter({ hasText: 'says more than the settings here can' }).waitFor();
  expect(page.url()).toBe(before);
  await page.keyboard.press('Escape');
  await drop(['job.json', '{"version": 1, "model": {"preset": "llama-2-7b"}, "data": {"micro_batch_size": -1}}']);
  await dialog().getByRole('alert').filter({ hasText: 'The job is refused' }).waitFor();
});

it('a memory snapshot goes to the page that compares', async () => {
  await visit('#v1?mbs=4');
  await settled();
  await drop(['s.pickle', '\u0000']); // as text, no byte above 127 can be written here
  await dialog().getByRole('alert').filter({ hasText: 'is not a text file' }).waitFor();
  await page.keyboard.press('Escape');
  await page.evaluate(() => {
    const data = new DataTransfer();
    data.items.add(new File([Uint8Array.from([0x80, 4, 0x7d, 0x2e])], 's.pickle')); // {}
    window.dispatchEvent(new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true }));
  });
  const [other] = await Promise.all([
    page.context().waitForEvent('page'),
    dialog().getByRole('button', { name: 'Compare it' }).click(),
  ]);
  await expect.poll(() => other.url()).toContain('compare.html#v1?mbs=4');
  await expect.poll(() => other.locator('#result').innerText()).not.toBe(''); // what it lacks is said there
});

it('weights are told to be weights', async () => {
  await visit();
  await settled();
  await drop(['model.safetensors', `\u0010${'\u0000'.repeat(7)}{"a": 1}`]);
  await dialog().getByRole('alert').filter({ hasText: 'model.safetensors holds weights' }).waitFor();
});
