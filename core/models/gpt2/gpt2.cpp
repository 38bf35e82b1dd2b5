#include "models/gpt2/gpt2.h"

#include <algorithm>
#include <string>

#include "config/reader.h"
#include "models/kit/positioned.h"

namespace oometer {

TextConfig read_gpt2_config(ConfigReader& reader, const LlamaClassNames& names, Activation usual_activation) {
  TextConfig c;
  c.names = &names;
  c.vocab_size = reader.integer("vocab_size", 50257);
  c.hidden_size = read_mapped(reader, "n_embd", "hidden_size", 768);
  c.num_hidden_layers = read_mapped(reader, "n_layer", "num_hidden_layers", 12, layer_count);
  c.num_attention_heads = c.num_key_value_heads = read_mapped(reader, "n_head", "num_attention_heads", 12);
  c.max_position_embeddings = read_mapped(reader, "n_positions", "max_position_embeddings", 1024);
  c.intermediate_size = reader.optional_integer("n_inner").value_or(4 * c.hidden_size);
  c.hidden_act = reader.activation("activation_function", usual_activation);
  c.residual_dropout = reader.number("resid_pdrop", 0.1, 0, 1);
  c.embedding_dropout = reader.number("embd_pdrop", 0.1, 0, 1);
  c.attention_dropout = reader.number("attn_pdrop", 0.1, 0, 1);
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", true);
  c.has_pad_token = reader.optional_integer("pad_token_id", {-c.vocab_size, c.vocab_size - 1}).has_value();
  reader.refuse("add_cross_attention", "attention to an encoder is not supported yet");
  reader.ignore({"layer_norm_epsilon", "scale_attn_weights", "summary_type", "summary_use_proj", "summary_activation",
                 "summary_proj_to_labels", "summary_first_dropout"});
  c.head_dim = std::max<std::int64_t>(1, c.hidden_size / c.num_attention_heads);
  if (c.hidden_size % c.num_attention_heads != 0)
    reader.fail_found(reader.has("hidden_size") ? "hidden_size" : "n_embd", "inconsistent",
                      "expected a multiple of the number of heads (" + std::to_string(c.num_attention_heads) + ")");
  return c;
}

ModelTraits gpt2_traits(const FamilyConfig& config) {
  ModelTraits t = text_traits(config.as<TextConfig>());
  t.lora_targets = {"c_attn"};
  t.ia3_targets = {"c_attn", "mlp.c_proj"};
  t.ia3_feedforward = {"mlp.c_proj"};
  t.ln_tuning_targets = {"ln_1", "ln_2", "ln_f"};
  t.language = "transformer";
  t.max_sequence_length = t.text.max_position_embeddings;
  allow_compared(t, {Feature::fsdp});
  return t;
}

}  // namespace oometer
