import { describe, expect, it } from 'vitest';
import { addressOf, ownOf } from './hub';

describe('the hub', () => {
  it('has a file for each name, and for no other text', () => {
    const address = 'https://huggingface.co/org/My-Model.v1_0/blob/main/config.json';
    expect(addressOf('org/My-Model.v1_0')).toBe(address);
    expect(addressOf(' https://huggingface.co/org/My-Model.v1_0/ ')).toBe(address);
    for (const text of ['', 'llama', 'a/b/c', 'javascript:alert(1)', 'a b/c', 'https://example.org/a/b'])
      expect(addressOf(text)).toBeNull();
  });

  it('gives a model as if its config.json had been pasted', () => {
    const config = { model_type: 'llama' };
    expect(ownOf({ id: 'a/b', config, known: true })).toEqual({ name: 'a/b', config });
  });
});
