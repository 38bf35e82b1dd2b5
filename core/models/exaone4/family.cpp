#include <algorithm>
#include <string>
#include <vector>

#include "config/reader.h"
#include "models/exaone4/exaone4.h"
#include "models/llama/llama.h"

/// transformers 5.23, models/exaone4/modeling_exaone4.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"Exaone4ForCausalLM", "Exaone4Model",   "Exaone4DecoderLayer",   "Exaone4Attention",
                                 "Exaone4MLP",         "Exaone4RMSNorm", "Exaone4RotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"exaone4", kNames.causal_lm},
                                   {"exaone4", "Exaone4ForSequenceClassification"},
                                   {"exaone4", "Exaone4ForTokenClassification"},
                                   {"exaone4", "Exaone4ForQuestionAnswering"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

}  // namespace

TextConfig read_exaone4_config(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 102400;
  d.intermediate_size = 16384;
  TextConfig c = read_text_sizes(reader, d);
  check_llama_heads(reader, c);
  const std::vector<std::string> types = reader.texts("layer_types");
  const bool slides = !reader.is_null("sliding_window");
  if (!slides && types.empty())
    reader.fail("layer_types", "inconsistent", "without a sliding_window the class needs layer_types");
  const std::int64_t pattern = types.empty() ? reader.integer("sliding_window_pattern", 4) : 4;
  reader.ignore({"sliding_window_pattern"});
  if (!slides) return c;
  read_mixed_layers(reader, c, pattern);
  for (const std::int64_t window : c.layer_windows) c.rotates.push_back(window != 0);  // the others have no positions
  if (std::count(c.layer_windows.begin(), c.layer_windows.end(), 0) == c.num_hidden_layers) c.sliding_window = 0;
  return c;
}

namespace {

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t index) {
  auto layer = std::make_unique<TextLayer>(builder, post_norm);
  const auto with_liger = norm_of(options.liger, rms_norm, liger_norm_apart);
  const auto norm = [&](const char* name) {
    return Norm(builder.child(name, kNames.rms_norm), with_liger, {c.hidden_size});
  };
  AttentionParts its;
  its.norms_at = HeadNorms::transposed;
  its.norm = with_liger;
  its.norm_type = kNames.rms_norm;
  if (!c.rotates_in(index)) its.rotate = nullptr;
  layer->self_attn = TextAttention(builder.child("self_attn", kNames.attention), c, options, its);
  layer->mlp = LlamaMLP(builder.child("mlp", kNames.mlp), c, options.liger);
  layer->attention_norm = norm("post_attention_layernorm");
  layer->output_norm = norm("post_feedforward_layernorm");
  return layer;
}

}  // namespace

DecoderParts exaone4_text_parts(const TextConfig& config, const ModelOptions& options) {
  DecoderParts parts = parts_of(config, options, make_layer);
  parts.norm = final_norm(norm_of(options.liger, rms_norm, liger_norm_apart));
  return parts;
}

namespace family {
extern const Family exaone4 = text_family<read_exaone4_config, exaone4_text_parts>(
    kClasses, kBlocks, traits_with<Feature::quantization, Feature::zero3, Feature::fsdp, Feature::liger>);
}  // namespace family

}  // namespace oometer
