import { describe, expect, it } from 'vitest';
import { pack, readConfig, unpack } from './model';
import { own } from './model.fixture';

describe('an own model', () => {
  const config = { model_type: 'llama', vocab_size: 32000, num_hidden_layers: 4 };
  const text = JSON.stringify(config);

  it('has the best name that it came with', () => {
    expect(readConfig(text).name).toBe('llama');
    expect(readConfig(text, 'config (2).json').name).toBe('llama');
    expect(readConfig(text, 'tiny-llama.json').name).toBe('tiny-llama');
    expect(readConfig(JSON.stringify({ ...config, _name_or_path: 'acme/small' }), 'config.json').name).toBe(
      'acme/small',
    );
    expect(own(readConfig(text))).toMatchObject({ title: 'llama', text: true, images: false });
  });

  it.each(['', '{', '[]', '3', 'null', ' '.repeat(1e6)])('is refused with a sentence: case %#', (bad) => {
    expect(() => readConfig(bad)).toThrow(/^That .*\.$/);
  });

  it('survives a link, whatever its letters', async () => {
    const model = { name: 'größe 模型', config };
    const packed = await pack(model);
    expect(packed).toMatch(/^[\w-]+$/);
    expect(await unpack(packed)).toEqual(model);
  });

  it.each(['', 'A', '!!!!', 'AAAA', 'x'.repeat(5000)])(
    'that a link only pretends to hold is refused: %#',
    async (bad) => {
      await expect(unpack(bad)).rejects.toThrow();
    },
  );

  it('cannot unpack to more than a config is', async () => {
    const bomb = await pack({ name: 'bomb', config: { zeros: '0'.repeat(3e7) } });
    expect(bomb.length).toBeLessThan(60_000);
    await expect(unpack(bomb)).rejects.toThrow();
  });
});
