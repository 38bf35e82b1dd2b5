#include "models/blip_2/config.h"

#include <string>

#include "config/reader.h"

namespace oometer {

namespace {

enum class TextKind : std::uint8_t { opt, llama, t5 };

ClipVisionConfig read_vision(ConfigReader& reader, const Blip2Family& family, bool& qkv_bias) {
  ClipVisionConfig defaults;
  defaults.family = &family.vision;
  defaults.hidden_size = 1408;
  defaults.intermediate_size = 6144;
  defaults.num_hidden_layers = 39;
  defaults.num_attention_heads = 16;
  defaults.image_size = 224;
  defaults.patch_size = 14;
  defaults.hidden_act = Activation::gelu;
  ClipVisionConfig c = read_vision_sizes(reader, defaults);
  c.num_channels = 3;  // whatever the config says
  qkv_bias = reader.boolean("qkv_bias", true);
  reader.ignore({"model_type", "layer_norm_eps", "initializer_range", "initializer_factor", "dropout", "projection_dim",
                 "num_channels"});
  return c;
}

}  // namespace

Blip2Config read_blip2_config(ConfigReader& reader, const Blip2Family& family) {
  Blip2Config c;
  c.family = &family;
  ConfigReader vision = reader.object("vision_config");
  c.vision = read_vision(vision, family, c.qkv_bias);
  vision.finish();
  ConfigReader qformer = reader.object("qformer_config");
  c.qformer = read_qformer_config(qformer, *family.qformer);
  qformer.finish();
  c.qformer.encoder_hidden_size = c.vision.hidden_size;  // Blip2Config.__post_init__
  c.num_query_tokens = reader.integer("num_query_tokens", c.num_query_tokens);
  ConfigReader text = reader.object("text_config");
  switch (text.choice<TextKind>("model_type", TextKind::opt,
                                {{"opt", TextKind::opt}, {"llama", TextKind::llama}, {"t5", TextKind::t5}})) {
    case TextKind::opt:
      c.text = read_opt_config(text);
      break;
    case TextKind::llama:
      c.text = read_llama_config(text);
      break;
    case TextKind::t5:
      c.text = read_t5_config(text, kT5ClassNames).as<T5Config>();
      break;
  }
  text.finish();
  if (!reader.has("image_token_index") && !reader.has("image_token_id"))
    reader.fail("image_token_index", "missing", "found nothing; the class looks for this token in the text");
  reader.ignore({"image_token_index", "image_token_id", "initializer_factor", "initializer_range",
                 "image_text_hidden_size", "use_decoder_only_language_model", "is_encoder_decoder",
                 "tie_word_embeddings"});
  return c;
}

}  // namespace oometer
