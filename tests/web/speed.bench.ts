// What the page promises about its speed, in a real browser: `./dev bench` prints it.
import { expect, it } from 'vitest';
import { open, page, settled, sweepOf, swept, useBrowser, visit } from './browser';

const RUNS = 20;

useBrowser();

function median(times: number[]): number {
  return [...times].sort((a, b) => a - b)[Math.floor(times.length / 2)] ?? NaN;
}

function tell(what: string, milliseconds: number, limit: number): void {
  console.log(
    `${what}, ms: ${milliseconds.toFixed(1)}  (must: ${limit}, ${milliseconds <= limit ? 'met' : 'NOT MET'})`,
  );
}

it('the first answer', async () => {
  const moments: Record<string, number[]> = {};
  for (let i = 0; i < RUNS; i++) {
    await page.context().close();
    await open({ width: 1440, height: 900 });
    await visit();
    const found = await page.evaluate(() => {
      const at = (name: string): number => performance.getEntriesByName(name)[0]?.startTime ?? NaN;
      const [navigation] = performance.getEntriesByType('navigation') as PerformanceNavigationTiming[];
      return {
        'the document is there': navigation?.responseEnd ?? NaN,
        'the page is loaded': navigation?.loadEventEnd ?? NaN,
        'its script runs': at('oometer-script'),
        'the core is loaded': at('oometer-core-loaded'),
        'the first answer': at('oometer-first-answer'),
        'the first paint': at('first-contentful-paint'),
      };
    });
    for (const [moment, time] of Object.entries(found)) (moments[moment] ??= []).push(time);
  }
  for (const [moment, times] of Object.entries(moments)) {
    if (moment !== 'the first answer') console.log(`${moment}, ms after navigation: ${median(times).toFixed(1)}`);
  }
  tell('the first answer after navigation', median(moments['the first answer'] ?? []), 300);
});

/** Milliseconds from each of a row of edits to its result in the page. */
async function edits(count: number): Promise<number[]> {
  return page.evaluate(async (count) => {
    interface Element_ extends Element {
      updateComplete: Promise<boolean>;
    }
    const app = document.querySelector<Element_>('oometer-app');
    const form = app?.shadowRoot?.querySelector('oometer-form');
    const verdict = app?.shadowRoot?.querySelector<Element_>('oometer-verdict');
    const input = form?.shadowRoot?.querySelector<HTMLInputElement>('#mbs');
    if (!app || !input || !verdict) throw new Error('the page has changed');
    const taken: number[] = [];
    for (let i = 0; i < count; i++) {
      input.value = String(1 + (i % 12));
      const start = performance.now();
      input.dispatchEvent(new Event('input'));
      await app.updateComplete;
      await verdict.updateComplete;
      taken.push(performance.now() - start);
      await new Promise((done) => setTimeout(done, 150)); // as fast as fingers
    }
    return taken;
  }, count);
}

it('an edit', async () => {
  await visit();
  await edits(5); // the first ones are compiled yet
  tell('an edit to its result', median(await edits(RUNS)), 16);
});

it('the table of all GPUs', async () => {
  const times: number[] = [];
  for (let i = 0; i < 5; i++) {
    await page.context().close();
    await open({ width: 1440, height: 900 });
    await visit();
    await settled();
    const table = page.locator('oometer-gpus');
    const start = performance.now();
    await table.scrollIntoViewIfNeeded();
    await table.locator('tbody tr').first().waitFor();
    await table.locator('section[aria-busy=false]').waitFor();
    times.push(performance.now() - start);
  }
  tell('every GPU of the catalogue', median(times), 1000);
}, 60_000);

it('a sweep of 100 × 100', async () => {
  const begin = async (): Promise<void> => {
    await visit();
    await page.getByLabel('Micro-batch up to').fill('100');
    await sweepOf('100');
  };
  await begin();
  const said = await swept(300_000);
  tell(`a sweep (${said})`, 1000 * Number(/in ([\d.]+) s/.exec(said)?.[1]), 15_000);
  await begin();
  await page.waitForTimeout(1000);
  tell('an edit while one is swept', median(await edits(RUNS)), 16);
  expect(await page.getByRole('progressbar').count()).toBe(1);
});
