// Any PyTorch model by its graph of operators: dropped, linked, refused; and where its file is too large for a link.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import {
  accessibility,
  detail,
  drawn,
  drop,
  headline,
  number,
  page,
  root,
  settled,
  shown,
  site,
  useBrowser,
  visit,
} from './browser';

useBrowser();

interface Graph {
  modules: [string, string][];
  operators: [number, string, unknown[], unknown, number[]?][];
}

const lines = readFileSync(join(root, 'tests/reference/graphs.jsonl'), 'utf8').trim().split('\n');
const cases = lines.map((line) => JSON.parse(line) as { name: string; graph: Graph });
function graph(name: string): Graph {
  const found = cases.find((one) => one.name === name);
  if (!found) throw new Error(`no graph of ${name}`);
  return structuredClone(found.graph);
}

/** With modules of random names, which no packing makes small. */
function large(): Graph {
  const big = graph('resnet18');
  let seed = 1;
  const letters = (): string => (seed = (seed * 16807) % 2147483647).toString(36);
  for (let i = 0; i < 12_000; ++i) big.modules.push([`extra.${letters()}`, 'Identity']);
  return big;
}

const modelField = (): Promise<string> => page.getByRole('combobox', { name: 'Model' }).inputValue();
const job = async (): Promise<unknown> => JSON.parse((await shown()).job);
const problem = (): Promise<string> => page.getByRole('alert').innerText();

describe('a graph', () => {
  it('is dropped and answered as the core answers it; its link brings it back', async () => {
    await visit();
    await drop(['resnet18.json', JSON.stringify(graph('resnet18'))]);
    await expect.poll(modelField).toBe('resnet18');
    await expect.poll(headline).toMatch(/^Fits/);
    expect(await job()).toMatchObject({
      model: { name: 'resnet18', graph: { format: 'oometer-graph' } },
      data: { micro_batch_size: 8 },
      training: { stage: 'full', precision: 'fp32', optimizer: { name: 'adamw', param_groups: 1 } },
      parallel: { strategy: 'ddp', data: 8 },
    });
    expect((await job()) as { training: object }).not.toHaveProperty('training.activation_checkpointing');
    await drawn();
    expect(await page.getByRole('tree').getByRole('treeitem', { name: 'layer4' }).count()).toBe(1);
    const own = await detail();
    const address = new URL(page.url()).hash;
    expect(address.length).toBeLessThan(6000);
    await page.reload();
    await expect.poll(modelField).toBe('resnet18');
    await expect.poll(detail).toBe(own);
    await settled();
    expect(await accessibility()).toEqual([]);
  });

  it('has only the settings that mean something for it', async () => {
    await visit();
    await drop(['vit.json', JSON.stringify(graph('vit_b_16'))]);
    await expect.poll(modelField).toBe('vit');
    await drawn();
    for (const gone of [
      'Sequence length',
      'Adapters',
      'Activation checkpointing',
      'Liger kernels',
      'transformers',
      'Task',
    ])
      expect(await page.locator('oometer-form').getByText(gone, { exact: true }).count(), gone).toBe(0);
    expect(await page.getByRole('group', { name: 'Stage' }).getByRole('radio').count()).toBe(2);
    await page.locator('summary[data-key=parallel]').click();
    expect(await page.getByRole('radio', { name: 'DDP' }).count()).toBe(1);
    expect(await page.getByRole('radio', { name: 'FSDP2' }).count()).toBe(0);
    await page.getByText('Rarely changed').click();
    await page.locator('summary[data-key=loss]').click();
    const before = await detail();
    await page.getByRole('radio', { name: 'Mean of the output' }).check();
    await expect.poll(job).toMatchObject({ training: { loss: 'mean' } });
    expect(before).not.toBe('');
  });

  it('leaves the page as it was when a preset follows', async () => {
    await visit();
    const before = (await job()) as { training: object };
    await drop(['resnet18.json', JSON.stringify(graph('resnet18'))]);
    await expect.poll(modelField).toBe('resnet18');
    await page.getByRole('combobox', { name: 'Model' }).fill('LLaVA-1.5 7B');
    await page.keyboard.press('Enter');
    await expect.poll(async () => ((await job()) as { training: object }).training).toEqual(before.training);
  });

  it('of one batch size sets it, and another is refused beside its field', async () => {
    await visit();
    const fixed = JSON.parse(
      JSON.stringify(graph('mlp_12')).replaceAll(/\{"batch":(\d+)\}/g, (_, n) => String(2 * Number(n))),
    ) as Graph;
    await drop(['fixed.json', JSON.stringify({ ...fixed, batch: [2] })]);
    await expect.poll(() => number('Micro-batch').inputValue()).toBe('2');
    await expect.poll(headline).toMatch(/^Fits/);
    await number('Micro-batch').fill('4');
    await expect.poll(() => page.locator('#mbs-error').innerText()).toContain('xpected 2, the number of samples');
  });
});

describe('what is wrong with a graph file is said', () => {
  const whole = JSON.stringify(graph('resnet18'));
  const changed = (change: (graph: Graph) => void): string => {
    const other = graph('resnet18');
    change(other);
    return JSON.stringify(other);
  };
  it.each([
    ['cut off', whole.slice(0, 5000), 'cut off'],
    ['cyclic', changed(({ operators }) => (operators[1] ?? [])[2]?.splice(0, 1, '%99999')), 'nothing has made by then'],
    [
      'without its place',
      changed(({ operators }) => (operators[1] ?? [])[2]?.splice(0, 1, '%99999')),
      '/model/graph/operators/1/2/0',
    ],
    ['of another version', whole.replace('"version":1', '"version":7'), /this oometer reads version 1/i],
    [
      'with operators that are not known',
      changed(({ operators }) => {
        for (const operator of operators) if (operator[1] === 'conv2d') operator[1] = 'mine::conv';
      }),
      /"mine::conv" 20 times, first in conv1 \(weights of \d+ bytes\)/,
    ],
  ])('where it is %s', async (_name, text, words) => {
    await visit();
    await drop(['model.json', text]);
    await expect.poll(problem).toMatch(words);
    expect(await modelField()).toBe('LLaVA-1.5 7B');
  });
});

describe('a graph that is too large for a link', () => {
  it('is answered; its link says that the file is missing, and takes it', async () => {
    await visit();
    const file: [string, string] = ['big.json', JSON.stringify(large())];
    await drop(file);
    await expect.poll(modelField).toBe('big');
    await expect.poll(headline).toMatch(/^Fits/);
    expect(await page.getByText('too large for a link, which holds everything but the file').count()).toBeGreaterThan(
      0,
    );
    await number('Micro-batch').fill('64');
    await page.waitForFunction(
      () => /^#v1\?config=file-[\w-]+-big&/.test(location.hash) && location.hash.includes('mbs=64'),
    );
    const own = await detail();
    await page.goto(`${site.address}?again${new URL(page.url()).hash}`);
    await page.locator('#trouble').waitFor();
    expect(await page.locator('#trouble').innerText()).toContain('drop it on the page');
    expect(await modelField()).toBe('big');
    expect(await number('Micro-batch').inputValue()).toBe('64');
    await drop(file);
    await expect.poll(detail).toBe(own);
    expect(await page.locator('#trouble').count()).toBe(0);
  });
});

it('the tool that writes graphs lies beside the page', async () => {
  await visit();
  await page.getByRole('button', { name: 'any PyTorch model' }).click();
  await page.getByText('how to write its graph file').click();
  const link = page.getByRole('link', { name: 'Download export_graph.py' });
  const [download] = await Promise.all([page.waitForEvent('download'), link.click()]);
  expect(readFileSync(await download.path(), 'utf8')).toBe(readFileSync(join(root, 'tools/export_graph.py'), 'utf8'));
  expect(await accessibility()).toEqual([]);
});

it('a widget answers a graph, too', async () => {
  await visit();
  await drop(['mlp.json', JSON.stringify(graph('mlp_12'))]);
  await expect.poll(modelField).toBe('mlp');
  const { hash } = new URL(page.url());
  const answered = await headline();
  await page.goto(`${site.address}embed.html${hash}`);
  await expect.poll(headline).toBe(answered);
});
