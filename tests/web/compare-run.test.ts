// The page that sets one's own measurement beside the answer.
import { writeFileSync, mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { MALICIOUS, SNAPSHOT } from '../../web/src/snapshot/snapshot.fixture';
import { complaints, page, site, useBrowser } from './browser';

useBrowser();

const LINK = '#v1?model=clip-vit-l-14&stage=full&seq=77&gpus=1&parallel=none&gpu=t4';
const visit = async (): Promise<void> => {
  await page.goto(`${site.address}compare.html${LINK}`);
  await page.getByText('are predicted').waitFor();
};

const folder = mkdtempSync(join(tmpdir(), 'oometer-'));
const file = (name: string, content: Uint8Array): string => {
  const path = join(folder, name);
  writeFileSync(path, content);
  return path;
};

it('says why where the calculator cannot be had', async () => {
  await page.route('**/oometer.rest-*.wasm', (route) => route.abort());
  await page.goto(`${site.address}compare.html${LINK}`);
  await expect.poll(() => page.locator('#setup').innerText()).toContain('could not be loaded');
  complaints.length = 0; // the browser's own, of the failed request
});

describe('a typed peak', () => {
  it('becomes a correction that the calculator’s link carries and its answer names', async () => {
    await visit();
    const setup = await page.locator('#setup').innerText();
    const [, allocated, reserved] = /([\d.]+)\sGiB allocated, ([\d.]+)\sGiB reserved/.exec(setup) ?? [];
    await page.locator('#allocated').fill(String(allocated));
    await page.locator('#reserved').fill(String(Number(reserved) * 1.1));
    await page.getByRole('link', { name: 'Use it for answers' }).click();
    await page.locator('oometer-verdict h2').waitFor();
    expect(page.url()).toMatch(/measured=1\d\d\d/);
    await page.locator('oometer-trust').getByText('calibrated by your own measurement').waitFor({ state: 'attached' });
  });

  it('of a run with another batch size is no correction', async () => {
    await visit();
    const setup = await page.locator('#setup').innerText();
    const [, allocated, reserved] = /([\d.]+)\sGiB allocated, ([\d.]+)\sGiB reserved/.exec(setup) ?? [];
    await page.locator('#reserved').fill(String(Number(reserved) * 1.309));
    expect(await page.locator('#result').innerText()).toContain('probably another job');
    // Where what it allocated agrees, it is this job, however much it reserved.
    await page.locator('#allocated').fill(String(allocated));
    await page.getByRole('link', { name: 'Use it for answers' }).waitFor();
    await page.locator('#allocated').fill(String(Number(allocated) * 1.2));
    expect(await page.locator('#result').innerText()).toMatch(/Your run allocated \+(19\.9|20)/);
    expect(await page.getByRole('link', { name: 'Use it for answers' }).count()).toBe(0);
  });

  it('that is far from the answer is not taken for one of it', async () => {
    await visit();
    await page.locator('#reserved').fill('9000');
    expect(await page.locator('#result').innerText()).toMatch(/another job/);
    expect(await page.getByRole('link', { name: 'Use it for answers' }).count()).toBe(0);
  });
});

describe('a snapshot', () => {
  it('is shown over time, by code, and to where the runs part', async () => {
    await visit();
    await page.locator('#file').setInputFiles(file('small.pickle', Buffer.from(SNAPSHOT, 'base64')));
    await page.locator('svg.scatter').waitFor();
    const text = await page.locator('#result').innerText();
    expect(text).toMatch(/model\.py: forward/);
    expect(text).toMatch(/Of 2 allocations of a mebibyte or more|Of 1 allocations of a mebibyte or more/);
  });

  it('that the calculator itself wrote is the same run', async () => {
    await visit();
    await page.goto(`${site.address}index.html${LINK}`);
    await page.locator('oometer-verdict h2').waitFor();
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      page.locator('oometer-share').getByRole('button', { name: 'Memory snapshot' }).click(),
    ]);
    const path = join(folder, 'own.pickle');
    await download.saveAs(path);
    await visit();
    await page.locator('#file').setInputFiles(path);
    await page.locator('svg.scatter').waitFor();
    const [, of, same] =
      /Of (\d+) allocations of a mebibyte or more, (\d+) are/.exec(await page.locator('#result').innerText()) ?? [];
    expect(Number(of)).toBeGreaterThan(50);
    expect(same).toBe(of);
  });

  it.each([
    ['malicious', Buffer.from(MALICIOUS, 'base64'), /asks to run Python code/],
    ['cut off', Buffer.from(SNAPSHOT, 'base64').subarray(0, 300), /cut off/],
    ['another file', Buffer.from('hello'), /no pickle/],
  ])('that is %s is refused with a reason', async (name, content, reason) => {
    await visit();
    await page.locator('#file').setInputFiles(file(`${name}.pickle`, content));
    await expect.poll(() => page.locator('#result').innerText()).toMatch(reason);
  });

  it('of 100 MB shows how far it is, and can be cancelled', async () => {
    await visit();
    const list = Buffer.concat([
      Buffer.from([0x80, 4, 0x5d]),
      Buffer.alloc(100 << 20, Buffer.from('Na')),
      Buffer.from('.'),
    ]);
    await page.locator('#file').setInputFiles(file('large.pickle', list));
    await page.locator('#cancel').click();
    await expect.poll(() => page.locator('#result').innerText()).toBe('Cancelled.');
    await page.locator('#file').setInputFiles(file('small.pickle', Buffer.from(SNAPSHOT, 'base64')));
    await page.locator('svg.scatter').waitFor();
  });
});
