#include <algorithm>
#include <string>

#include "config/reader.h"
#include "models/sizes.h"
#include "models/t5/t5.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"t5", kT5ClassNames.generation}};
constexpr const char* kBlocks[] = {kT5ClassNames.block};

}  // namespace

FamilyConfig read_t5_config(ConfigReader& reader, const T5ClassNames& names) {
  T5Config c;
  const bool is_t5 = names.variant == T5Variant::t5, is_umt5 = names.variant == T5Variant::umt5;
  c.names = &names;
  c.class_name = names.generation;
  c.head = EncoderHead::masked_lm;  // a label for each token
  c.vocab_size = reader.integer("vocab_size", is_t5 ? 32'128 : 250'112);
  c.hidden_size = reader.integer("d_model", 512);
  c.d_kv = reader.integer("d_kv", 64);
  c.intermediate_size = reader.integer("d_ff", is_t5 ? 2048 : 1024);
  c.num_hidden_layers = reader.integer("num_layers", is_t5 ? 6 : 8, layer_count);
  c.num_decoder_layers = reader.optional_integer("num_decoder_layers", layer_count).value_or(c.num_hidden_layers);
  c.num_attention_heads = reader.integer("num_heads", is_t5 ? 8 : 6);
  c.relative_attention_num_buckets = reader.integer("relative_attention_num_buckets", 32);
  c.dropout_rate = reader.number("dropout_rate", c.dropout_rate, 0, 1);
  c.max_position_embeddings = 1 << 20;  // there is no longest text
  const std::string projection = reader.text("feed_forward_proj", is_t5 ? "relu" : "gated-gelu");
  c.is_gated_act = projection.starts_with("gated-");
  if (projection == "gated-gelu")
    c.hidden_act = Activation::gelu_new;
  else if (projection == "gated-silu")
    c.hidden_act = Activation::silu;
  else if (projection == "relu" || projection == "gated-relu")
    c.hidden_act = Activation::relu;
  else
    reader.fail_found("feed_forward_proj", "not-modelled",
                      "expected \"relu\", \"gated-gelu\", \"gated-silu\" or \"gated-relu\"");
  // T5Config.__post_init__ would tie the head all the same, but checkpoints with false have one of their own, which
  // PreTrainedModel.tie_weights then leaves as it is.
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", true);
  c.scale_decoder_outputs = is_umt5 || (is_t5 && c.tie_word_embeddings);
  if (is_t5 && !reader.has("decoder_start_token_id"))
    reader.fail("decoder_start_token_id", "missing", "found nothing; the class needs it to make the decoder's inputs");
  reader.ignore({"relative_attention_max_distance", "layer_norm_epsilon", "initializer_factor", "is_encoder_decoder",
                 "decoder_start_token_id", "pad_token_id", "classifier_dropout", "n_positions", "output_past",
                 "task_specific_params", "tokenizer_class", "dense_act_fn", "is_gated_act"});
  return c;
}

ModelTraits t5_traits(const FamilyConfig& config) {
  const auto& c = config.as<T5Config>();
  ModelTraits t = encoder_traits(c, "");
  t.allow({Feature::zero3});
  t.takes_targets = true;
  t.ties_embeddings = c.tie_word_embeddings;
  if (c.names->variant == T5Variant::t5) {
    t.allow({Feature::fsdp, Feature::quantization});
    t.no_split_modules = {c.names->block};
  }
  // peft 0.21, utils/constants.py
  t.lora_targets = {"q", "v"};
  t.ia3_targets = {"k", "v", c.names->variant == T5Variant::t5 ? "wo" : "wi_1"};
  if (c.names->variant == T5Variant::t5) t.ia3_feedforward = {"wo"};
  t.ln_tuning_targets = {"layer_norm", "final_layer_norm"};
  if (c.names->variant != T5Variant::umt5)
    t.refuse(Feature::checkpointing, "not-modelled",
             "checkpoints of blocks that pass on their position bias are not supported yet: expected \"none\"");
  t.refuse(Feature::flash_attention_2, "inconsistent", "the class has attention of its own: expected eager or sdpa");
  return t;
}

double largest_tensor_of_t5(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<T5Config>();
  return std::max(largest_tensor_of_encoder(c, data),
                  bytes_of({data.micro_batch_size, longest_text(data), c.inner_dim()}));
}

namespace family {
extern const Family t5 = t5_family<kT5ClassNames>(kClasses, kBlocks);
}  // namespace family

}  // namespace oometer
