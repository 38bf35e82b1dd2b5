import { describe, expect, it } from 'vitest';
import { change } from './adopt';
import { START } from './fields';
import { preset } from './model.fixture';

describe('a count of GPUs', () => {
  it('of one needs no parallelism', () => {
    expect(change(START, 'gpus', '1', [])).toEqual({ ...START, gpus: '1', parallel: 'none' });
  });

  it('of several has the parallelism of before', () => {
    const one = change({ ...START, parallel: 'fsdp2' }, 'gpus', '1', []);
    expect(change(one, 'gpus', '16', [], undefined, 'fsdp2').parallel).toBe('fsdp2');
    expect(change(one, 'gpus', '2', []).parallel).toBe('zero2');
  });

  it('leaves what one asked for on a single GPU, until it changes', () => {
    const asked = { ...START, gpus: '1', parallel: 'zero2' };
    expect(change(asked, 'mbs', '4', []).parallel).toBe('zero2');
    expect(change(asked, 'gpus', '2', []).parallel).toBe('zero2');
  });

  it('that is half typed changes nothing else', () => {
    expect(change(START, 'gpus', '', [])).toEqual({ ...START, gpus: '' });
  });
});

it('a model whose attention SDPA cannot compute brings eager, and the next one SDPA again', () => {
  const presets = ['llama-2-7b', 'gemma-2-2b'].map(preset);
  const gemma = change(START, 'model', 'gemma-2-2b', presets);
  expect(gemma.attention).toBe('eager');
  expect(change(gemma, 'model', 'llama-2-7b', presets).attention).toBe('sdpa');
  const flash = change({ ...START, attention: 'flash_attention_2' }, 'model', 'gemma-2-2b', presets);
  expect(flash.attention).toBe('flash_attention_2');
});
