#include <algorithm>

#include "config/reader.h"
#include "models/kit/mixture.h"

/// transformers 5.23, models/dots1/modeling_dots1.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"Dots1ForCausalLM", "Dots1Model",   "Dots1DecoderLayer",   "Dots1Attention",
                                 "Dots1MLP",         "Dots1RMSNorm", "Dots1RotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"dots1", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 152064;
  d.hidden_size = 4608;
  d.intermediate_size = 10944;
  d.num_hidden_layers = 62;
  TextConfig c = read_text_sizes(reader, d);
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  check_llama_heads(reader, c);
  if (reader.is_null("sliding_window")) {
    reader.ignore({"max_window_layers"});
  } else {
    const std::int64_t first = reader.optional_integer("max_window_layers", non_negative).value_or(62);
    read_mixed_layers(reader, c, 0);
    for (std::int64_t i = 0; i < std::min(first, c.num_hidden_layers) && reader.texts("layer_types").empty(); ++i)
      c.layer_windows[static_cast<std::size_t>(i)] = 0;
    if (std::count(c.layer_windows.begin(), c.layer_windows.end(), 0) == c.num_hidden_layers) c.sliding_window = 0;
  }
  if (c.sliding_window == 0) c.layer_windows.clear();
  for (const char* key : {"n_routed_experts", "n_shared_experts", "num_experts_per_tok"})
    if (!reader.has(key)) reader.fail(key, "missing", "found nothing; the class has no default");
  read_grouped_experts(reader, c, {.num_experts = 128, .num_experts_per_tok = 6, .intermediate_size = 1408}, 2, 0);
  return c;
}

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t index) {
  AttentionParts its;
  its.norms_at = HeadNorms::projected;
  its.norm = rms_norm;
  its.norm_type = kNames.rms_norm;
  return pre_norm_layer(builder, c, options, its, [&](const Builder& layer) -> TextLayer::MLP {
    if (c.experts.are_in(index))
      return make_moe_with_shared(layer.child("mlp", "Dots1MoE"), c, "Dots1Experts", "Dots1TopkRouter", false);
    return LlamaMLP(layer.child("mlp", kNames.mlp), c);
  });
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  return parts_of(config, options, make_layer);
}

}  // namespace

namespace family {
extern const Family dots1 = mixture_family<read, parts>(
    kClasses, kBlocks, convert_mixture_targets, traits_with<Feature::quantization, Feature::zero3, Feature::fsdp>);
}  // namespace family

}  // namespace oometer
