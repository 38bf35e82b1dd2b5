// Settings that have no answer: nothing of the page speaks for others, and the way on is one press.
import { describe, expect, it } from 'vitest';
import {
  drawn,
  drop,
  headline,
  number,
  page,
  settled,
  shown,
  sweepOf,
  swept,
  total,
  useBrowser,
  visit,
} from './browser';

useBrowser();

/** QLoRA, which is refused under ZeRO-2. */
const QLORA = '#v1?model=llama-3-8b&stage=full&adapters=lora';
const notice = () => page.locator('#trouble');

async function quantize(): Promise<void> {
  await page.locator('[data-key=quantization]').click();
  await page.locator('[data-key=quantization] + fieldset').getByText('NF4', { exact: true }).click();
  await notice().waitFor();
}

describe('refused settings', () => {
  it('leave nothing to use or to share of the last ones, which are stamped', async () => {
    await visit(QLORA);
    await settled();
    await quantize();
    expect(await headline()).toMatch(/^Last answer:/);
    const details = page.locator('.details');
    expect(await details.getAttribute('inert')).not.toBeNull();
    expect(await details.locator('.stamp').innerText()).toBe(
      'Of the last settings that had an answer (Frozen weights Not quantized).',
    );
    expect(await page.locator('oometer-remedy').count()).toBe(0);
    expect((await shown()).report).toBe('');
    await expect.poll(() => page.title()).toMatch(/^No answer/);
    // What each choice would do is no longer beside it, until it is known of these settings.
    await page.getByRole('combobox', { name: 'GPU' }).click();
    await expect
      .poll(() => page.locator('oometer-picker[data-key=gpu] .note').first().innerText())
      .toBe('not with these settings');
  });

  it('are answered with one press that keeps what was chosen, and the back button undoes it', async () => {
    await visit(QLORA);
    await quantize();
    await notice().getByRole('button', { name: 'Switch to DDP and continue' }).click();
    await expect.poll(() => notice().count()).toBe(0);
    expect(await headline()).toMatch(/^(Fits|Tight)/);
    const job = JSON.parse((await shown()).job) as Record<string, object>;
    expect(job.parallel).toMatchObject({ strategy: 'ddp', data: 8 });
    expect(job.training).toMatchObject({ quantization: { load_in_4bit: true } });
    await page.goBack();
    await notice().waitFor();
    expect(page.url()).toMatch(/quantization=nf4$/);
  });

  it('of a link are answered with one press, too', async () => {
    await visit(`${QLORA}&quantization=nf4`);
    await notice().getByRole('button', { name: 'Switch to DDP and continue' }).click();
    await expect.poll(async () => (await shown()).job).toContain('"quantization"');
  });
});

describe('one GPU', () => {
  it('has no parallelism, so that QLoRA needs no other step', async () => {
    await visit(QLORA);
    await number('Count').fill('1');
    await page.locator('[data-key=quantization]').click();
    await page.locator('[data-key=quantization] + fieldset').getByText('NF4', { exact: true }).click();
    expect(await headline()).toMatch(/^Fits/);
    expect(JSON.parse((await shown()).job)).toMatchObject({ parallel: { strategy: 'none', data: 1 } });
    // Several again share as before.
    await number('Count').fill('4');
    expect(JSON.parse((await shown()).job || 'null')).toBeNull();
    expect(await notice().innerText()).toContain('Parallelism');
  });

  it('has one where somebody asks for it', async () => {
    await visit('#v1?gpus=1');
    expect(JSON.parse((await shown()).job)).toMatchObject({ parallel: { strategy: 'deepspeed', data: 1 } });
  });
});

it('a choice that takes one GPU offers it', async () => {
  await visit();
  await page.locator('[data-key=parallel]').click();
  await page.locator('[data-key=parallel] + fieldset').getByText('None', { exact: true }).click();
  await notice().getByRole('button', { name: 'Set GPUs to 1 and continue' }).click();
  await expect.poll(headline).toMatch(/^(Fits|Tight|Does not fit)/);
  expect(JSON.parse((await shown()).job)).toMatchObject({ parallel: { strategy: 'none', data: 1 } });
});

describe('a sweep', () => {
  it('is not used any more once other settings are shown', async () => {
    await visit('#v1?parallel=ddp&adapters=lora');
    await sweepOf('16');
    await swept(100_000);
    const map = page.locator('oometer-sweep-map');
    await page.locator('[data-key=quantization]').click();
    await page.locator('[data-key=quantization] + fieldset').getByText('NF4', { exact: true }).click();
    await drawn();
    expect(await map.locator('.former').innerText()).toContain('Of earlier settings (Frozen weights Not quantized)');
    await page.waitForFunction(() => location.hash.includes('quantization'));
    const before = page.url();
    await map.locator('.cells').click({ position: { x: 20, y: 20 } });
    expect((await shown()).job).toContain('"quantization"');
    expect(page.url()).toBe(before);
  });
});

/** CLIP's tower alone, which nearly any GPU holds. */
const SMALL = '#v1?parallel=none&gpus=1&model=clip-vit-l-14&stage=full&seq=77&checkpointing=none';

describe('the best remedy', () => {
  it('stands under the verdict, is applied with one press, and undone with another', async () => {
    await visit('#v1?checkpointing=none&mbs=32');
    expect(await headline()).toMatch(/^Does not fit/);
    const remedy = page.locator('oometer-remedy');
    const before = await total();
    await remedy.getByRole('button', { name: /^Apply/ }).click();
    await expect.poll(headline).toMatch(/^(Fits|Tight)/);
    expect(await remedy.locator('p').first().innerText()).toMatch(/^Applied: /);
    await remedy.getByRole('button', { name: 'Undo' }).click();
    await expect.poll(total).toBe(before);
    await expect.poll(headline).toMatch(/^Does not fit/);
  });

  it('is one press also where several settings change at once', async () => {
    await visit('#v1?model=llava-1.5-13b&gpu=a100-40gb&gpus=4');
    await settled();
    expect(await page.locator('oometer-advice').innerText()).not.toContain('in a job only');
    const remedy = page.locator('oometer-remedy');
    await remedy.getByRole('button', { name: 'Apply ZeRO-3 + Optimizer in host memory' }).click();
    await expect.poll(headline).toMatch(/^Fits/);
    const { parallel } = JSON.parse((await shown()).job) as { parallel: unknown };
    expect(parallel).toMatchObject({
      data: 4,
      ds_config: { zero_optimization: { stage: 3, offload_optimizer: { device: 'cpu' } } },
    });
  });

  it('is a smaller GPU, where one is enough', async () => {
    await visit(SMALL);
    const remedy = page.locator('oometer-remedy');
    await expect.poll(() => remedy.locator('p').first().innerText()).toMatch(/^Also fits: .*a smaller GPU/);
    await remedy.getByRole('button', { name: 'Apply GeForce RTX 3070' }).click();
    await expect.poll(async () => (await shown()).job).toContain('"rtx-3070"');
    expect(await headline()).toMatch(/^Fits/);
  });

  it('is how far a count goes, where nothing cheaper fits', async () => {
    await visit(`${SMALL}&gpu=rtx-3070`);
    const remedy = page.locator('oometer-remedy');
    await expect.poll(() => remedy.locator('p').first().innerText()).toContain('Also fits, each by itself');
    await remedy.getByRole('button', { name: 'Use Largest micro-batch' }).click();
    expect(Number(await number('Micro-batch').inputValue())).toBeGreaterThan(8);
  });
});

const ZERO3 = JSON.stringify({
  bf16: { enabled: 'auto' },
  zero_optimization: { stage: 3, overlap_comm: true, reduce_bucket_size: 'auto' },
});

describe('LLaVA’s LoRA with its zero3.json', () => {
  it('leads to the field that it needs, and has its fix', async () => {
    await visit('#v1?adapters=lora');
    await drop(['zero3.json', ZERO3]);
    await expect.poll(async () => page.locator('details.more').innerText()).toContain('ZeRO-3');
    await notice().waitFor();
    const fix = notice().getByRole('button', { name: 'Set Adapters in fp32 to Off and continue' });
    await fix.waitFor();
    await notice().getByRole('button', { name: 'Go to the field' }).click();
    const focused = (): Promise<string | null | undefined> =>
      page.evaluate(
        () =>
          document
            .querySelector('oometer-app')
            ?.shadowRoot?.querySelector('oometer-form')
            ?.shadowRoot?.activeElement?.getAttribute('data-key') ?? null,
      );
    expect(await focused()).toBe('adapterdtype');
    await fix.click();
    await expect.poll(headline).toMatch(/^(Fits|Tight|Does not fit)/);
  });
});
