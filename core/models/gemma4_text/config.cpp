#include "models/gemma4_text/config.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/reader.h"
#include "models/gemma4_text/gemma4_text.h"

namespace oometer {

namespace {

/// Whether no layer of [layer + 1, end) is of the same type.
bool is_last_before(const Gemma4TextConfig& c, std::size_t layer, std::size_t end) {
  for (std::size_t i = layer + 1; i < end; ++i)
    if (c.slides(i) == c.slides(layer)) return false;
  return true;
}

/// What save_pretrained writes in place of global_head_dim and num_global_key_value_heads: {"05": {"head_dim": 512},
/// ...}, an entry for each layer that does not slide (Gemma4TextConfig.__post_init__). They have to be alike.
void read_per_layer_config(ConfigReader& reader, Gemma4TextConfig& c, std::int64_t& heads) {
  const nlohmann::json* const layers = reader.find("per_layer_config");
  if (!layers || layers->is_null()) return;
  std::vector<bool> has_entry(static_cast<std::size_t>(c.num_hidden_layers), false);
  bool is_alike = layers->is_object() && !layers->empty();
  for (const auto& [name, sizes] : layers->items()) {
    const bool is_index = !name.empty() && name.size() < 6 && name.find_first_not_of("0123456789") == std::string::npos;
    const std::size_t index = is_index ? std::stoul(name) : has_entry.size();
    is_alike = is_alike && index < has_entry.size() && sizes.is_object() && sizes == *layers->begin();
    if (is_alike) has_entry[index] = true;
  }
  for (std::size_t i = 0; i < has_entry.size(); ++i) is_alike = is_alike && has_entry[i] != c.slides(i);
  if (!is_alike)
    return reader.fail_found("per_layer_config", "not-modelled",
                             "expected the same sizes for each layer of full attention, and none for others");
  ConfigReader entries = reader.object("per_layer_config");
  ConfigReader sizes = entries.object(layers->begin().key().c_str());
  c.global_head_dim = sizes.integer("head_dim", c.head_dim);
  heads = sizes.integer("num_key_value_heads", c.num_key_value_heads);
  sizes.finish();
}

void read_global_heads(ConfigReader& reader, Gemma4TextConfig& c) {
  c.global_head_dim = reader.integer("global_head_dim", c.global_head_dim);
  c.attention_k_eq_v = reader.boolean("attention_k_eq_v", false);
  std::int64_t given = reader.optional_integer("num_global_key_value_heads").value_or(c.num_key_value_heads);
  read_per_layer_config(reader, c, given);
  c.num_global_key_value_heads = c.attention_k_eq_v ? given : c.num_key_value_heads;
  if (c.global_head_dim % 2 != 0)
    reader.fail_found("global_head_dim", "inconsistent", "rotary embeddings need an even size of heads");
  if (c.num_attention_heads % c.num_global_key_value_heads != 0)
    reader.fail_found("num_global_key_value_heads", "inconsistent",
                      "expected a divisor of num_attention_heads (" + std::to_string(c.num_attention_heads) + ")");
}

void read_per_layer_inputs(ConfigReader& reader, Gemma4TextConfig& c) {
  c.hidden_size_per_layer_input = reader.is_null("hidden_size_per_layer_input")
                                      ? 0
                                      : reader.integer("hidden_size_per_layer_input", 256, non_negative);
  c.vocab_size_per_layer_input = reader.integer("vocab_size_per_layer_input", c.vocab_size_per_layer_input);
  if (c.num_kv_shared_layers != 0 && c.hidden_size_per_layer_input == 0)  // _maybe_slice_kv_shared_inputs cuts them
    reader.fail_found("num_kv_shared_layers", "inconsistent",
                      "the class shares keys and values only where layers have embeddings of their own: expected a "
                      "hidden_size_per_layer_input, or 0 layers");
}

void read_shared_layers(ConfigReader& reader, Gemma4TextConfig& c) {
  c.num_kv_shared_layers = reader.integer("num_kv_shared_layers", 0, {0, c.num_hidden_layers});
  c.use_double_wide_mlp = reader.boolean("use_double_wide_mlp", false);
  if (c.num_kv_shared_layers == 0) return;
  for (std::size_t i = c.first_shared_layer(); i < static_cast<std::size_t>(c.num_hidden_layers); ++i) {
    bool has_source = false;
    for (std::size_t k = 0; k < c.first_shared_layer(); ++k) has_source |= c.slides(k) == c.slides(i);
    if (!has_source)
      return reader.fail_found("num_kv_shared_layers", "inconsistent",
                               "layer " + std::to_string(i) + " has none of its type before these to take keys from");
  }
}

}  // namespace

bool Gemma4TextConfig::stores(std::size_t layer) const {
  return num_kv_shared_layers != 0 && layer < first_shared_layer() &&
         is_last_before(*this, layer, first_shared_layer());
}

bool Gemma4TextConfig::is_last_of_its_type(std::size_t layer) const {
  return is_last_before(*this, layer, static_cast<std::size_t>(num_hidden_layers));
}

namespace {

/// What both classes have.
Gemma4TextConfig read_gemma4_common(ConfigReader& reader, const LlamaClassNames& names, std::int64_t usual_window) {
  TextConfig d;
  d.names = &names;
  d.vocab_size = 262'144;
  d.hidden_size = 2304;
  d.intermediate_size = 9216;
  d.num_hidden_layers = 30;
  d.num_attention_heads = 8;
  d.num_key_value_heads = 4;
  d.max_position_embeddings = 131'072;
  d.hidden_act = Activation::gelu_tanh;
  d.tie_word_embeddings = d.has_pad_token = true;
  Gemma4TextConfig c;
  static_cast<TextConfig&>(c) = read_text_sizes(reader, d, 256);
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  if (reader.has("use_bidirectional_attention") && reader.text("use_bidirectional_attention", "") == "all")
    reader.fail_found("use_bidirectional_attention", "not-modelled", "attention to both sides is not supported yet");
  c.hidden_act = reader.activation("hidden_activation", d.hidden_act);
  c.softcaps_logits = reader.has("final_logit_softcapping");
  reader.ignore({"final_logit_softcapping"});
  check_llama_heads(reader, c);
  read_mixed_layers(reader, c, 6, usual_window);
  if (!c.layer_windows.empty()) c.layer_windows.back() = 0;  // __post_init__ forces it
  read_global_heads(reader, c);
  read_shared_layers(reader, c);
  return c;
}

}  // namespace

Gemma4TextConfig read_gemma4_unified_text_config(ConfigReader& reader) {
  Gemma4TextConfig c = read_gemma4_common(reader, kGemma4UnifiedNames, 1024);
  c.hidden_size_per_layer_input = 0;
  reader.ignore({"enable_moe_block", "hidden_size_per_layer_input", "moe_intermediate_size", "num_experts",
                 "top_k_experts", "vocab_size_per_layer_input"});  // the class has none of these
  return c;
}

Gemma4TextConfig read_gemma4_text_config(ConfigReader& reader) {
  Gemma4TextConfig c = read_gemma4_common(reader, kGemma4Names, 512);
  read_per_layer_inputs(reader, c);
  reader.refuse("output_router_logits", "logits of routers among the outputs are not supported yet: set it to false");
  if (reader.boolean("enable_moe_block", false)) {
    c.experts.num_experts = reader.integer("num_experts", 0);
    c.experts.num_experts_per_tok = reader.integer("top_k_experts", 0);
    c.experts.intermediate_size = reader.integer("moe_intermediate_size", 0);
    for (const char* key : {"num_experts", "top_k_experts", "moe_intermediate_size"})
      if (!reader.has(key))
        reader.fail(key, "missing", "found nothing; expected a number, as enable_moe_block is true");
    if (c.experts.num_experts_per_tok > c.experts.num_experts)
      reader.fail_found(
          "top_k_experts", "inconsistent",
          "expected at most as many as there are experts (" + std::to_string(c.experts.num_experts) + ")");
  } else {
    reader.ignore({"num_experts", "top_k_experts", "moe_intermediate_size"});
  }
  return c;
}

}  // namespace oometer
