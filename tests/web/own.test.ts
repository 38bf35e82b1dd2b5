// One's own model: pasted, dropped, linked; and several beside each other.
import { describe, expect, it } from 'vitest';
import { detail, drawn, drop, headline, number, open, page, shown, site, useBrowser, visit } from './browser';

useBrowser();

const llama = (layers: number): string =>
  JSON.stringify({
    architectures: ['LlamaForCausalLM'],
    model_type: 'llama',
    vocab_size: 32000,
    hidden_size: 1024,
    intermediate_size: 2816,
    num_attention_heads: 16,
    num_hidden_layers: layers,
  });

const modelField = (): Promise<string> => page.getByRole('combobox', { name: 'Model' }).inputValue();

describe('a config.json', () => {
  it('is pasted, and its link brings it back', async () => {
    await visit();
    const before = await detail();
    await page.getByRole('button', { name: 'Paste or drop a config.json' }).click();
    await page.getByRole('textbox', { name: 'config.json' }).fill(llama(4));
    await page.getByRole('button', { name: 'Use it' }).click();
    await expect.poll(modelField).toBe('llama');
    const own = await detail();
    expect(own).not.toBe(before);
    expect(JSON.parse((await shown()).job)).toMatchObject({ model: { config: { num_hidden_layers: 4 } } });
    expect(new URL(page.url()).hash).toMatch(/^#v1\?config=[\w-]+&stage=full$/);
    await page.reload();
    await expect.poll(modelField).toBe('llama');
    expect(await detail()).toBe(own);
    expect(await number('Images per sample').count()).toBe(0);
    await page.goBack();
    await expect.poll(detail).toBe(before);
  });

  it.each([
    ['no JSON', '{', 'not JSON'],
    ['no config', '{"a": 1}', 'model_type'],
    ['of diffusers', '{"_class_name": "UNet2DConditionModel"}', 'config of diffusers'],
    ['of a GGUF file', '{"general.architecture": "llama"}', 'metadata of a GGUF file'],
    ['of a model that is not known', '{"model_type": "gpt9"}', 'Gpt 9 isn’t supported yet.'],
  ])('that is %s is refused in words', async (_name, text, words) => {
    await visit();
    await page.getByRole('button', { name: 'Paste or drop a config.json' }).click();
    await page.getByRole('textbox', { name: 'config.json' }).fill(text);
    await page.getByRole('button', { name: 'Use it' }).click();
    expect(await page.getByRole('alert').innerText()).toContain(words);
    await page.keyboard.press('Escape');
    expect(await page.getByRole('dialog').count()).toBe(0);
  });

  it('is taken when pasted anywhere', async () => {
    await visit();
    await page.evaluate((text) => {
      const data = new DataTransfer();
      data.setData('text/plain', text);
      document.body.dispatchEvent(new ClipboardEvent('paste', { clipboardData: data, bubbles: true }));
    }, llama(3));
    await expect.poll(modelField).toBe('llama');
  });

  it('is dropped as a file; a wrong one opens the dialog that says so', async () => {
    await visit();
    await drop(['tiny.json', llama(2)]);
    await expect.poll(modelField).toBe('tiny');
    await drop(['notes.txt', 'hello']);
    await expect.poll(() => page.getByRole('alert').innerText()).toContain('notes.txt: No trainer');
    expect(await modelField()).toBe('tiny');
  });

  it('stands beside others that are dropped with it', async () => {
    await visit();
    await drop(['two.json', llama(2)], ['four.json', llama(4)], ['six.json', llama(6)]);
    await expect.poll(() => page.locator('oometer-compare thead th').allInnerTexts()).toHaveLength(3);
    const heads = await page.locator('oometer-compare thead th').allInnerTexts();
    expect(heads.map((head) => head.split('\n')[0])).toEqual(['Now: two', 'Pinned 1: four', 'Pinned 2: six']);
  });
});

describe('a hostile config in a link', () => {
  it.each(['AAAA', 'x'.repeat(3000), '____', 'q1Y'])('is told, and the example stands: %#', async (packed) => {
    await visit(`#v1?config=${packed}&mbs=4`);
    expect(await page.getByRole('alert').innerText()).toContain('The model in it cannot be read.');
    expect(await headline()).not.toBe('');
    expect(await number('Micro-batch').inputValue()).toBe('4');
  });
});

describe('comparing', () => {
  it('pins, marks what differs, keeps it in the link, swaps and removes', async () => {
    await visit();
    const first = await detail();
    await page.getByRole('button', { name: 'Pin these settings' }).click();
    await number('Micro-batch').fill('4');
    await page.waitForFunction(() => location.hash === '#v1?mbs=4/');
    await drawn();
    const table = page.locator('oometer-compare table');
    // The only difference does all that there is between the two.
    const whole = await table.locator('tr', { hasText: 'Peak, total' }).locator('.delta').innerText();
    expect(whole).toMatch(/^\+[\d.]+/);
    const cells = await table.locator('tr', { hasText: 'Micro-batch' }).locator('td').allInnerTexts();
    expect(cells.map((text) => text.replaceAll(/\s+/g, ' '))).toEqual([
      '4',
      `8 alone ${whole.replaceAll(/\s+/g, ' ')}`,
    ]);
    expect(await table.locator('td.differs').count()).toBe(1);
    await page.reload();
    await page.locator('oometer-compare table').waitFor();
    await page.getByRole('button', { name: 'Use pinned 1' }).click();
    await expect.poll(detail).toBe(first);
    expect(new URL(page.url()).hash).toBe('#v1?/mbs=4');
    await page.getByRole('button', { name: 'Remove pinned 1' }).click();
    expect(await table.count()).toBe(0);
    expect(new URL(page.url()).hash).toBe('');
  });

  it('holds four', async () => {
    await visit('#v1?mbs=1/mbs=2/mbs=3/mbs=4/mbs=5');
    await drawn();
    expect(await page.locator('oometer-compare thead th').count()).toBe(5);
    expect(await page.getByRole('button', { name: '4 are pinned' }).isDisabled()).toBe(true);
  });
});

it('fits a phone with four pinned', async () => {
  await open({ width: 360, height: 740 });
  await page.goto(`${site.address}#v1?/mbs=1/mbs=2/mbs=3/mbs=4`);
  await page.locator('oometer-compare table').waitFor();
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(360);
});

const DS_CONFIG = JSON.stringify({
  bf16: { enabled: 'auto' },
  zero_optimization: { stage: 3, reduce_bucket_size: 'auto', offload_optimizer: { device: 'cpu' } },
});
const ACCELERATE = `compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_version: 2
  fsdp_offload_params: true
mixed_precision: bf16
num_processes: 4
`;

describe('a file of DeepSpeed or accelerate', () => {
  const parallel = async (): Promise<unknown> => (JSON.parse((await shown()).job) as { parallel: unknown }).parallel;

  it('is pasted, stays in the link, and goes again', async () => {
    await visit();
    const before = await detail();
    await page.getByRole('button', { name: 'Paste or drop a ds_config.json' }).click();
    await page.getByRole('textbox', { name: 'config.json' }).fill(DS_CONFIG);
    await page.getByRole('button', { name: 'Use it' }).click();
    await expect.poll(detail).not.toBe(before);
    expect(await parallel()).toEqual({ strategy: 'deepspeed', ds_config: JSON.parse(DS_CONFIG) as unknown, data: 8 });
    expect(await page.getByText('Parallelism', { exact: true }).count()).toBe(0);
    const own = await detail();
    await page.reload();
    await expect.poll(detail).toBe(own);
    await page.getByRole('button', { name: 'Remove Own configuration' }).click();
    await expect.poll(detail).toBe(before);
  });

  it('of accelerate is dropped as it was written, and sets what it says', async () => {
    await visit();
    await drop(['default_config.yaml', ACCELERATE]);
    await expect.poll(async () => number('Count').inputValue()).toBe('4');
    await expect.poll(parallel).toMatchObject({
      accelerate_config: { distributed_type: 'FSDP', num_processes: 4 },
      data: 4,
    });
    expect(await headline()).toMatch(/^(Fits|Tight|Does)/);
  });

  it('that is wrong is said where it stands', async () => {
    await visit();
    await drop(['ds_config.json', DS_CONFIG.replace('reduce_bucket_size', 'reduce_buckt_size')]);
    const error = page.locator('#runfile-error');
    await expect.poll(async () => error.innerText()).toContain('Did you mean "reduce_bucket_size"');
  });
});
