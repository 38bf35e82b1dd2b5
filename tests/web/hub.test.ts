// A model by its name on the hub.
import { describe, expect, it } from 'vitest';
import { headline, page, pick, settled, shown, useBrowser, visit } from './browser';

useBrowser();

const picker = () => page.getByRole('combobox', { name: 'Model' });

describe('a model by its name on the hub', () => {
  it('is found by organisation and name, answered, and carried by the link', async () => {
    await visit();
    await settled();
    await picker().fill('qwen 2.5-coder-14b inst');
    await page.getByRole('option', { name: 'Qwen2.5-Coder-14B-Instruct' }).click();
    await expect.poll(() => picker().inputValue()).toBe('Qwen/Qwen2.5-Coder-14B-Instruct');
    const answer = await headline();
    expect(answer).toMatch(/^(Fits|Tight|Does not fit)/);
    const { job } = await shown();
    expect(JSON.parse(job)).toMatchObject({ model: { config: { model_type: 'qwen2', num_hidden_layers: 48 } } });
    await page.reload();
    await page.locator('oometer-verdict h2').waitFor();
    expect(await headline()).toBe(answer);
    expect(await picker().inputValue()).toBe('Qwen/Qwen2.5-Coder-14B-Instruct');
  });

  it('is the preset where there is one, so that its link stays short', async () => {
    await visit();
    await settled();
    await pick('Model', 'Qwen/Qwen3-8B');
    await expect.poll(() => page.url()).toContain('model=qwen3-8b');
  });

  it('says beforehand what is not supported yet', async () => {
    await visit();
    await settled();
    await picker().fill('Kimi-K3');
    expect(await page.getByRole('option', { name: 'Kimi-K3' }).innerText()).toContain('not supported yet');
  });

  it('leads to the file of any other', async () => {
    await visit();
    await settled();
    await picker().fill('somebody/some-model');
    const link = page.getByRole('link', { name: 'its config.json' });
    expect(await link.getAttribute('href')).toBe('https://huggingface.co/somebody/some-model/blob/main/config.json');
    await picker().fill('no such thing');
    expect(await page.locator('oometer-picker .none').first().innerText()).toContain('paste its config.json');
  });
});
