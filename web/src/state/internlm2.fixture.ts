/** InternLM2 1.8B's config.json: of Llama's kind, and not supported yet. */
export const INTERNLM2 = {
  model_type: 'internlm2',
  architectures: ['InternLM2ForCausalLM'],
  hidden_act: 'silu',
  rms_norm_eps: 1e-5,
  vocab_size: 92544,
  hidden_size: 2048,
  intermediate_size: 8192,
  num_hidden_layers: 24,
  num_attention_heads: 16,
};
