// What runs the training, and how long its samples are: rows of the form, whose job, link and answer agree.
import { describe, expect, it } from 'vitest';
import { accessibility, drawn, drop, headline, number, page, shown, total, useBrowser, visit } from './browser';

useBrowser();

const LLAMA = '#v1?model=llama-3-8b&stage=full&gpus=1&mbs=1&seq=512&parallel=none&impl=bnb-8bit';

async function choose(key: string, value: string): Promise<void> {
  const row = page.locator(`details:has(> summary[data-key=${key}])`);
  if ((await row.getAttribute('open')) === null) await row.locator('> summary').click();
  const list = row.locator('select');
  if (await list.count()) await list.selectOption({ label: value });
  else await row.getByText(value, { exact: true }).click();
}
const job = async (): Promise<Record<string, Record<string, unknown>>> =>
  JSON.parse((await shown()).job) as Record<string, Record<string, unknown>>;

describe('a trainer', () => {
  it('is chosen in a row, with the few arguments that matter, and its own clipping', async () => {
    await visit(LLAMA);
    expect(await page.locator('[data-key=smoothing]').count()).toBe(0);
    await choose('loop', 'Hugging Face Trainer');
    expect((await job()).training).toMatchObject({
      loop: { name: 'transformers.Trainer' },
      max_grad_norm: 1,
    });
    await choose('smoothing', '0.1');
    await choose('eval', 'Every so many steps');
    await number('Evaluation batch').fill('2');
    await choose('metrics', 'On');
    await number('Evaluation batches').fill('4');
    expect(await job()).toMatchObject({
      data: {
        evaluation: {
          lengths: { batches: Array.from({ length: 4 }, () => [512, 512]) },
        },
      },
      training: {
        loop: {
          name: 'transformers.Trainer',
          compute_metrics: true,
          args: {
            label_smoothing_factor: 0.1,
            eval_strategy: 'steps',
            per_device_eval_batch_size: 2,
          },
        },
      },
    });
    await drawn();
    expect(await page.locator('oometer-phases tbody').innerText()).toContain('evaluation');
    expect(await accessibility()).toEqual([]);
    // The link brings all of it back.
    const before = await total();
    await page.waitForFunction(() => location.hash.includes('evalbatches=4'));
    await page.reload();
    await headline();
    expect(await total()).toBe(before);
  });

  it('says nothing to a person who does not ask', async () => {
    await visit();
    const rows = await page.locator('details.more').innerText();
    expect(rows).toMatch(/Training loop\s+Plain PyTorch/);
    for (const word of ['Label smoothing', 'Evaluation', 'Shortest', 'Packing']) expect(rows).not.toContain(word);
  });
});

describe('samples', () => {
  it('of any length between two have a spread', async () => {
    await visit(LLAMA);
    await choose('lengths', 'Uniform');
    await number('Shortest sample').fill('100');
    await choose('padding', 'To a multiple of 64');
    expect((await job()).data).toMatchObject({
      lengths: { uniform: [100, 512] },
      padding: 64,
    });
    await drawn();
    await page.locator('oometer-phases').getByText('other orders').waitFor();
    expect(await page.locator('oometer-phases tbody tr').count()).toBe(9); // set-up, and eight steps
    expect(await accessibility()).toEqual([]);
  });

  it('of a list are pasted; what is none is said beside it', async () => {
    await visit(LLAMA);
    await choose('lengths', 'A list');
    await page.locator('#trouble').getByText('Paste the lengths of your samples').waitFor();
    const text = page.getByRole('textbox', { name: 'List of lengths' });
    await text.fill('many');
    await text.blur();
    await page.locator('#histogram-error').filter({ hasText: 'Give one length a sample' }).waitFor();
    await text.fill('500 300 300');
    await text.blur();
    await expect.poll(async () => (await shown()).job).toContain('histogram');
    expect((await job()).data).toMatchObject({
      lengths: {
        histogram: [
          [300, 2],
          [500, 1],
        ],
      },
    });
    expect(await page.locator('#histogram-hint').innerText()).toBe('3 samples of 300 to 500 tokens, 367 on average');
    await choose('packed', 'Best fit');
    expect((await job()).data).toMatchObject({ packed: 'bfd' });
  });

  it('of a file are dropped anywhere', async () => {
    await visit(LLAMA);
    await drop(['lengths.csv', 'length,count\n100,5\n400,2\n']);
    await expect.poll(() => page.url()).toContain('lengths=list&histogram=100x5-400x2');
    await expect.poll(headline).toMatch(/^(Fits|Tight|Does not fit)/);
    await drop(['lengths.json', '[0, 5]']);
    await page.getByRole('dialog').getByRole('alert').filter({ hasText: 'at least 1 token' }).waitFor();
  });
});

it('bf16 weights may be under autocast', async () => {
  await visit('#v1?model=smolvlm-500m&stage=full&gpus=1&mbs=4&parallel=none&checkpointing=none');
  await drawn();
  const before = await total();
  await choose('precision', 'bf16 weights, bf16 autocast');
  expect((await job()).training).toMatchObject({
    precision: { weights: 'bf16', autocast: 'bf16' },
  });
  expect(await total()).toBeGreaterThan(before);
});
