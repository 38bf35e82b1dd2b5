/** Phi-3 Mini's config.json: of Llama's kind, and not supported yet. */
export const PHI3 = {
  model_type: 'phi3',
  architectures: ['Phi3ForCausalLM'],
  hidden_act: 'silu',
  rms_norm_eps: 1e-5,
  vocab_size: 32064,
  hidden_size: 3072,
  intermediate_size: 8192,
  num_hidden_layers: 32,
  num_attention_heads: 32,
};
