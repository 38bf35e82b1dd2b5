import { describe, expect, it } from 'vitest';
import { readYaml } from './yaml';

describe('readYaml', () => {
  it('reads what accelerate config writes', () => {
    const text = `compute_environment: LOCAL_MACHINE
debug: false
downcast_bf16: 'no'
fsdp_config:
  fsdp_version: 2
num_processes: 4
tpu_env: []
main_process_ip: null # nobody's
`;
    expect(readYaml(text)).toEqual({
      compute_environment: 'LOCAL_MACHINE',
      debug: false,
      downcast_bf16: 'no',
      fsdp_config: { fsdp_version: 2 },
      num_processes: 4,
      tpu_env: [],
      main_process_ip: null,
    });
  });

  it.each([
    ['yes', true],
    ['On', true],
    ['NO', false],
    ['"no"', 'no'],
    ['', null],
    ['~', null],
    ['None', null],
    ['1_000', 1000],
    ['-3', -3],
    ['1e-5', 1e-5],
    ['2.0e-4', 2e-4],
    ['5.E3', 5000],
    ['.5', 0.5],
    ["'8'", '8'],
    ['0777', 777],
    ['2026-01-01', '2026-01-01'],
    ['1:30', '1:30'],
    ['.', '.'],
    ['1e', '1e'],
    ['/data/model', '/data/model'],
    ['!!str 8', '8'],
    ['q_proj, v_proj', 'q_proj, v_proj'],
  ])('takes the word %j as trainers do', (word, value) => {
    expect(readYaml(`key: ${word}\n`)).toEqual({ key: value });
  });

  it('follows anchors and merges', () => {
    const text = 'base: &b {lr: 1e-5, fp16: on}\nrun:\n  <<: *b\n  fp16: off\nagain: *b\n';
    expect(readYaml(text)).toEqual({
      base: { lr: 1e-5, fp16: true },
      run: { lr: 1e-5, fp16: false },
      again: { lr: 1e-5, fp16: true },
    });
  });

  it('keeps keys as they are written', () => {
    expect(readYaml('on: 1\nnull: 2\n8: 3\n')).toEqual({ on: 1, null: 2, 8: 3 });
  });

  it.each([
    ['a: 1\nb: 2\na: 3\n', 'Line 3, column 1: the key “a” stands here twice.'],
    ['a:\n\tb: 1\n', 'Line 2, column 1: Tabs are not allowed as indentation.'],
    ['a: 1\n---\nb: 2\n', 'a second document begins'],
    ['a: [1, 2\nb: 3\n', 'Line 2'],
    ['a: "open\n', 'Missing closing'],
    ['model: {{ name }}\n', 'has to be filled in first'],
    ['a: *nobody\n', 'Line 1, column 4: nothing above has the anchor “&nobody”.'],
    [`a: ${'x'.repeat(1 << 20)}`, 'more than 1 MiB'],
    ['['.repeat(50_000), 'more than 64 levels'],
    ['['.repeat(80) + ']'.repeat(80), 'more than 64 levels'],
  ])('says what is wrong, and where: %#', (text, words) => {
    expect(() => readYaml(text)).toThrow(words);
  });

  it('stops at aliases that make it large', () => {
    const rows = Array.from({ length: 12 }, (_, i) => `l${i + 1}: &l${i + 1} [${`*l${i}, `.repeat(10)}]`);
    expect(() => readYaml(['l0: &l0 [x]', ...rows].join('\n'))).toThrow('Its aliases (*name) repeat more');
  });
});
