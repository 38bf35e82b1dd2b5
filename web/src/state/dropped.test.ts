import { File as NodeFile } from 'node:buffer'; // no global before Node 20
import { describe, expect, it } from 'vitest';
import { identify } from './dropped';

const file = (content: string | Uint8Array<ArrayBuffer>, name = 'file'): File =>
  new NodeFile([content], name) as unknown as File;
const bytes = (...values: number[]): Uint8Array<ArrayBuffer> => Uint8Array.from(values);

describe('a dropped file', () => {
  it('is recognised by its content', async () => {
    expect((await identify(file(bytes(0x80, 4, 0x95, 0, 0), 's.pickle'))).kind).toBe('snapshot');
    expect((await identify(file('{"version": 1, "model": {"preset": "llama-2-7b"}}'))).kind).toBe('job');
    expect((await identify(file('{"model_type": "llama"}', 'config.json'))).kind).toBe('model');
    expect((await identify(file('{"format": "oometer-graph"}', 'model.json'))).kind).toBe('model');
    expect((await identify(file('compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\n'))).kind).toBe('run');
    expect((await identify(file('{"zero_optimization": {"stage": 2}}'))).kind).toBe('run');
    expect((await identify(file('512 700\n'))).kind).toBe('lengths');
  });

  it.each([
    ['train.yaml', 'model_name_or_path: a/b\nbf16: true\n', { model_name_or_path: 'a/b', bf16: true }],
    ['args.json', '{"bf16": true}', { bf16: true }],
    [
      'axolotl.yml',
      'base_model: a/b\nmodel_type: LlamaForCausalLM\n',
      { base_model: 'a/b', model_type: 'LlamaForCausalLM' },
    ],
    ['args.json', '{"model": "a/b", "model_type": "qwen3"}', { model: 'a/b', model_type: 'qwen3' }],
    ['run.sh', 'accelerate launch train.py\n', 'accelerate launch train.py\n'],
    ['pasted text', 'export A=1\ntorchrun train.py --note "a: b"\n', 'export A=1\ntorchrun train.py --note "a: b"\n'],
    ['pasted text', '# a: b\nlearning_rate: 1e-5\n', { learning_rate: 1e-5 }],
    ['notes.txt', 'hello', 'hello'],
    ['config.json', '{', '{'],
  ])('that a trainer may know keeps its name, and its tree or text: %s', async (name, text, content) => {
    expect(await identify(file(text, name))).toEqual({ kind: 'other', file: { name, text, content } });
  });

  it('of YAML that cannot be read says its line', async () => {
    await expect(identify(file('a: 1\na: 2\n', 'train.yaml'))).rejects.toThrow(
      'train.yaml: Line 2, column 1: the key “a” stands here twice.',
    );
  });

  it.each([
    ['model.safetensors', bytes(16, 0, 0, 0, 0, 0, 0, 0, 0x7b, 0x22), 'holds weights'],
    ['pytorch_model.bin', bytes(0x50, 0x4b, 3, 4, 0), 'holds weights'],
    ['old.bin', bytes(0x80, 2, 0x8a), 'holds weights'],
    ['model.gguf', bytes(0x47, 0x47, 0x55, 0x46, 3, 0), 'holds weights'],
    ['photo.png', bytes(0x89, 0x50, 0x4e, 0x47, 0), 'is not a text file'],
    ['nothing.json', bytes(), 'is empty'],
  ])('that is none of these is named: %s', async (name, content, says) => {
    await expect(identify(file(content, name))).rejects.toThrow(`${name} ${says}`);
  });
});
