#include <algorithm>
#include <string>

#include "config/reader.h"
#include "models/bart/bart.h"
#include "models/kit/layerdrop.h"
#include "models/sizes.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"bart", kBart.generation}};
constexpr const char* kBlocks[] = {kBart.encoder_layer, kBart.decoder_layer};

}  // namespace

FamilyConfig read_bart_config(ConfigReader& reader, const BartClassNames& names) {
  BartConfig c;
  c.names = &names;
  c.class_name = names.generation;
  c.head = EncoderHead::masked_lm;  // a label for each token
  const bool is_m2m_100 = names.variant == BartVariant::m2m_100;
  c.vocab_size = reader.integer("vocab_size", names.variant == BartVariant::marian ? 58'101
                                              : is_m2m_100                         ? 128'112
                                                                                   : names.vocab_size);
  c.hidden_size = reader.integer("d_model", names.d_model);
  c.max_position_embeddings = reader.integer("max_position_embeddings", names.max_position_embeddings);
  c.num_hidden_layers = reader.integer("encoder_layers", names.encoder_layers, layer_count);
  c.num_attention_heads = reader.integer("encoder_attention_heads", names.heads);
  c.intermediate_size = reader.integer("encoder_ffn_dim", names.ffn_dim);
  c.decoder_layers = reader.integer("decoder_layers", names.decoder_layers, layer_count);
  c.decoder_attention_heads = reader.integer("decoder_attention_heads", names.heads);
  c.decoder_ffn_dim = reader.integer("decoder_ffn_dim", names.ffn_dim);
  c.hidden_act = reader.activation("activation_function", is_m2m_100 ? Activation::relu : c.hidden_act);
  c.dropout = reader.number("dropout", c.dropout, 0, 1);
  c.attention_dropout = reader.number("attention_dropout", is_m2m_100 ? 0.1 : 0, 0, 1);
  c.activation_dropout = reader.number("activation_dropout", 0, 0, 1);
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", true);
  if (names.variant == BartVariant::marian) {
    if (!reader.boolean("share_encoder_decoder_embeddings", true) ||
        reader.optional_integer("decoder_vocab_size").value_or(c.vocab_size) != c.vocab_size)
      reader.fail("share_encoder_decoder_embeddings", "not-modelled",
                  "found embeddings of their own for encoder and decoder, which are not supported yet");
    reader.ignore({"bad_words_ids", "add_bias_logits", "static_position_embeddings", "do_blenderbot_90_layernorm"});
  }
  if (!c.tie_word_embeddings)
    reader.fail_found("tie_word_embeddings", "not-modelled",
                      "embeddings of their own for encoder, decoder and head are not supported yet: expected true");
  for (const char* key : {"encoder_layerdrop", "decoder_layerdrop"}) read_layerdrop(reader, key, is_m2m_100 ? 0.05 : 0);
  check_encoder_heads(reader, c, "d_model");
  if (c.hidden_size % c.decoder_attention_heads != 0)
    reader.fail_found(
        "d_model", "inconsistent",
        "expected a multiple of decoder_attention_heads (" + std::to_string(c.decoder_attention_heads) + ")");
  if (is_m2m_100 && c.hidden_size % 2 == 1)
    reader.fail_found("d_model", "not-modelled", "an odd width of positions is not supported yet");
  reader.ignore({"scale_embedding",
                 "classifier_dropout",
                 "init_std",
                 "num_hidden_layers",
                 "is_encoder_decoder",
                 "forced_eos_token_id",
                 "forced_bos_token_id",
                 "decoder_start_token_id",
                 "pad_token_id",
                 "id2label",
                 "label2id",
                 "num_labels",
                 "task_specific_params",
                 "normalize_before",
                 "normalize_embedding",
                 "add_final_layer_norm",
                 "add_bias_logits",
                 "classif_dropout",
                 "static_position_embeddings",
                 "extra_pos_embeddings",
                 "num_beams",
                 "early_stopping",
                 "no_repeat_ngram_size",
                 "max_length",
                 "min_length",
                 "length_penalty",
                 "prefix",
                 "save_step",
                 "output_past",
                 "force_bos_token_to_be_generated",
                 "encoder_no_repeat_ngram_size",
                 "tokenizer_class",
                 "gradient_checkpointing"});
  return c;
}

ModelTraits bart_traits(const FamilyConfig& config) {
  const auto& c = config.as<BartConfig>();
  ModelTraits t = encoder_traits(c, "model");
  if (c.names->variant != BartVariant::blenderbot_small) t.allow({Feature::zero3});
  if (c.names->variant != BartVariant::marian) t.allow({Feature::quantization});
  t.takes_targets = true;
  t.ties_embeddings = true;
  if (c.names->variant == BartVariant::bart || c.names->variant == BartVariant::mbart)  // TRL's trainers do run
    t.refuse(Feature::chunked_cross_entropy, "not-modelled", "this is not supported yet with " + t.class_name);
  // peft 0.21, utils/constants.py
  if (c.names->variant == BartVariant::bart) {
    t.allow({Feature::fsdp});
    t.no_split_modules = {c.names->encoder_layer, c.names->decoder_layer};
    t.lora_targets = {"q_proj", "v_proj"};
    t.ia3_targets = {"q_proj", "v_proj", "fc2"};
    t.ia3_feedforward = {"fc2"};
    t.ln_tuning_targets = {"self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"};
  }
  return t;
}

double largest_tensor_of_bart(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<BartConfig>();
  return std::max(largest_tensor_of_encoder(c, data),
                  bytes_of_layer(data.micro_batch_size, longest_text(data), c.hidden_size, c.decoder_ffn_dim,
                                 c.decoder_attention_heads));
}

namespace family {
extern const Family bart = bart_family<kBart>(kClasses, kBlocks);
}  // namespace family

}  // namespace oometer
