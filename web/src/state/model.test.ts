import { describe, expect, it } from 'vitest';
import { ownModel, pack, readConfig, traits, unpack } from './model';

it('tells language, vision and joint models apart', () => {
  expect(traits({ model_type: 'llama', vocab_size: 32000 })).toEqual({ text: true, images: false });
  expect(traits({ model_type: 'llava', text_config: {}, image_token_index: 32000 })).toEqual({
    text: true,
    images: true,
  });
  expect(traits({ model_type: 'smolvlm', text_config: {}, image_token_id: 49190 })).toMatchObject({ splits: true });
  expect(traits({ model_type: 'clip_vision_model' })).toEqual({ text: false, images: false });
  expect(traits({ model_type: 'clip', text_config: {}, vision_config: {} })).toEqual({
    text: true,
    images: false,
    scalar: true,
  });
});

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
    expect(ownModel('x', readConfig(text))).toMatchObject({ id: 'x', title: 'llama', text: true, images: false });
  });

  it.each(['', '{', '[]', '3', 'null', ' '.repeat(1e6)])('is refused with a sentence: case %#', (bad) => {
    expect(() => readConfig(bad)).toThrow(/^That .*\.$/);
  });

  it('survives a link, whatever its letters', async () => {
    const own = { name: 'größe 模型', config };
    const packed = await pack(own);
    expect(packed).toMatch(/^[\w-]+$/);
    expect(await unpack(packed)).toEqual(own);
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
