#include <string>
#include <vector>

#include "config/reader.h"
#include "models/kit/text_family.h"

/// transformers 5.23, models/smollm3/modeling_smollm3.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"SmolLM3ForCausalLM", "SmolLM3Model",   "SmolLM3DecoderLayer",   "SmolLM3Attention",
                                 "SmolLM3MLP",         "SmolLM3RMSNorm", "SmolLM3RotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"smollm3", kNames.causal_lm},
                                   {"smollm3", "SmolLM3ForSequenceClassification"},
                                   {"smollm3", "SmolLM3ForTokenClassification"},
                                   {"smollm3", "SmolLM3ForQuestionAnswering"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 128256;
  d.hidden_size = 2048;
  d.num_hidden_layers = 36;
  d.num_attention_heads = 16;
  d.num_key_value_heads = 4;
  d.max_position_embeddings = 32768;
  d.tie_word_embeddings = d.has_pad_token = true;
  TextConfig c = read_text_sizes(reader, d);
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  c.mlp_bias = reader.boolean("mlp_bias", false);
  const std::int64_t interval = reader.integer("no_rope_layer_interval", 4);
  const std::vector<std::int64_t> given = reader.integers("no_rope_layers", non_negative);  // 1: the layer rotates
  const auto layers = static_cast<std::size_t>(c.num_hidden_layers);
  if (!given.empty() && given.size() < layers)
    reader.fail_found("no_rope_layers", "inconsistent", "expected num_hidden_layers of them");
  for (std::size_t i = 0; i < layers; ++i)
    c.rotates.push_back(i < given.size() ? given[i] != 0 : (static_cast<std::int64_t>(i) + 1) % interval != 0);
  const bool slides = reader.boolean("use_sliding_window", false) && reader.has("sliding_window");
  const bool names_layers = !reader.texts("layer_types").empty();
  if (slides) {
    read_mixed_layers(reader, c, 1);
    for (std::size_t i = 0; i < layers && !names_layers; ++i)
      if (!c.rotates[i]) c.layer_windows[i] = c.sliding_window;
  } else {
    reader.ignore({"sliding_window"});
    for (const std::string& type : reader.texts("layer_types"))
      if (type != "full_attention")
        reader.fail_found("layer_types", "inconsistent",
                          "layers that slide need \"use_sliding_window\": true and a sliding_window beside them");
  }
  check_llama_heads(reader, c);
  return c;
}

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t index) {
  AttentionParts its;
  if (!c.rotates_in(index)) its.rotate = nullptr;
  return pre_norm_layer(builder, c, options, its);
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  return parts_of(config, options, make_layer);
}

}  // namespace

namespace family {
extern const Family smollm3 = text_family<read, parts>(
    kClasses, kBlocks, traits_with<Feature::quantization, Feature::zero3, Feature::fsdp, Feature::liger>);
}  // namespace family

}  // namespace oometer
