#include "models/family.h"

#include <algorithm>
#include <string>

#include "config/reader.h"
#include "models/clap/clap.h"
#include "models/sizes.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"clap", "ClapModel"}};
constexpr ModelClass kText{"clap_text_model", "ClapTextModel"};
constexpr BertClassNames kNames{.base = "text_model",
                                .model = "ClapTextModel",
                                .embeddings = "ClapTextEmbeddings",
                                .encoder = "ClapTextEncoder",
                                .layer = "ClapTextLayer",
                                .attention = "ClapTextAttention",
                                .self_attention = "ClapTextSelfAttention",
                                .self_output = "ClapTextSelfOutput",
                                .intermediate = "ClapTextIntermediate",
                                .output = "ClapTextOutput",
                                .pooler = "ClapTextPooler",
                                .masked_lm = "",
                                .sequence_classification = "",
                                .token_classification = "",
                                .is_roberta = true,
                                .vocab_size = 50265,
                                .pad_token_id = 1,
                                .max_position_embeddings = 514,
                                .type_vocab_size = 1};
constexpr const char* kBlocks[] = {"ClapAudioStage", kNames.layer};

void check_sizes(ConfigReader& reader, const ClapAudioConfig& c) {
  const std::size_t stages = c.depths.size();
  if (c.num_attention_heads.size() < stages) {
    reader.fail_found("num_attention_heads", "inconsistent",
                      "expected one a stage, of which depths has " + std::to_string(stages));
    return;
  }
  for (std::size_t stage = 0; stage < stages; ++stage)
    if (c.dim(stage) % c.num_attention_heads[stage] != 0)
      reader.fail_found("num_attention_heads", "inconsistent",
                        "expected divisors of the channels of their stages: " + std::to_string(c.dim(stage)) +
                            " cannot be shared among " + std::to_string(c.num_attention_heads[stage]));
  if (c.hidden_size != c.dim(stages - 1))
    reader.fail(reader.has("hidden_size") ? "hidden_size" : "patch_embeds_hidden_size", "inconsistent",
                "found a hidden_size of " + std::to_string(c.hidden_size) + "; expected the " +
                    std::to_string(c.dim(stages - 1)) + " channels behind the last stage");
  if (c.spec_size % c.num_mel_bins != 0) {
    reader.fail_found("num_mel_bins", "inconsistent",
                      "expected a divisor of spec_size (" + std::to_string(c.spec_size) + ")");
    return;
  }
  if (c.spec_size * c.freq_ratio() < ClapAudioConfig::kFrames)
    reader.fail("spec_size", "inconsistent",
                "found room for " + std::to_string(c.spec_size * c.freq_ratio()) +
                    " frames (spec_size * spec_size / num_mel_bins); expected at least the " +
                    std::to_string(ClapAudioConfig::kFrames) + " that the processor makes of 10 s");
  // The smallest that all stages' windows fill: those of the last, and each stage before has twice as many each way.
  const std::int64_t unit = checked_product(c.patch_size, c.window_size << (stages - 1));
  if (c.spec_size % unit != 0)
    reader.fail_found("spec_size", "not-modelled",
                      "spectrograms whose windows are filled up are not supported yet: expected a multiple of " +
                          std::to_string(unit));
  if (c.side(stages - 1) % c.freq_ratio() != 0)
    reader.fail_found("spec_size", "inconsistent",
                      "expected as many patches a side behind the last stage (" + std::to_string(c.side(stages - 1)) +
                          ") as spec_size / num_mel_bins (" + std::to_string(c.freq_ratio()) + ") divides");
}

ClapAudioConfig read_audio(ConfigReader& reader) {
  constexpr std::size_t kMostStages = 8;
  ClapAudioConfig c;
  c.window_size = reader.integer("window_size", c.window_size, {1, 1024});
  c.num_mel_bins = reader.integer("num_mel_bins", c.num_mel_bins, {1, 65'536});
  c.spec_size = reader.integer("spec_size", c.spec_size, {1, 65'536});
  const auto square = [&](const char* key, std::int64_t usual) {
    if (!reader.is_list(key)) return reader.integer(key, usual, {1, 1024});
    const std::vector<std::int64_t> sides = reader.integers(key, {1, 1024});
    if (sides.size() == 2 && sides[0] == sides[1]) return sides[0];
    reader.fail_found(key, "not-modelled", "patches that are no squares are not supported yet");
    return usual;
  };
  c.patch_size = square("patch_size", 4);
  if (square("patch_stride", 4) != c.patch_size)
    reader.fail(reader.has("patch_stride") ? "patch_stride" : "patch_size", "not-modelled",
                "patches that overlap are not supported yet: expected a patch_stride that is patch_size");
  c.hidden_size = reader.integer("hidden_size", c.hidden_size);
  c.embed_dim = reader.integer("patch_embeds_hidden_size", c.embed_dim);
  if (const auto depths = reader.integers("depths", {1, 1024}); !depths.empty()) c.depths = depths;
  if (const auto heads = reader.integers("num_attention_heads", {1, 65'536}); !heads.empty())
    c.num_attention_heads = heads;
  c.hidden_act = reader.activation("hidden_act", c.hidden_act);
  c.hidden_dropout_prob = reader.number("hidden_dropout_prob", c.hidden_dropout_prob, 0, 1);
  c.attention_probs_dropout_prob = reader.number("attention_probs_dropout_prob", c.attention_probs_dropout_prob, 0, 1);
  c.drop_path_rate = reader.number("drop_path_rate", c.drop_path_rate, 0, 1);
  c.mlp_ratio = reader.number("mlp_ratio", c.mlp_ratio, 0.01, 1024);
  c.qkv_bias = reader.boolean("qkv_bias", true);
  c.has_patch_norm = reader.boolean("enable_patch_layer_norm", true);
  if (reader.boolean("enable_fusion", false))
    reader.fail_found("enable_fusion", "not-modelled",
                      "fused parts of long audio are not supported yet: expected false");
  if (!reader.boolean("flatten_patch_embeds", true))
    reader.fail_found("flatten_patch_embeds", "not-modelled", "this is not supported yet: expected true");
  if (reader.integer("patch_embed_input_channels", 1) != 1)
    reader.fail_found("patch_embed_input_channels", "not-modelled", "this is not supported yet: expected 1");
  reader.integer("chunk_size_feed_forward", 0, {0, 0});
  reader.ignore({"model_type", "num_classes", "num_hidden_layers", "projection_dim", "projection_hidden_act",
                 "fusion_type", "aff_block_r", "layer_norm_eps", "initializer_factor", "fusion_num_hidden_layers",
                 "dropout", "attention_dropout", "initializer_range", "num_channels", "fusion_window_size"});
  if (c.depths.size() > kMostStages)
    reader.fail_found("depths", "not-modelled", "expected at most " + std::to_string(kMostStages) + " stages");
  if (reader.ok()) check_sizes(reader, c);
  return c;
}

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) {
  ClapConfig c;
  ConfigReader audio = reader.object("audio_config"), text = reader.object("text_config");
  c.audio = read_audio(audio);
  audio.finish();
  c.text = read_bert_config(text, kNames, kText);
  text.ignore({"model_type", "projection_dim", "projection_hidden_act", "initializer_factor", "fusion_hidden_size",
               "fusion_num_hidden_layers", "layer_norm_eps", "bos_token_id", "eos_token_id", "initializer_range"});
  text.finish();
  c.projection_dim = reader.integer("projection_dim", c.projection_dim);
  c.projection_hidden_act = reader.activation("projection_hidden_act", c.projection_hidden_act);
  reader.ignore({"logit_scale_init_value", "initializer_factor", "hidden_size", "num_hidden_layers"});
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_clap(context, config.as<ClapConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<ClapConfig>();
  ModelTraits t = transformers_traits("ClapModel");
  t.takes_text = t.contrastive = true;
  t.min_audios = t.max_audios = 1;
  t.usual_audio_seconds = 10;
  t.convolutions = 1;
  t.hidden_size = c.text.hidden_size;
  t.tower = "audio_model";
  t.language = "text_model";
  t.text.max_position_embeddings = t.max_sequence_length = c.text.longest();
  t.default_sequence_length = std::min<std::int64_t>(77, t.max_sequence_length);
  t.scalar_parameter = "logit_scale_a";
  t.oldest_transformers = {5, 23, 0};
  t.no_split_modules = {};
  t.refuse(Feature::sdpa, "inconsistent", "ClapModel has no attention but its own (a ValueError): expected eager");
  t.refuse(Feature::flash_attention, "inconsistent",
           "ClapModel has no attention but its own (a ValueError): expected eager");
  t.refuse(Feature::flash_attention_2, "inconsistent",
           "ClapModel has no attention but its own (a ValueError): expected eager");
  t.refuse(Feature::checkpointing, "inconsistent",
           "ClapModel does not support gradient checkpointing (a ValueError): expected none");
  t.refuse(Feature::fsdp, "inconsistent",
           "FSDP refuses a scalar parameter, as ClapModel's logit_scale_a is; expected another strategy");
  t.refuse(Feature::zero3, "inconsistent",
           "DeepSpeed 0.19 fails at a scalar parameter such as ClapModel's logit_scale_a; expected another strategy");
  t.refuse(Feature::quantization, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

AudioCount count_audio(const FamilyConfig& config, double) {
  const ClapAudioConfig& c = config.as<ClapConfig>().audio;
  return {0, "Audio of any length is repeated or cut to 10 s: " + std::to_string(ClapAudioConfig::kFrames) +
                 " frames of " + std::to_string(c.num_mel_bins) + " values, stretched to " +
                 std::to_string(c.spec_size * c.freq_ratio()) + "."};
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<ClapConfig>();
  const ClapAudioConfig& a = c.audio;
  const std::int64_t batch = data.micro_batch_size, audios = std::max<std::int64_t>(data.audios(), 1),
                     area = a.window_size * a.window_size;
  double largest =
      std::max({bytes_of_layer(batch, data.sequence_length, c.text.hidden_size, c.text.intermediate_size,
                               c.text.num_attention_heads),
                bytes_of({std::max(c.text.vocab_size, c.text.max_position_embeddings), c.text.hidden_size}),
                bytes_of({audios, std::max(a.spec_size, a.num_mel_bins), a.spec_size * 2}),
                bytes_of({std::max(batch, c.projection_dim),
                          std::max({batch, c.projection_dim, c.text.hidden_size, a.hidden_size})}),
                2 * bytes_of({area, area, 2})});
  for (std::size_t stage = 0; stage < a.depths.size(); ++stage) {
    const std::int64_t patches = a.side(stage) * a.side(stage), dim = a.dim(stage);
    largest = std::max({largest, std::max(a.mlp_ratio, 4.0) * bytes_of({audios, patches, dim}),
                        bytes_of({audios, patches, area, a.num_attention_heads[stage]}),
                        std::max(a.mlp_ratio, 8.0) * bytes_of({dim, dim})});
  }
  return largest;
}

}  // namespace

namespace family {
extern const Family clap{.classes = kClasses,
                         .blocks = kBlocks,
                         .read = read,
                         .build = build,
                         .traits = traits,
                         .largest_tensor = largest_tensor,
                         .count_audio = count_audio};
}  // namespace family

}  // namespace oometer
