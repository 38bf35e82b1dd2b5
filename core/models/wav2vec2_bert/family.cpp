#include "models/family.h"

#include <algorithm>
#include <string>

#include "config/reader.h"
#include "models/kit/layerdrop.h"
#include "models/sizes.h"
#include "models/wav2vec2_bert/wav2vec2_bert.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"wav2vec2-bert", "Wav2Vec2BertForCTC"}};
constexpr const char* kBlocks[] = {"Wav2Vec2BertEncoderLayer"};

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) {
  Wav2Vec2BertConfig c;
  if (!reader.has("vocab_size")) reader.fail("vocab_size", "missing", "found nothing; the class has no default");
  c.vocab_size = reader.integer("vocab_size", 32);
  c.hidden_size = reader.integer("hidden_size", c.hidden_size);
  c.num_hidden_layers = reader.integer("num_hidden_layers", c.num_hidden_layers, layer_count);
  c.num_attention_heads = reader.integer("num_attention_heads", c.num_attention_heads);
  c.intermediate_size = reader.integer("intermediate_size", c.intermediate_size);
  c.feature_projection_input_dim = reader.integer("feature_projection_input_dim", c.feature_projection_input_dim);
  c.hidden_act = reader.activation("hidden_act", c.hidden_act);
  c.hidden_dropout = reader.number("hidden_dropout", c.hidden_dropout, 0, 1);
  c.activation_dropout = reader.number("activation_dropout", c.activation_dropout, 0, 1);
  c.attention_dropout = reader.number("attention_dropout", c.attention_dropout, 0, 1);
  c.feat_proj_dropout = reader.number("feat_proj_dropout", c.feat_proj_dropout, 0, 1);
  c.final_dropout = reader.number("final_dropout", c.final_dropout, 0, 1);
  c.conformer_conv_dropout = reader.number("conformer_conv_dropout", c.conformer_conv_dropout, 0, 1);
  if (reader.text("position_embeddings_type", "relative_key") != "relative_key")
    reader.fail_found("position_embeddings_type", "not-modelled",
                      "others are not supported yet: expected relative_key");
  c.left_max_position_embeddings = reader.integer("left_max_position_embeddings", c.left_max_position_embeddings);
  c.right_max_position_embeddings = reader.integer("right_max_position_embeddings", c.right_max_position_embeddings);
  c.conv_depthwise_kernel_size = reader.integer("conv_depthwise_kernel_size", c.conv_depthwise_kernel_size);
  if (c.conv_depthwise_kernel_size % 2 == 0)
    reader.fail_found("conv_depthwise_kernel_size", "inconsistent", "expected an odd number");
  c.mask_time_prob = reader.number("mask_time_prob", c.mask_time_prob, 0, 1);
  c.mask_time_length = reader.integer("mask_time_length", c.mask_time_length);
  c.mask_time_min_masks = reader.integer("mask_time_min_masks", c.mask_time_min_masks, {0, 1 << 16});
  c.has_masked_spec_embed = c.mask_time_prob > 0;
  c.masks_states = reader.boolean("apply_spec_augment", true) && c.mask_time_prob > 0;
  if (reader.number("mask_feature_prob", 0, 0, 1) != 0)
    reader.fail_found("mask_feature_prob", "not-modelled", "masks over features are not supported yet: expected 0");
  read_layerdrop(reader, "layerdrop", 0.1);
  const std::string reduction = reader.text("ctc_loss_reduction", "sum");
  c.ctc_mean = reduction == "mean";
  if (reduction != "mean" && reduction != "sum")
    reader.fail_found("ctc_loss_reduction", "not-modelled", "expected sum or mean");
  c.ctc_zero_infinity = reader.boolean("ctc_zero_infinity", false);
  if (reader.boolean("add_adapter", false))
    reader.fail_found("add_adapter", "not-modelled", "convolutions behind the encoder are not supported yet");
  if (c.hidden_size % c.num_attention_heads != 0)
    reader.fail_found("hidden_size", "inconsistent",
                      "expected a multiple of num_attention_heads (" + std::to_string(c.num_attention_heads) + ")");
  reader.ignore({"adapter_act",
                 "adapter_kernel_size",
                 "adapter_stride",
                 "num_adapter_layers",
                 "output_hidden_size",
                 "use_intermediate_ffn_before_adapter",
                 "rotary_embedding_base",
                 "max_source_positions",
                 "mask_feature_length",
                 "mask_feature_min_masks",
                 "use_weighted_layer_sum",
                 "classifier_proj_size",
                 "tdnn_dim",
                 "tdnn_kernel",
                 "tdnn_dilation",
                 "xvector_output_dim",
                 "layer_norm_eps",
                 "initializer_range",
                 "pad_token_id",
                 "tokenizer_class"});
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_wav2vec2_bert(context, config.as<Wav2Vec2BertConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<Wav2Vec2BertConfig>();
  ModelTraits t = transformers_traits("Wav2Vec2BertForCTC");
  t.takes_text = true;  // its labels
  t.oldest_transformers = {5, 23, 0};
  t.min_audios = t.max_audios = 1;
  t.usual_audio_seconds = 15;
  t.convolutions = 3;
  t.hidden_size = c.hidden_size;
  t.default_sequence_length = 200;
  t.tower = "wav2vec2_bert";
  for (const Feature feature :
       {Feature::zero3, Feature::fsdp, Feature::lengths, Feature::packing, Feature::quantization})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  t.refuse(Feature::chunked_cross_entropy, "inconsistent",
           "this is for models that predict the next token, and " + t.class_name + " is none");
  t.refuse(Feature::flash_attention_2, "inconsistent", "the class has no flash attention: expected sdpa or eager");
  t.has_no_liger();
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<Wav2Vec2BertConfig>();
  const std::int64_t batch = data.micro_batch_size,
                     states = std::max<std::int64_t>(Wav2Vec2BertConfig::states(data.audio_seconds), 1);
  return std::max({bytes_of_layer(batch, states, c.hidden_size, c.intermediate_size, c.num_attention_heads),
                   bytes_of({states, states, std::max<std::int64_t>(c.head_dim(), 4)}),
                   bytes_of({batch, 2 * c.hidden_size, states + c.conv_depthwise_kernel_size}),
                   bytes_of({batch, states, c.feature_projection_input_dim}),
                   2 * bytes_of({batch, states, 2 * data.sequence_length + 1}),
                   2 * bytes_of({batch, states, c.vocab_size}), bytes_of({c.hidden_size, 2 * c.hidden_size}),
                   bytes_of({c.hidden_size, std::max(c.vocab_size, c.feature_projection_input_dim)})});
}

AudioCount count_audio(const FamilyConfig&, double seconds) {
  return {0, std::to_string(Wav2Vec2BertConfig::frames(seconds)) + " frames of 25 ms, one each 10 ms, are " +
                 std::to_string(Wav2Vec2BertConfig::states(seconds)) + " states of the encoder, two a state."};
}

}  // namespace

namespace family {
extern const Family wav2vec2_bert{.classes = kClasses,
                                  .blocks = kBlocks,
                                  .read = read,
                                  .build = build,
                                  .traits = traits,
                                  .largest_tensor = largest_tensor,
                                  .count_audio = count_audio};
}  // namespace family

}  // namespace oometer
