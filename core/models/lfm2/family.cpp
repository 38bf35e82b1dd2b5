#include <algorithm>

#include "config/reader.h"
#include "models/lfm2/lfm2.h"

namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"Lfm2ForCausalLM", "Lfm2Model",   "Lfm2DecoderLayer",   "Lfm2Attention",
                                 "Lfm2MLP",         "Lfm2RMSNorm", "Lfm2RotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"lfm2", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t index) {
  return make_lfm2_layer(builder, c, options, index, "Lfm2ShortConv", [&](const Builder& layer) {
    return Lfm2MLP(layer.child("feed_forward", kNames.mlp), c.hidden_size, c.intermediate_size);
  });
}

}  // namespace

TextConfig read_lfm2_config(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 65536;
  d.hidden_size = 2560;
  d.intermediate_size = 12288;
  d.num_key_value_heads = 8;
  d.max_position_embeddings = 128'000;
  d.tie_word_embeddings = d.has_pad_token = true;
  TextConfig c = read_lfm2_text(reader, d);
  c.intermediate_size = reader.integer("block_ff_dim", c.intermediate_size);
  const double multiplier = reader.number("block_ffn_dim_multiplier", 1.0, 0, 1024);
  const std::int64_t multiple = reader.integer("block_multiple_of", 256);
  if (reader.boolean("block_auto_adjust_ff_dim", true)) {
    c.intermediate_size = 2 * c.intermediate_size / 3;
    if (!reader.is_null("block_ffn_dim_multiplier")) {
      c.intermediate_size = static_cast<std::int64_t>(multiplier * static_cast<double>(c.intermediate_size));
      c.intermediate_size = (c.intermediate_size + multiple - 1) / multiple * multiple;
    }
  }
  read_mixer_layers(reader, c, "conv", 1);
  if (const auto attends = reader.integers("full_attn_idxs", non_negative);
      !attends.empty() && !reader.has("layer_types"))
    for (std::size_t i = 0; i < c.mixer.layers.size(); ++i)
      c.mixer.layers[i] = std::find(attends.begin(), attends.end(), static_cast<std::int64_t>(i)) == attends.end();
  return c;
}

DecoderParts lfm2_text_parts(const TextConfig& config, const ModelOptions& options) {
  return lfm2_parts(parts_of(config, options, make_layer));
}

namespace family {
extern const Family lfm2 = text_family<read_lfm2_config, lfm2_text_parts>(
    kClasses, kBlocks, generating_traits_with<Feature::quantization, Feature::fsdp>);
}  // namespace family

}  // namespace oometer
