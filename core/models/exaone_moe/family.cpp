#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/reader.h"
#include "models/kit/mixture.h"

/// transformers 5.23, models/exaone_moe/modeling_exaone_moe.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"ExaoneMoeForCausalLM",    "ExaoneMoeModel", "ExaoneMoeDecoderLayer",
                                 "ExaoneMoeAttention",      "ExaoneMoeMLP",   "ExaoneMoeRMSNorm",
                                 "ExaoneMoeRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"exaone_moe", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

/// Every so many layers one sees all that came before; without a window all do.
std::int64_t read_pattern(ConfigReader& reader) {
  if (const nlohmann::json* found = reader.find("sliding_window_pattern"); found && found->is_string()) {
    reader.fail_found("sliding_window_pattern", "inconsistent",
                      "the class divides by it where layer_types are not given: expected a number");
    return 4;
  }
  return reader.integer("sliding_window_pattern", 4);
}

TextConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 102400;
  d.intermediate_size = 16384;
  d.has_pad_token = true;
  TextConfig c = read_text_sizes(reader, d);
  check_llama_heads(reader, c);
  const bool slides = !reader.is_null("sliding_window");
  const bool has_types = !reader.texts("layer_types").empty();
  if (!slides && !has_types)
    reader.fail("layer_types", "inconsistent", "without a sliding_window the class needs layer_types");
  const std::int64_t pattern = has_types ? 4 : read_pattern(reader);
  if (has_types) reader.ignore({"sliding_window_pattern"});
  if (slides) {
    read_mixed_layers(reader, c, pattern);
    for (const std::int64_t window : c.layer_windows) c.rotates.push_back(window != 0);
    if (std::count(c.layer_windows.begin(), c.layer_windows.end(), 0) == c.num_hidden_layers) c.sliding_window = 0;
  }
  read_experts(reader, c, "num_experts", "num_local_experts",
               {.num_experts = 64, .num_experts_per_tok = 8, .intermediate_size = 1024, .norm_topk_prob = true});
  read_expert_groups(reader, c, "num_shared_experts", 1, 1);
  read_mlp_layer_types(reader, c);
  reader.ignore({"num_nextn_predict_layers", "scoring_func", "topk_method", "reduced_vocab_size"});
  return c;
}

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t index) {
  AttentionParts its;
  its.norms_at = HeadNorms::transposed;
  its.norm = rms_norm;
  its.norm_type = kNames.rms_norm;
  if (!c.rotates_in(index)) its.rotate = nullptr;
  return pre_norm_layer(builder, c, options, its, [&](const Builder& layer) -> TextLayer::MLP {
    if (c.experts.are_in(index))
      return make_moe_with_shared(layer.child("mlp", "ExaoneMoeSparseMoEBlock"), c, "ExaoneMoeExperts",
                                  "ExaoneMoeTopkRouter", false);
    return LlamaMLP(layer.child("mlp", kNames.mlp), c);
  });
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  return parts_of(config, options, make_layer);
}

}  // namespace

namespace family {
extern const Family exaone_moe = mixture_family<read, parts>(
    kClasses, kBlocks, convert_mixture_targets, traits_with<Feature::quantization, Feature::zero3, Feature::fsdp>);
}  // namespace family

}  // namespace oometer
