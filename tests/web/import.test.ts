// A trainer's own files: dropped or pasted, answered, and taken into the settings.
import { describe, expect, it } from 'vitest';
import {
  accessibility,
  copiedFrom,
  detail,
  drop,
  open,
  page,
  requests,
  settled,
  shown,
  total,
  useBrowser,
  VIEWS,
  visit,
} from './browser';

useBrowser();

const FACTORY = `### model
model_name_or_path: Qwen/Qwen3-8B
stage: sft
finetuning_type: lora
lora_rank: 16
lora_target: all
template: qwen3
cutoff_len: 2048
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
learning_rate: 1.0e-4
bf16: true
output_dir: out
`;
const ZERO3 = JSON.stringify({
  zero_optimization: { stage: 3 },
  bf16: { enabled: 'auto' },
  train_micro_batch_size_per_gpu: 'auto',
  gradient_accumulation_steps: 'auto',
});
const TINY = JSON.stringify({
  architectures: ['LlamaForCausalLM'],
  model_type: 'llama',
  vocab_size: 32000,
  hidden_size: 1024,
  intermediate_size: 2816,
  num_attention_heads: 16,
  num_hidden_layers: 2,
});

const panel = () => page.locator('oometer-import');
const answer = () => panel().locator('.verdict');
const dialog = () => page.getByRole('dialog');

async function paste(text: string): Promise<void> {
  await page.evaluate((pasted) => {
    const data = new DataTransfer();
    data.setData('text/plain', pasted);
    document.body.dispatchEvent(new ClipboardEvent('paste', { clipboardData: data, bubbles: true }));
  }, text);
}

/** The peak of the job that the panel copies, as a dropped job has it. */
async function copied(): Promise<{ model: unknown; training: object }> {
  return JSON.parse(await copiedFrom(panel(), 'Copy the job')) as { model: unknown; training: object };
}

describe('a trainer’s file', () => {
  it('is answered at once, with an account of its keys, and its job becomes the settings', async () => {
    await visit();
    await settled();
    expect(requests.filter((address) => /(import|yaml)-|importers/.test(address))).toEqual([]);
    await drop(['train.yaml', FACTORY]);
    await answer()
      .filter({ hasText: /^\s*(Fits|Tight|Does not fit)/ })
      .waitFor();
    expect(
      await panel()
        .getByRole('heading', { name: /llamafactory/ })
        .count(),
    ).toBe(1);
    const said = (await answer().innerText()).replaceAll('\u00a0', ' ');
    const taken = panel().getByRole('table', { name: 'Taken' });
    expect(await taken.getByRole('row', { name: 'lora_rank' }).innerText()).toMatch(
      /training.lora.rank\s+16\s+your file/,
    );
    expect(await taken.getByRole('row', { name: 'flash_attn' }).innerText()).toContain('default: llamafactory');
    const ignored = panel().locator('details', { hasText: 'No effect on memory' });
    expect(await ignored.getByText('learning_rate').isVisible()).toBe(false);
    await ignored.locator('summary').click();
    expect(await ignored.getByText('learning_rate').isVisible()).toBe(true);
    const use = panel().getByRole('button', { name: 'Use these settings' });
    await use.click();
    await expect.poll(() => page.url()).toContain('rank=16');
    expect(said).toContain(await detail());
    expect(await taken.isVisible()).toBe(false);
    const { job } = await shown();
    expect(JSON.parse(job)).toMatchObject({ training: { lora: { rank: 16 } } });
    const peak = await total();
    await page.reload();
    await expect.poll(total).toBe(peak);
    expect(await panel().count()).toBe(0);
  });

  it('asks for the files that it names, and for how many GPUs', async () => {
    await visit();
    await settled();
    await drop(['train.yaml', `${FACTORY}deepspeed: examples/ds_z3.json\n`]);
    const missing = panel().getByRole('group', { name: 'Missing' });
    await missing.getByText('ds_z3.json', { exact: false }).first().waitFor();
    await missing.getByRole('button', { name: 'Add ds_z3.json' }).waitFor();
    expect(await answer().innerText()).toContain('Without what is missing');
    await drop(['ds_z3.json', ZERO3]);
    await expect.poll(() => missing.innerText()).not.toContain('ds_z3');
    await panel().getByRole('spinbutton', { name: 'GPUs' }).fill('4');
    await page.keyboard.press('Enter');
    await answer().filter({ hasText: 'on each of 4 ×' }).waitFor();
    expect(await missing.count()).toBe(0);
    expect(await answer().innerText()).not.toContain('Without');
    expect(await copied()).toMatchObject({ parallel: { data: 4, ds_config: { zero_optimization: { stage: 3 } } } });
  });

  it('comes with a config.json where its model is not known, together or later', async () => {
    await visit();
    await settled();
    const file = FACTORY.replace('Qwen/Qwen3-8B', 'somebody/own').replace('template: qwen3', 'template: llama2');
    await drop(['train.yaml', file]);
    await answer().filter({ hasText: 'No answer yet' }).waitFor();
    await panel().getByRole('button', { name: 'Add config.json' }).waitFor();
    await panel()
      .locator('input[type=file]')
      .setInputFiles({
        name: 'config (1).json',
        mimeType: 'application/json',
        buffer: Buffer.from(TINY),
      });
    await answer()
      .filter({ hasText: /^\s*Fits/ })
      .waitFor();
    expect(await copied()).toMatchObject({ model: { config: { num_hidden_layers: 2 } } });
    await panel().getByRole('button', { name: 'Close' }).click();
    expect(await panel().count()).toBe(0);
    await drop(['train.yaml', file], ['config.json', TINY]);
    await answer()
      .filter({ hasText: /^\s*Fits/ })
      .waitFor();
  });

  it('that is a script is pasted; what it leaves open is asked for', async () => {
    await visit();
    await settled();
    const script = [
      'OUT=out',
      'trl sft --model_name_or_path $MODEL \\',
      '  --max_length 1024 --output_dir $OUT --per_device_train_batch_size 2',
    ].join('\n');
    await paste(script);
    const field = panel().getByRole('textbox', { name: 'MODEL' });
    await field.fill('Qwen/Qwen3-0.6B');
    await page.keyboard.press('Enter');
    await answer()
      .filter({ hasText: /^\s*(Fits|Tight|Does not fit)/ })
      .waitFor();
    expect(await panel().getByRole('heading', { name: /trl/ }).count()).toBe(1);
    expect(await field.inputValue()).toBe('Qwen/Qwen3-0.6B');
  });

  it('is refused with its key, or with the line that cannot be read', async () => {
    await visit();
    await settled();
    await drop(['train.yaml', FACTORY.replace('stage: sft', 'stage: ppo')]);
    const alert = panel().getByRole('alert');
    await alert.filter({ hasText: 'stage' }).waitFor();
    expect(await alert.innerText()).toContain('train.yaml');
    expect(await answer().count()).toBe(0);
    await drop(['train.yaml', `${FACTORY}bf16: false\n`]);
    await dialog()
      .getByRole('alert')
      .filter({ hasText: 'Line 14, column 1: the key “bf16” stands here twice.' })
      .waitFor();
    await page.keyboard.press('Escape');
    await drop(['notes.txt', 'hello']);
    await dialog().getByRole('alert').filter({ hasText: 'notes.txt: No trainer that is known' }).waitFor();
  });

  it.each(VIEWS)('is readable at $width pixels, $colorScheme', async (view) => {
    await open(view);
    await visit();
    await settled();
    await drop(['train.yaml', `${FACTORY}use_unsloth: true\nneat_packing: true\ndeepspeed: ds_z3.json\n`]);
    await answer().waitFor();
    await panel().getByText('Not modelled').waitFor();
    expect(await accessibility()).toEqual([]);
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    expect(width).toBeLessThanOrEqual(view.width);
  });
});
