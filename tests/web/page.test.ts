// The page in a real browser: what people do with it, from the built site.
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { untimed } from '../wasm/untimed.mjs';
import {
  complaints,
  detail,
  drawn,
  headline,
  number,
  open,
  page,
  pick,
  pictures,
  requests,
  root,
  settled,
  shown,
  site,
  useBrowser,
  visit,
} from './browser';

const native = join(root, 'build/native/oometer');

useBrowser();

describe('an answer', () => {
  it('is there at once, for a filled example', async () => {
    await visit();
    expect(await headline()).toMatch(/^(Fits|Tight|Does not fit)/);
    expect(await detail()).toMatch(/^[\d.]+.* of [\d.]+ GiB on each of 8 × H100/);
  });

  it('follows a preset and a micro-batch, and is the native command’s to the byte', async () => {
    await visit();
    const first = await detail();
    await pick('Model', 'LLaVA-1.5 13B');
    await number('Micro-batch').fill('4');
    expect(await detail()).not.toBe(first);
    const { job, report } = await shown();
    expect(JSON.parse(job)).toMatchObject({
      model: { preset: 'llava-1.5-13b' },
      data: { micro_batch_size: 4 },
    });
    if (!existsSync(native)) {
      console.log('no native command to compare with');
      return;
    }
    const own = execFileSync(native, ['estimate', '-', '--json'], {
      input: job,
      encoding: 'utf8',
      maxBuffer: 1e8,
    });
    // The two are built apart, perhaps at different commits, and the page has no time; everything else is the same to the byte.
    const unstamped = (text: string): string => text.trimEnd().replace(/"version": ?"[^"]*"/, '');
    expect(unstamped(report)).toBe(unstamped(untimed(own.trimEnd())));
  });

  it('sums to the whole, in the table by purpose and in that by module', async () => {
    await visit();
    const report = JSON.parse((await shown()).report) as {
      peak: { allocated: number; total: number };
      breakdown: Record<string, number>;
    };
    expect(Object.values(report.breakdown).reduce((a, b) => a + b)).toBe(report.peak.allocated);
    await page.getByLabel('Table', { exact: true }).check();
    const totals = page.locator('oometer-layers tfoot td');
    expect(await totals.last().innerText()).toBe((report.peak.allocated / 1024 ** 3).toFixed(2));
  });

  it('asks the network for nothing once it is there', async () => {
    await visit();
    await settled();
    expect(requests.every((address) => address.startsWith(site.address))).toBe(true);
    const before = requests.length;
    for (const model of ['llama-3-8b', 'clip-vit-l-14-336', 'llava-1.5-7b']) {
      await pick('Model', model);
    }
    await number('Micro-batch').fill('3');
    await page.locator('summary', { hasText: 'Precision' }).click();
    await settled();
    expect(requests.slice(before)).toEqual([]);
  });
});

describe('the address', () => {
  it('holds what was changed, and brings it back', async () => {
    await visit();
    expect(new URL(page.url()).hash).toBe('');
    await number('Micro-batch').fill('16');
    await number('Sequence length').fill('1024');
    await page.getByLabel('Pre-train').check();
    await page.waitForFunction(() => location.hash === '#v1?stage=pretrain&mbs=16&seq=1024');
    const before = await detail();
    await page.reload();
    await page.locator('oometer-verdict h2').waitFor();
    expect(await detail()).toBe(before);
    expect(await number('Micro-batch').inputValue()).toBe('16');
    expect(await page.getByLabel('Pre-train').isChecked()).toBe(true);
  });

  it('follows an edited fragment and the back button', async () => {
    await visit();
    const example = await detail();
    await pick('Model', 'LLaVA-1.5 13B');
    const other = await detail();
    expect(other).not.toBe(example);
    await page.goBack();
    await page.waitForFunction(() => location.hash === '');
    await expect.poll(detail).toBe(example);
    await page.evaluate(() => (location.hash = '#v1?model=llava-1.5-13b'));
    await expect.poll(detail).toBe(other);
  });

  it.each(['#v9?mbs=4', '#%%%', '#v1?gpu=abacus&x=1', `#v1?mbs=${'9'.repeat(5000)}`, '#v1?mbs=<img src=x>'])(
    'says what is wrong with a bad link and leads back: case %#',
    async (fragment) => {
      await visit(fragment);
      const notice = page.getByRole('alert');
      expect(await notice.innerText()).toContain('This link could not be read completely');
      expect(await headline()).not.toBe('');
      await notice.getByRole('button', { name: 'Start from the example' }).click();
      expect(await notice.count()).toBe(0);
      expect(new URL(page.url()).hash).toBe('');
    },
  );

  it('survives 200 mangled links', async () => {
    await visit();
    const alphabet = '#v1?&=%<>"\'{}[]\\/mbseqgpu0123456789 -.\u0000é';
    let seed = 7;
    const random = (below: number): number => (seed = (seed * 48271) % 2147483647) % below;
    const links = Array.from({ length: 200 }, (_, i) => {
      const noise = Array.from({ length: random(40) }, () => alphabet[random(alphabet.length)]).join('');
      return i % 2 ? `v1?${noise}` : noise;
    });
    await page.evaluate(async (links) => {
      for (const link of links) {
        const before = location.href;
        const followed = new Promise((done) => {
          addEventListener('hashchange', done, { once: true });
        });
        location.hash = link;
        if (location.href !== before) await followed;
      }
    }, links);
    await drawn();
    expect(await page.locator('oometer-form').isVisible()).toBe(true);
    expect(await headline()).not.toBe('');
  });
});

describe('an error', () => {
  it('stands beside its field and leaves the last answer in sight', async () => {
    await visit();
    const before = await detail();
    await number('Micro-batch').fill('0');
    const field = number('Micro-batch');
    expect(await field.getAttribute('aria-invalid')).toBe('true');
    const [id = ''] = ((await field.getAttribute('aria-describedby')) ?? '').split(' ');
    expect(await page.locator(`#${id}`).innerText()).toBe('Micro-batch: Enter 1 or more.');
    expect(await detail()).toBe(before);
    expect(await page.locator('oometer-verdict').getAttribute('stale')).not.toBeNull();
    await field.fill('2');
    expect(await field.getAttribute('aria-invalid')).toBe('false');
    expect(await page.locator('.notice').count()).toBe(0);
  });

  it('is kind to an emptied field', async () => {
    await visit();
    await number('Sequence length').fill('');
    expect(await page.locator('#seq-error').innerText()).toContain('Type a whole number');
  });

  it('opens the group that hides its field', async () => {
    await open({ width: 360, height: 740 });
    await visit('#v1?model=llama-3-8b&stage=pretrain');
    await page.locator('#stage-error').waitFor();
  });
});

it('says so in words when the core cannot be loaded', async () => {
  await page.route('**/*.wasm', (route) => route.abort());
  await page.goto(site.address);
  const notice = page.locator('.notice.error');
  await notice.waitFor();
  expect(await notice.innerText()).toContain('The calculator could not be loaded');
  expect(await notice.getByRole('button', { name: 'Try again' }).isVisible()).toBe(true);
  complaints.length = 0; // the browser's own, of the failed request
});

it('answers what it can where the rest of the core cannot be had, and everything when it can', async () => {
  let refused = true;
  await page.route('**/oometer.rest-*.wasm', (route) => (refused ? route.abort() : route.continue()));
  await page.goto(`${site.address}#v1?model=qwen3-8b`);
  const notice = page.locator('.notice');
  await expect.poll(() => notice.innerText()).toContain('What this needs could not be loaded');
  // What the first part answers, it answers.
  await pick('Model', 'LLaVA-1.5 7B');
  await expect.poll(headline).toMatch(/^Fits/);
  expect(await notice.count()).toBe(0);
  refused = false;
  await pick('Model', 'Qwen3 8B');
  await expect.poll(() => notice.count()).toBe(0);
  await expect.poll(headline).toMatch(/^Fits/);
  complaints.length = 0; // the browser's own, of the failed requests
});

describe('everybody', () => {
  it('can use it by keyboard alone', async () => {
    await visit();
    const before = await detail();
    await page.getByRole('combobox', { name: 'Model' }).focus();
    await page.keyboard.press('ArrowDown');
    expect(await page.getByRole('option', { name: 'Llama-3 8B' }).isVisible()).toBe(true);
    await page.keyboard.press('Escape');
    await page.keyboard.press('Tab'); // an own model
    await page.keyboard.press('Tab'); // the chosen stage
    await page.keyboard.press('ArrowLeft');
    expect(await page.getByLabel('Pre-train').isChecked()).toBe(true);
    await page.keyboard.press('Tab'); // GPU
    await page.keyboard.press('Tab'); // count
    await page.keyboard.press('Tab'); // half the GPUs
    await page.keyboard.press('Tab'); // twice
    await page.keyboard.press('Tab'); // half the micro-batch
    await page.keyboard.press('Tab');
    await page.keyboard.press('ArrowUp');
    expect(await number('Micro-batch').inputValue()).toBe('9');
    expect(await detail()).not.toBe(before);
  });

  it('hears the answer once, after the typing', async () => {
    await visit();
    await number('Micro-batch').pressSequentially('6');
    const status = page.locator('#said');
    await expect.poll(() => status.innerText()).toMatch(/^(Fits|Tight|Does not fit).*GiB on each of 8/);
  });

  it.each([
    [360, 740, 'light'],
    [360, 740, 'dark'],
    [768, 1024, 'light'],
    [768, 1024, 'dark'],
    [1440, 900, 'light'],
    [1440, 900, 'dark'],
  ] as const)('sees all of it at %i × %i, %s', async (width, height, colorScheme) => {
    await open({ width, height, colorScheme });
    await visit();
    await page.screenshot({
      path: join(pictures, `${width}-${colorScheme}.png`),
      fullPage: true,
    });
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(width);
    if (width === 360) {
      // The verdict stays in view while one edits.
      await number('Images per sample').scrollIntoViewIfNeeded();
      expect(await page.locator('oometer-verdict h2').isVisible()).toBe(true);
      const box = await page.locator('oometer-verdict h2').boundingBox();
      expect(box?.y).toBeGreaterThanOrEqual(0);
    }
  });
});
