import { File as NodeFile } from 'node:buffer'; // no global before Node 20
import { describe, expect, it } from 'vitest';
import { identify } from './dropped';

const file = (content: string | Uint8Array<ArrayBuffer>, name = 'file'): File =>
  new NodeFile([content], name) as unknown as File;
const bytes = (...values: number[]): Uint8Array<ArrayBuffer> => Uint8Array.from(values);

describe('a dropped file', () => {
  it('is recognised by its first bytes', async () => {
    expect((await identify(file(bytes(0x80, 4, 0x95, 0, 0), 's.pickle'))).kind).toBe('snapshot');
    expect((await identify(file('{"version": 1, "model": {"preset": "llama-2-7b"}}'))).kind).toBe('job');
    expect((await identify(file('{"model_type": "llama"}', 'config.json'))).kind).toBe('text');
    expect((await identify(file('compute_environment: LOCAL_MACHINE\n'))).kind).toBe('text');
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
