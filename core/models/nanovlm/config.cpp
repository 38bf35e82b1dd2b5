#include "models/nanovlm/config.h"

#include "config/reader.h"
#include "models/siglip/config.h"

namespace oometer {

NanoVlmConfig read_nanovlm_config(ConfigReader& reader) {
  NanoVlmConfig c;
  ClipVisionConfig& vit = c.vision;
  vit.family = &kSiglipVision;  // whose weights it takes
  vit.hidden_act = Activation::gelu_tanh;
  vit.hidden_size = reader.integer("vit_hidden_dim", 768);
  vit.intermediate_size = reader.integer("vit_inter_dim", 3072);
  vit.num_hidden_layers = reader.integer("vit_n_blocks", 12, layer_count);
  vit.num_attention_heads = reader.integer("vit_n_heads", 12);
  vit.image_size = reader.integer("vit_img_size", 256, {1, 65'536});
  vit.patch_size = reader.integer("vit_patch_size", 16, {1, 65'536});
  LlamaConfig& lm = c.text;
  lm.vocab_size = reader.integer("lm_vocab_size", 49153);
  lm.hidden_size = reader.integer("lm_hidden_dim", 576);
  lm.intermediate_size = reader.integer("lm_inter_dim", 1536);
  lm.num_hidden_layers = reader.integer("lm_n_blocks", 30, layer_count);
  lm.num_attention_heads = reader.integer("lm_n_heads", 9);
  lm.num_key_value_heads = reader.integer("lm_n_kv_heads", 3);
  lm.max_position_embeddings = reader.integer("lm_max_position_embeddings", 8192);
  lm.head_dim = lm.hidden_size / lm.num_attention_heads;
  c.tie_word_embeddings = lm.tie_word_embeddings = reader.boolean("lm_tie_weights", true);
  c.scale_factor = reader.integer("mp_pixel_shuffle_factor", 2, {1, 1024});
  c.max_length = reader.integer("lm_max_length", 512);
  reader.ignore({"vit_ln_eps", "vit_model_type", "lm_rms_eps", "lm_re_base", "lm_base_vocab_size", "extra_token_amount",
                 "lm_attn_scaling", "lm_model_type", "lm_tokenizer", "lm_eos_token_id", "vlm_extra_tokens",
                 "vlm_load_backbone_weights", "vlm_checkpoint_path", "hf_repo_name"});

  const auto divides = [&](const char* key, std::int64_t whole, std::int64_t part, const char* of) {
    if (whole % part != 0)
      reader.fail_found(key, "inconsistent",
                        "expected a divisor of " + std::string(of) + " (" + std::to_string(whole) + ")");
  };
  divides("vit_n_heads", vit.hidden_size, vit.num_attention_heads, "vit_hidden_dim");
  divides("lm_n_heads", lm.hidden_size, lm.num_attention_heads, "lm_hidden_dim");
  divides("lm_n_kv_heads", lm.num_attention_heads, lm.num_key_value_heads, "lm_n_heads");
  if (lm.head_dim % 2 != 0)
    reader.fail_found("lm_n_heads", "inconsistent", "expected heads of an even size, which rotary embeddings need");
  const std::int64_t side = vit.image_size / vit.patch_size;
  if (side == 0)
    reader.fail_found("vit_patch_size", "inconsistent", "expected at most vit_img_size: no patch fits");
  else
    divides("mp_pixel_shuffle_factor", side, c.scale_factor, "the patches along a side");
  // _replace_img_tokens_with_embd: values of [batch, tokens, width] go where the mp_image_token_length indices say
  const std::int64_t tokens = c.tokens_per_image();
  if (reader.ok() && reader.integer("mp_image_token_length", 64) != tokens)
    reader.fail_found("mp_image_token_length", "inconsistent",
                      "expected " + std::to_string(tokens) + ", as many as the projector gives");
  for (const char* key : {"vit_dropout", "lm_dropout"})
    if (reader.number(key, 0.0, 0.0, 1.0) != 0.0)
      reader.fail_found(key, "not-modelled", "expected 0: nanoVLM's dropout is not modelled");
  for (const char* key : {"vit_cls_flag", "lm_use_tokens"})
    if (reader.boolean(key, false))
      reader.fail_found(key, "inconsistent", "expected false: VisionLanguageModel does not run with it");
  return c;
}

}  // namespace oometer
