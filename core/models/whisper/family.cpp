#include "models/family.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "config/reader.h"
#include "models/kit/layerdrop.h"
#include "models/sizes.h"
#include "models/whisper/ladder.h"
#include "models/whisper/reversible.h"

namespace oometer {

void read_whisper_encoder(ConfigReader& reader, WhisperConfig& c) {
  c.num_mel_bins = reader.integer("num_mel_bins", c.num_mel_bins);
  c.max_source_positions = reader.integer("max_source_positions", c.max_source_positions);
  c.hidden_size = reader.integer("d_model", c.hidden_size);
  c.num_hidden_layers = reader.integer("encoder_layers", c.num_hidden_layers, layer_count);
  c.num_attention_heads = reader.integer("encoder_attention_heads", c.num_attention_heads);
  c.intermediate_size = reader.integer("encoder_ffn_dim", c.intermediate_size);
  c.hidden_act = reader.activation("activation_function", Activation::gelu);
  c.dropout = reader.number("dropout", 0, 0, 1);
  c.attention_dropout = reader.number("attention_dropout", 0, 0, 1);
  c.activation_dropout = reader.number("activation_dropout", 0, 0, 1);
  read_layerdrop(reader, "encoder_layerdrop");
  check_encoder_heads(reader, c, "d_model");
}

WhisperConfig read_whisper_config(ConfigReader& reader) {
  WhisperConfig c;
  c.class_name = "WhisperForConditionalGeneration";
  c.head = EncoderHead::masked_lm;  // a label for each token
  c.hidden_size = 384;
  c.num_hidden_layers = 4;
  c.num_attention_heads = 6;
  c.intermediate_size = 1536;
  read_whisper_encoder(reader, c);
  c.vocab_size = reader.integer("vocab_size", 51'865);
  c.max_position_embeddings = reader.integer("max_target_positions", 448);
  c.decoder_layers = reader.integer("decoder_layers", c.decoder_layers, layer_count);
  c.decoder_attention_heads = reader.integer("decoder_attention_heads", c.decoder_attention_heads);
  c.decoder_ffn_dim = reader.integer("decoder_ffn_dim", c.decoder_ffn_dim);
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", true);
  read_layerdrop(reader, "decoder_layerdrop");
  if (reader.boolean("apply_spec_augment", false))
    reader.fail_found("apply_spec_augment", "not-modelled",
                      "masks over time and frequency are not supported yet: expected false");
  if (c.hidden_size % c.decoder_attention_heads != 0)
    reader.fail_found(
        "d_model", "inconsistent",
        "expected a multiple of decoder_attention_heads (" + std::to_string(c.decoder_attention_heads) + ")");
  reader.ignore({"mask_time_prob",        "mask_time_length",       "mask_time_min_masks", "mask_feature_prob",
                 "mask_feature_length",   "mask_feature_min_masks", "scale_embedding",     "init_std",
                 "num_hidden_layers",     "is_encoder_decoder",     "forced_decoder_ids",  "decoder_start_token_id",
                 "begin_suppress_tokens", "suppress_tokens",        "max_length",          "use_weighted_layer_sum",
                 "classifier_proj_size",  "median_filter_width",    "alignment_heads",     "pad_token_id"});
  return c;
}

double largest_tensor_of_whisper_encoder(const WhisperConfig& c, std::int64_t audios) {
  return std::max(
      {bytes_of_layer(audios, c.max_source_positions, c.hidden_size, c.intermediate_size, c.num_attention_heads),
       bytes_of({audios, c.frames(), std::max(c.hidden_size, c.num_mel_bins)}),
       bytes_of({3 * c.hidden_size, std::max({c.hidden_size, c.num_mel_bins, c.max_source_positions})})});
}

namespace {

constexpr ModelClass kClasses[] = {{"whisper", "WhisperForConditionalGeneration"},
                                   {"whisper", "WhisperForAudioClassification"}};
constexpr const char* kBlocks[] = {"WhisperEncoderLayer", "WhisperDecoderLayer"};

/// MEFT's fields, as its authors' code has them in a config (BaohaoLiao/mefts, run_glue.py).
void read_reversible(ConfigReader& reader, WhisperConfig& c) {
  using Reversible = WhisperConfig::Reversible;
  if (!reader.has("f_arch")) return;
  const std::string f_arch = reader.text("f_arch", "layer");
  if (f_arch == "attn")
    return reader.fail_found("f_arch", "not-modelled",
                             "MEFT3 is not supported yet: expected \"layer\" (MEFT1) or \"adapter\" (MEFT2)");
  if (f_arch != "layer" && f_arch != "adapter")
    return reader.fail_found("f_arch", "out-of-range", "expected \"layer\" (MEFT1) or \"adapter\" (MEFT2)");
  c.f_arch = f_arch == "layer" ? Reversible::layer : Reversible::adapter;
  c.adapter_bottleneck_dim = reader.integer("adapter_bottleneck_dim", 8);
  if (reader.boolean("layernorm_in_adapter", false))
    reader.fail_found("layernorm_in_adapter", "not-modelled",
                      "norms in adapters are not supported yet: expected false");
  reader.refuse("num_rev_layers", "not supported yet: all layers are reversible");
  reader.ignore({"x1_factor", "x2_factor", "freeze_irreversible_layers"});
  reader.findings().assumptions.emplace_back(kMeftAssumption);
}

/// Beside which of so many layers the side network has one: all, where nothing says it.
std::vector<std::int64_t> read_side_layers(ConfigReader& reader, const char* key, std::int64_t layers) {
  if (reader.has(key)) return reader.integers(key, {0, layers - 1});
  std::vector<std::int64_t> all(static_cast<std::size_t>(layers));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

/// Ladder Side Tuning's fields, as its authors' code has them in a config (ylsung/Ladder-Side-Tuning, run_seq2seq.py).
void read_ladder(ConfigReader& reader, WhisperConfig& c) {
  if (!reader.has("task_reduction_factor")) return;
  WhisperConfig::Ladder& ladder = c.ladder;
  ladder.task_reduction_factor = reader.integer("task_reduction_factor", 0);
  if (!reader.ok()) return;
  for (const std::int64_t heads : {c.num_attention_heads, c.decoder_attention_heads})
    if (c.side_size() % heads != 0 || c.side_size() == 0)
      return reader.fail_found("task_reduction_factor", "inconsistent",
                               "expected a factor that leaves the side network a width that " + std::to_string(heads) +
                                   " attention heads can share: d_model is " + std::to_string(c.hidden_size));
  if (std::min(c.intermediate_size, c.decoder_ffn_dim) < ladder.task_reduction_factor)
    return reader.fail_found("task_reduction_factor", "inconsistent",
                             "expected at most encoder_ffn_dim and decoder_ffn_dim");
  ladder.encoder_layers = read_side_layers(reader, "encoder_side_layers", c.num_hidden_layers);
  ladder.decoder_layers = read_side_layers(reader, "decoder_side_layers", c.decoder_layers);
  ladder.has_bias = reader.boolean("add_bias_sampling", true);
  ladder.merges_last = reader.boolean("merge_last", false);
  const std::string use_gate = reader.text("use_gate", "learnable");
  ladder.is_gated = use_gate == "learnable";
  if (use_gate != "learnable" && use_gate != "none")
    reader.fail_found("use_gate", "not-modelled",
                      "gates on a schedule are not supported yet: expected \"learnable\" or \"none\"");
  for (const char* key : {"add_residual_after", "side_downsample_pool", "lambda_distill"})
    reader.refuse(key, "not supported yet with a side network (task_reduction_factor)");
  if (c.f_arch != WhisperConfig::Reversible::none)
    reader.fail("f_arch", "inconsistent",
                "layers are reversible (f_arch) or have a side network (task_reduction_factor), not both");
  reader.ignore({"gate_T", "gate_alpha", "load_side_pretrained_weights", "create_side_lm"});
  reader.findings().assumptions.emplace_back(kLadderAssumption);
}

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  WhisperConfig c = read_whisper_config(reader);
  if (&of == &kClasses[1]) {
    c.class_name = of.class_name;
    c.head = EncoderHead::sequence_classification;
    c.num_labels = read_num_labels(reader);
    c.classifier_proj_size = reader.integer("classifier_proj_size", c.classifier_proj_size);
    if (reader.boolean("use_weighted_layer_sum", false))
      reader.fail_found("use_weighted_layer_sum", "not-modelled",
                        "a weighted sum of all layers is not supported yet: expected false");
    return c;
  }
  read_reversible(reader, c);
  read_ladder(reader, c);
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_whisper(context, config.as<WhisperConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<WhisperConfig>();
  ModelTraits t = encoder_traits(c, "model");
  t.ties_embeddings = c.tie_word_embeddings;
  t.min_audios = t.max_audios = 1;
  t.usual_audio_seconds = t.max_audio_seconds = c.window_seconds();
  t.audio_why = "the encoder's window";
  t.convolutions = 2;
  if (c.head == EncoderHead::sequence_classification) {
    t.takes_text = t.ties_embeddings = false;
    t.default_sequence_length = t.max_sequence_length = 0;
    t.language = "";
    t.tower = "encoder";
    t.refuse(Feature::lengths, "not-modelled", "this is not supported yet with " + t.class_name);
    return t;
  }
  t.allow({Feature::quantization});
  if (c.f_arch != WhisperConfig::Reversible::none)
    for (const Feature feature : {Feature::adapters, Feature::checkpointing, Feature::quantization, Feature::deepspeed,
                                  Feature::zero3, Feature::fsdp, Feature::inference})
      t.refuse(feature, "not-modelled", "this is not supported yet with reversible layers (f_arch)");
  if (!c.ladder.task_reduction_factor) return t;
  const auto is_beside_all = [](const std::vector<std::int64_t>& layers, std::int64_t all) {
    return static_cast<std::int64_t>(layers.size()) == all;
  };
  // Gates of layers that have no side layer, and the last norm of a decoder whose states nobody takes.
  t.has_idle_parts = !c.ladder.merges_last || !is_beside_all(c.ladder.encoder_layers, c.num_hidden_layers) ||
                     !is_beside_all(c.ladder.decoder_layers, c.decoder_layers);
  for (const Feature feature : {Feature::adapters, Feature::checkpointing, Feature::quantization, Feature::deepspeed,
                                Feature::zero3, Feature::fsdp, Feature::inference})
    t.refuse(feature, "not-modelled", "this is not supported yet with a side network (task_reduction_factor)");
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<WhisperConfig>();
  return std::max(
      {largest_tensor_of_whisper_encoder(c, data.micro_batch_size), largest_tensor_of_encoder(c, data),
       bytes_of_layer(data.micro_batch_size, data.sequence_length, c.hidden_size, c.decoder_ffn_dim,
                      c.decoder_attention_heads),
       bytes_of({data.micro_batch_size, c.decoder_attention_heads, data.sequence_length, c.max_source_positions})});
}

/// WhisperFeatureExtractor pads whatever it gets to the window.
AudioCount count_audio(const FamilyConfig& config, double) {
  const auto& c = config.as<WhisperConfig>();
  return {0, "Audio of any length up to " + std::to_string(c.frames() / 100) +
                 " s is padded to the encoder's window: " + std::to_string(c.frames()) + " frames of " +
                 std::to_string(c.num_mel_bins) + " mel bins, " + std::to_string(c.max_source_positions) +
                 " states that the decoder sees."};
}

}  // namespace

namespace family {
extern const Family whisper{.classes = kClasses,
                            .blocks = kBlocks,
                            .read = read,
                            .build = build,
                            .traits = traits,
                            .largest_tensor = largest_tensor,
                            .count_audio = count_audio};
}  // namespace family

}  // namespace oometer
