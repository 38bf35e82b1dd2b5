import { describe, expect, it } from 'vitest';
import { INTERNLM2 } from './internlm2.fixture';
import { unsupported } from './unsupported';

const error = {
  code: 'unsupported-model',
  pointer: '/model/config/model_type',
  message: 'found "x"; expected a supported one: clip (CLIPModel), llama (LlamaForCausalLM)',
};
const of = (config: Record<string, unknown>) =>
  unsupported(error, { name: 'own', config }, { tokens: '4096', infers: false });

describe('a model that is not supported', () => {
  it.each([
    [{ model_type: 'gemma3', architectures: ['Gemma3ForConditionalGeneration'], vision_config: {} }, 'Gemma 3'],
    [{ model_type: 'gpt2', architectures: ['GPT2LMHeadModel'] }, 'GPT 2'],
    [{ model_type: 'qwen3_next', architectures: ['Qwen3NextForCausalLM'] }, 'Qwen 3 Next'],
    [{ model_type: 'mamba2' }, 'Mamba 2'],
  ])('has its name: case %#', (config, name) => {
    expect(of(config)?.sentence).toBe(`${name} isn’t supported yet.`);
  });

  it('has the command that writes its graph', () => {
    expect(of({ model_type: 'gpt2' })?.command).toBe(
      'python export_graph.py --hf config.json --task causal-lm --sequence-length 4096 -o gpt2.json',
    );
    expect(of({ model_type: 'albert', architectures: ['AlbertForMaskedLM'] })?.command).toContain('--task masked-lm');
    expect(of({ model_type: 'gemma3', vision_config: {} })?.command).toContain('--task image-text-to-text');
    expect(of({ model_type: 't5', is_encoder_decoder: true })?.command).toContain('--task seq2seq-lm');
  });

  it('is Llama’s kin where all its layers are of that kind, and not otherwise', () => {
    expect(of(INTERNLM2)?.alike).toMatchObject({
      name: 'InternLM 2 as Llama',
      config: { model_type: 'llama', hidden_size: 2048 },
    });
    expect(of({ ...INTERNLM2, num_local_experts: 8 })?.alike).toBeNull();
    expect(of({ ...INTERNLM2, hidden_act: 'gelu' })?.alike).toBeNull();
  });

  it('tells which classes are', () => {
    expect(of({ model_type: 'gpt2' })?.known).toEqual(['CLIPModel', 'LlamaForCausalLM']);
  });
});

it('leaves what is no model to the core’s own words', () => {
  expect(of({ _class_name: 'UNet2DConditionModel' })).toBeNull();
});
