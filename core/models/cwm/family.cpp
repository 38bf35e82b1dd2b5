#include <string>

#include "config/reader.h"
#include "models/kit/text_family.h"

/// transformers 5.23, models/cwm/modeling_cwm.py: Llama's classes, of which most layers slide.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"CwmForCausalLM", "CwmModel",   "CwmDecoderLayer",   "CwmAttention",
                                 "CwmMLP",         "CwmRMSNorm", "CwmRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"cwm", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 128'256;
  d.hidden_size = 6144;
  d.intermediate_size = 21'504;
  d.num_hidden_layers = 64;
  d.num_attention_heads = 48;
  d.num_key_value_heads = 8;
  d.max_position_embeddings = 131'072;
  TextConfig c = read_text_sizes(reader, d, 128);
  c.mlp_bias = reader.boolean("mlp_bias", false);
  if (c.hidden_size % c.num_attention_heads != 0)  // LlamaConfig.validate_architecture
    reader.fail_found("hidden_size", "inconsistent",
                      "expected a multiple of num_attention_heads (" + std::to_string(c.num_attention_heads) + ")");
  check_llama_heads(reader, c);
  read_mixed_layers(reader, c, 1, 8192);
  if (!reader.has("layer_types"))  // every fourth layer, from the first on, sees all
    for (std::size_t i = 0; i < c.layer_windows.size(); ++i) c.layer_windows[i] = i % 4 == 0 ? 0 : c.sliding_window;
  // The class's usual frequencies are Llama 3's, which ZeRO-3 leaves in float32 (_compute_llama3_parameters).
  const bool has_rope = reader.is_object("rope_parameters");
  const std::string rope = has_rope ? reader.object("rope_parameters").text("rope_type", "default") : "llama3";
  c.float32_frequencies = rope == "llama3" || rope == "yarn";
  reader.ignore({"pretraining_tp"});
  return c;
}

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t) {
  return pre_norm_layer(builder, c, options);
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  return parts_of(config, options, make_layer);
}

}  // namespace

namespace family {
extern const Family cwm =
    text_family<read, parts>(kClasses, kBlocks, traits_with<Feature::quantization, Feature::zero3, Feature::fsdp>);
}  // namespace family

}  // namespace oometer
