#include "models/gemma3n_text/config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "config/reader.h"
#include "models/gemma3n_text/gemma3n_text.h"

namespace oometer {

namespace {

/// A number for all layers, or a list of one for each.
void read_intermediate_sizes(ConfigReader& reader, Gemma3nTextConfig& c) {
  const auto layers = static_cast<std::size_t>(c.num_hidden_layers);
  if (reader.is_list("intermediate_size"))
    c.intermediate_sizes = reader.integers("intermediate_size");
  else
    c.intermediate_sizes.assign(layers, reader.integer("intermediate_size", 16'384));
  if (c.intermediate_sizes.size() != layers)
    reader.fail("intermediate_size", "inconsistent",
                "found " + std::to_string(c.intermediate_sizes.size()) +
                    "; expected one for each of num_hidden_layers (" + std::to_string(layers) + ")");
  c.intermediate_sizes.resize(layers, 1);
  c.intermediate_size = *std::max_element(c.intermediate_sizes.begin(), c.intermediate_sizes.end());
}

/// Where the config does not say, the first ten layers' of more than ten.
void read_sparsity(ConfigReader& reader, Gemma3nTextConfig& c) {
  const auto layers = static_cast<std::size_t>(c.num_hidden_layers);
  const nlohmann::json* const given = reader.find("activation_sparsity_pattern");
  if (!given || given->is_null()) {
    for (std::size_t i = 0; i < layers; ++i) c.sparse.push_back(layers > 10 && i < 10);
    return;
  }
  if (given->is_array())
    for (const nlohmann::json& one : *given) c.sparse.push_back(one.is_number() && one.get<double>() > 0);
  if (c.sparse.size() != layers)
    reader.fail("activation_sparsity_pattern", "inconsistent",
                "expected a list of one number for each of num_hidden_layers (" + std::to_string(layers) + ")");
  c.sparse.resize(layers);
}

}  // namespace

Gemma3nTextConfig read_gemma3n_text_config(ConfigReader& reader) {
  Gemma3nTextConfig c;
  c.names = &kGemma3nNames;
  c.vocab_size = reader.integer("vocab_size", 262'400);
  c.hidden_size = reader.integer("hidden_size", 2048);
  c.num_hidden_layers = reader.integer("num_hidden_layers", 35, layer_count);
  c.num_attention_heads = reader.integer("num_attention_heads", 8);
  c.num_key_value_heads = c.num_global_key_value_heads = reader.integer("num_key_value_heads", 2);
  c.head_dim = c.global_head_dim = reader.integer("head_dim", 256);
  c.max_position_embeddings = reader.integer("max_position_embeddings", 32'768);
  c.hidden_act = reader.activation("hidden_activation", Activation::gelu_tanh);
  c.attention_dropout = reader.optional_number("attention_dropout", 0, 1).value_or(0);
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", true);
  c.has_pad_token = !reader.is_null("pad_token_id");
  c.projects_before_norms = true;
  c.softcaps_logits = !reader.is_null("final_logit_softcapping");
  read_mixed_layers(reader, c, 5, 512);
  read_intermediate_sizes(reader, c);
  read_sparsity(reader, c);
  check_llama_heads(reader, c);
  c.hidden_size_per_layer_input = reader.integer("hidden_size_per_layer_input", 256);
  c.vocab_size_per_layer_input = reader.integer("vocab_size_per_layer_input", 262'144);
  c.altup_num_inputs = reader.integer("altup_num_inputs", 4);
  if (reader.integer("altup_active_idx", 0, non_negative) >= c.altup_num_inputs)
    reader.fail_found("altup_active_idx", "inconsistent", "expected less than altup_num_inputs");
  c.altup_correct_scale = reader.boolean("altup_correct_scale", true);
  c.laurel_rank = reader.integer("laurel_rank", 64);
  c.num_kv_shared_layers = reader.integer("num_kv_shared_layers", 15, {0, c.num_hidden_layers});
  if (c.num_kv_shared_layers != 0)
    for (std::size_t i = 0; i < static_cast<std::size_t>(c.num_hidden_layers); ++i) {
      bool has_source = false;
      for (std::size_t k = 0; k < c.first_shared_layer(); ++k) has_source |= c.slides(k) == c.slides(i);
      if (!has_source) {
        reader.fail_found("num_kv_shared_layers", "inconsistent",
                          "layer " + std::to_string(i) + " has none of its type before the shared ones");
        break;
      }
    }
  reader.refuse("use_bidirectional_attention", "attention to both sides is not supported yet");
  reader.ignore({"pad_token_id", "final_logit_softcapping", "altup_coef_clip", "rope_local_base_freq"});
  return c;
}

}  // namespace oometer
