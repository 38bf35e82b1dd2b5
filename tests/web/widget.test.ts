// The widget in foreign pages.
import { describe, expect, it } from 'vitest';
import { detail, page, site, useBrowser, visit } from './browser';

useBrowser();

interface Widget extends HTMLElement {
  job: string | object;
  view: string;
  gpu: string;
  report: { peak: { total: number } } | null;
}

const sentences = (): Promise<string[]> =>
  page
    .locator('oometer-widget oometer-verdict .detail')
    .allInnerTexts()
    .then((all) => all.map((text) => text.replaceAll('\u00a0', ' ')));

async function demo(): Promise<void> {
  await page.goto(`${site.address}demo.html`);
  await expect.poll(sentences).toHaveLength(2);
}

describe('in a page with a strict policy', () => {
  it('stands twice, each with its own job, the same as the page says', async () => {
    await demo();
    const [first = '', second = ''] = await sentences();
    expect(second).toContain('A100');
    const about = await page.locator('oometer-widget .about').allInnerTexts();
    expect(about[0]).toBe('LLaVA-1.5 7B: fine-tuning, bf16, checkpointing, micro-batch 16, 1,024 tokens, ZeRO-2');
    expect(about[1]).toBe('Llama-3 8B: training, bf16, checkpointing, micro-batch 1, 4,096 tokens');
    await visit('#v1?mbs=16&seq=1024');
    expect(await detail()).toBe(first);
  });

  it('is themed from outside, each for itself', async () => {
    await demo();
    const colours = await page
      .locator('oometer-widget')
      .evaluateAll((all) => all.map((one) => getComputedStyle(one).backgroundColor));
    expect(colours).toEqual(['rgb(255, 255, 255)', 'rgb(253, 246, 227)']);
  });

  it('has a frame as high as what it shows', async () => {
    await demo();
    const frame = page.frameLocator('iframe');
    await frame.locator('oometer-verdict h2').waitFor();
    const inner = (): Promise<number> =>
      frame.locator('oometer-widget').evaluate((one) => Math.ceil(one.getBoundingClientRect().height));
    const height = async (): Promise<number> => Number(await page.locator('iframe').getAttribute('height'));
    await expect.poll(async () => (await height()) - (await inner())).toBe(0);
    expect(await frame.locator('oometer-verdict .bar').count()).toBe(0);
  });
});

describe('as an element', () => {
  it('answers to attributes and properties, and tells', async () => {
    await demo();
    const told = await page.evaluate(async () => {
      const widget = document.querySelector<Widget>('oometer-widget');
      if (!widget) throw new Error('no widget');
      const next = (): Promise<{ report?: { peak: { total: number } }; link?: string; error?: string }> =>
        new Promise((done) => {
          widget.addEventListener(
            'change',
            (event) => {
              done((event as CustomEvent).detail as never);
            },
            { once: true },
          );
        });
      const answers = [];
      let waiting = next();
      widget.setAttribute('gpu', 'h200');
      answers.push(await waiting);
      waiting = next();
      widget.job = { model: { preset: 'clip-vit-l-14-336' } };
      answers.push(await waiting);
      waiting = next();
      widget.gpu = 'abacus';
      answers.push(await waiting);
      waiting = next();
      widget.gpu = '';
      widget.job = '{"model": {"preset": "nobody"}}';
      answers.push(await waiting);
      waiting = next();
      widget.job = '{';
      answers.push(await waiting);
      return answers.map((answer) => answer.error ?? `${String(answer.report?.peak.total)} ${answer.link ?? ''}`);
    });
    expect(told[0]).toMatch(/^\d+ #v1\?gpu=h200&mbs=16&seq=1024$/);
    expect(told[1]).toMatch(/^\d+ $/);
    expect(told[2]).toBe('No GPU is called “abacus”.');
    expect(told[3]).toContain('/model/preset');
    expect(told[4]).toBe('The job is not JSON.');
  });

  it('shows what its view asks for, also one that is loaded later', async () => {
    await demo();
    const widget = page.locator('oometer-widget').first();
    const shown = (): Promise<string[]> =>
      widget.evaluate((one) => [...(one.shadowRoot?.querySelectorAll('[part]') ?? [])].map((part) => part.part.value));
    expect(await shown()).toEqual(['about', 'verdict', 'foot']);
    await widget.evaluate((one: Widget) => (one.view = 'full'));
    await widget.locator('oometer-holders').getByRole('button').first().waitFor();
    await widget.locator('oometer-phases').locator('svg, canvas').first().waitFor();
    expect(await shown()).toEqual(['about', 'verdict', 'holders', 'timeline', 'foot']);
    await widget.evaluate((one: Widget) => (one.view = 'timeline'));
    await widget.locator('oometer-timeline').locator('svg, canvas').first().waitFor();
  });

  it('leads to the page with the same job', async () => {
    await demo();
    const link = page.locator('oometer-widget').first().getByRole('link', { name: 'Change it in oometer' });
    expect(await link.getAttribute('href')).toBe(`${site.address}index.html#v1?mbs=16&seq=1024`);
  });

  it('keeps what stood in it where the core cannot be had', async () => {
    await page.route('**/*.wasm', (route) => route.abort());
    await page.goto(`${site.address}demo.html`);
    await page.getByRole('alert').first().waitFor();
    expect(await page.getByText('This needs JavaScript.').isVisible()).toBe(true);
    const { complaints } = await import('./browser');
    complaints.length = 0; // the browser's own, of the failed request
  });
});

it.each(['', '#', '#v1', '#v1?view=nonsense', '#view=bar', '#v1?mbs=<b>', '#%', '#v9?view=full', '#v1?theme=dark'])(
  'a frame with %s shows an answer or says what is wrong',
  async (fragment) => {
    await page.goto(`${site.address}embed.html${fragment}`);
    await page.locator('oometer-verdict h2, [role=alert]').first().waitFor();
  },
);
