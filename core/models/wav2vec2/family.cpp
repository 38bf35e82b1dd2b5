#include "models/family.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "config/reader.h"
#include "models/kit/encoder.h"
#include "models/kit/layerdrop.h"
#include "models/sizes.h"
#include "models/wav2vec2/wav2vec2.h"

namespace oometer {

namespace {

constexpr const Wav2Vec2ClassNames* kNamed[] = {&kWav2Vec2,     &kHubert,   &kWavLm,     &kUniSpeech,
                                                &kUniSpeechSat, &kWav2Vec2, &kUniSpeech, &kUniSpeechSat,
                                                &kHubert,       &kWavLm};  ///< as kClasses
constexpr ModelClass kClasses[] = {{"wav2vec2", "Wav2Vec2ForCTC"},
                                   {"hubert", "HubertForCTC"},
                                   {"wavlm", "WavLMForCTC"},
                                   {"unispeech", "UniSpeechForCTC"},
                                   {"unispeech-sat", "UniSpeechSatForCTC"},
                                   {"wav2vec2", "Wav2Vec2ForSequenceClassification"},
                                   {"unispeech", "UniSpeechForSequenceClassification"},
                                   {"unispeech-sat", "UniSpeechSatForSequenceClassification"},
                                   {"hubert", "HubertForSequenceClassification"},
                                   {"wavlm", "WavLMForSequenceClassification"}};
constexpr const char* kBlocks[] = {"Wav2Vec2EncoderLayer",
                                   "Wav2Vec2EncoderLayerStableLayerNorm",
                                   "Wav2Vec2NoLayerNormConvLayer",
                                   "Wav2Vec2LayerNormConvLayer",
                                   "Wav2Vec2GroupNormConvLayer",
                                   "HubertEncoderLayer",
                                   "HubertEncoderLayerStableLayerNorm",
                                   "HubertNoLayerNormConvLayer",
                                   "HubertLayerNormConvLayer",
                                   "HubertGroupNormConvLayer",
                                   "WavLMEncoderLayer",
                                   "WavLMEncoderLayerStableLayerNorm",
                                   "WavLMNoLayerNormConvLayer",
                                   "WavLMLayerNormConvLayer",
                                   "WavLMGroupNormConvLayer",
                                   "UniSpeechEncoderLayer",
                                   "UniSpeechEncoderLayerStableLayerNorm",
                                   "UniSpeechNoLayerNormConvLayer",
                                   "UniSpeechLayerNormConvLayer",
                                   "UniSpeechGroupNormConvLayer",
                                   "UniSpeechSatEncoderLayer",
                                   "UniSpeechSatEncoderLayerStableLayerNorm",
                                   "UniSpeechSatNoLayerNormConvLayer",
                                   "UniSpeechSatLayerNormConvLayer",
                                   "UniSpeechSatGroupNormConvLayer"};

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  Wav2Vec2Config c;
  c.names = kNamed[&of - kClasses];
  c.class_name = of.class_name;
  c.classifies = std::string_view(of.class_name).ends_with("ForSequenceClassification");
  if (c.classifies) {
    c.num_labels = read_num_labels(reader);
    c.classifier_proj_size = reader.integer("classifier_proj_size", c.classifier_proj_size);
    c.use_weighted_layer_sum = reader.boolean("use_weighted_layer_sum", false);
  }
  const bool is_hubert = c.names == &kHubert;
  c.vocab_size = reader.integer("vocab_size", c.vocab_size);
  c.hidden_size = reader.integer("hidden_size", c.hidden_size);
  c.num_hidden_layers = reader.integer("num_hidden_layers", c.num_hidden_layers, layer_count);
  c.num_attention_heads = reader.integer("num_attention_heads", c.num_attention_heads);
  c.intermediate_size = reader.integer("intermediate_size", c.intermediate_size);
  c.hidden_act = reader.activation("hidden_act", c.hidden_act);
  c.feat_extract_activation = reader.activation("feat_extract_activation", c.feat_extract_activation);
  c.hidden_dropout = reader.number("hidden_dropout", c.hidden_dropout, 0, 1);
  c.activation_dropout = reader.number("activation_dropout", c.activation_dropout, 0, 1);
  c.attention_dropout = reader.number("attention_dropout", c.attention_dropout, 0, 1);
  c.feat_proj_dropout = reader.number("feat_proj_dropout", c.feat_proj_dropout, 0, 1);
  c.final_dropout = reader.number("final_dropout", c.final_dropout, 0, 1);
  const std::string norm = reader.text("feat_extract_norm", "group");
  c.norms_layers = norm == "layer";
  if (norm != "layer" && norm != "group")
    reader.fail_found("feat_extract_norm", "unknown-choice", "expected group or layer");
  if (is_hubert) c.feat_proj_layer_norm = reader.boolean("feat_proj_layer_norm", true);
  const auto list = [&](const char* key, std::vector<std::int64_t> usual) {
    return reader.has(key) ? reader.integers(key, {1, 1 << 16}) : std::move(usual);
  };
  c.conv_dim = list("conv_dim", {512, 512, 512, 512, 512, 512, 512});
  c.conv_stride = list("conv_stride", {5, 2, 2, 2, 2, 2, 2});
  c.conv_kernel = list("conv_kernel", {10, 3, 3, 3, 3, 2, 2});
  if (c.conv_dim.empty() || c.conv_stride.size() != c.conv_dim.size() || c.conv_kernel.size() != c.conv_dim.size())
    reader.fail("conv_dim", "inconsistent", "expected as many as conv_stride and conv_kernel have, one or more");
  c.conv_bias = reader.boolean("conv_bias", false);
  c.num_conv_pos_embeddings = reader.integer("num_conv_pos_embeddings", c.num_conv_pos_embeddings);
  c.num_conv_pos_embedding_groups = reader.integer("num_conv_pos_embedding_groups", c.num_conv_pos_embedding_groups);
  c.do_stable_layer_norm = reader.boolean("do_stable_layer_norm", false);
  if (c.names->has_gated_attention) {
    c.num_buckets = reader.integer("num_buckets", c.num_buckets);
    reader.ignore({"max_bucket_distance"});
  }
  c.mask_time_prob = reader.number("mask_time_prob", c.mask_time_prob, 0, 1);
  c.mask_time_length = reader.integer("mask_time_length", c.mask_time_length);
  c.mask_time_min_masks = reader.integer("mask_time_min_masks", c.mask_time_min_masks, {0, 1 << 16});
  c.has_masked_spec_embed = c.mask_time_prob > 0 || c.names == &kUniSpeechSat;
  c.masks_states = reader.boolean("apply_spec_augment", true) && c.mask_time_prob > 0;
  if (reader.number("mask_feature_prob", 0, 0, 1) != 0)
    reader.fail_found("mask_feature_prob", "not-modelled", "masks over features are not supported yet: expected 0");
  read_layerdrop(reader, "layerdrop", 0.1);
  const std::string reduction = reader.text("ctc_loss_reduction", c.names == &kWav2Vec2 || is_hubert ? "sum" : "mean");
  c.ctc_mean = reduction == "mean";
  if (reduction != "mean" && reduction != "sum")
    reader.fail_found("ctc_loss_reduction", "not-modelled", "expected sum or mean");
  c.ctc_zero_infinity = reader.boolean("ctc_zero_infinity", false);
  if (reader.boolean("add_adapter", false))
    reader.fail_found("add_adapter", "not-modelled", "convolutions behind the encoder are not supported yet");
  if (reader.has("adapter_attn_dim") && !reader.is_null("adapter_attn_dim"))
    reader.fail_found("adapter_attn_dim", "not-modelled", "adapters of the class's own are not supported yet");
  if (reader.boolean("conv_pos_batch_norm", false))
    reader.fail_found("conv_pos_batch_norm", "not-modelled", "a batch norm of positions is not supported yet");
  if (c.hidden_size % c.num_attention_heads != 0 || c.hidden_size % c.num_conv_pos_embedding_groups != 0)
    reader.fail_found("hidden_size", "inconsistent",
                      "expected a multiple of num_attention_heads (" + std::to_string(c.num_attention_heads) +
                          ") and of num_conv_pos_embedding_groups (" + std::to_string(c.num_conv_pos_embedding_groups) +
                          ")");
  reader.ignore({"adapter_attn_dim",
                 "adapter_kernel_size",
                 "adapter_stride",
                 "num_adapter_layers",
                 "output_hidden_size",
                 "mask_feature_length",
                 "mask_feature_min_masks",
                 "num_codevectors_per_group",
                 "num_codevector_groups",
                 "contrastive_logits_temperature",
                 "num_negatives",
                 "codevector_dim",
                 "proj_codevector_dim",
                 "diversity_loss_weight",
                 "feat_quantizer_dropout",
                 "use_weighted_layer_sum",
                 "classifier_proj_size",
                 "tdnn_dim",
                 "tdnn_kernel",
                 "tdnn_dilation",
                 "xvector_output_dim",
                 "layer_norm_eps",
                 "initializer_range",
                 "pad_token_id",
                 "num_feat_extract_layers",
                 "num_ctc_classes",
                 "num_clusters",
                 "replace_prob",
                 "tokenizer_class",
                 "feature_grad_mult",
                 "gradient_checkpointing",
                 "mask_channel_length",
                 "mask_channel_min_space",
                 "mask_channel_other",
                 "mask_channel_prob",
                 "mask_channel_selection",
                 "mask_time_min_space",
                 "mask_time_other",
                 "mask_time_selection",
                 "apply_spec_augment",
                 "freeze_feat_extract_train",
                 "no_mask_channel_overlap",
                 "no_mask_time_overlap",
                 "do_stable_layer_norm",
                 "tokenizer_class"});
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_wav2vec2(context, config.as<Wav2Vec2Config>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<Wav2Vec2Config>();
  ModelTraits t = transformers_traits(c.class_name);
  t.takes_text = !c.classifies;  // its labels
  t.oldest_transformers = {5, 23, 0};
  t.min_audios = t.max_audios = 1;
  t.usual_audio_seconds = 15;
  t.convolutions = static_cast<std::int64_t>(c.conv_dim.size()) + 1;
  t.hidden_size = c.hidden_size;
  if (!c.classifies) t.default_sequence_length = 200;
  t.tower = c.names->base;
  // freeze_feature_encoder(): nothing in it asks for a gradient, nor does what it is given.
  t.finetune = {{"feature_extractor"}, {}, {"feature_extractor"}};
  t.has_idle_parts = c.has_masked_spec_embed && !c.masks_states;  // masked_spec_embed
  t.allow({Feature::finetune, Feature::flash_attention_2});
  for (const Feature feature :
       {Feature::zero3, Feature::fsdp, Feature::lengths, Feature::packing, Feature::quantization})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  t.refuse(Feature::chunked_cross_entropy, "inconsistent",
           "this is for models that predict the next token, and " + t.class_name + " is none");
  if (c.names->has_gated_attention)
    for (const Feature feature : {Feature::sdpa, Feature::flash_attention_2})
      t.refuse(feature, "inconsistent", "the class has attention of its own: expected eager");
  t.has_no_liger();
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<Wav2Vec2Config>();
  const std::int64_t batch = data.micro_batch_size, samples = Wav2Vec2Config::samples(data.audio_seconds),
                     states = std::max<std::int64_t>(c.states(samples), 1);
  const std::int64_t widest = *std::max_element(c.conv_dim.begin(), c.conv_dim.end()),
                     kernel = *std::max_element(c.conv_kernel.begin(), c.conv_kernel.end());
  return std::max({bytes_of_layer(batch, states, c.hidden_size, c.intermediate_size, c.num_attention_heads),
                   2 * bytes_of({batch, samples, widest}), 2 * bytes_of({samples, widest, kernel}),
                   bytes_of({widest, widest, kernel}), bytes_of({states, c.hidden_size, c.num_conv_pos_embeddings}),
                   bytes_of({c.hidden_size, c.hidden_size, c.num_conv_pos_embeddings}),
                   2 * bytes_of({batch, states, 2 * data.sequence_length + 1}),
                   2 * bytes_of({batch, states, c.vocab_size}),
                   bytes_of({c.hidden_size, std::max(c.vocab_size, widest)})});
}

AudioCount count_audio(const FamilyConfig& config, double seconds) {
  const auto& c = config.as<Wav2Vec2Config>();
  const std::int64_t samples = Wav2Vec2Config::samples(seconds);
  return {0, std::to_string(samples) + " samples at 16 kHz are " + std::to_string(c.states(samples)) +
                 " states of the encoder."};
}

}  // namespace

namespace family {
extern const Family wav2vec2{.classes = kClasses,
                             .blocks = kBlocks,
                             .read = read,
                             .build = build,
                             .traits = traits,
                             .largest_tensor = largest_tensor,
                             .count_audio = count_audio};
}  // namespace family

}  // namespace oometer
