#include "models/family.h"

#include <algorithm>
#include <string>

#include "config/reader.h"
#include "models/kit/mixture.h"
#include "models/kit/text_family.h"
#include "models/kit/thinker.h"
#include "models/qwen3_omni_moe/qwen3_omni_moe.h"
#include "models/sizes.h"

namespace oometer {

namespace {

constexpr LlamaClassNames kTextNames{"Qwen3OmniMoeThinkerForConditionalGeneration",
                                     "Qwen3OmniMoeThinkerTextModel",
                                     "Qwen3OmniMoeThinkerTextDecoderLayer",
                                     "Qwen3OmniMoeThinkerTextAttention",
                                     "Qwen3OmniMoeThinkerTextMLP",
                                     "Qwen3OmniMoeThinkerTextRMSNorm",
                                     "Qwen3OmniMoeThinkerTextRotaryEmbedding"};
constexpr Qwen3VLMoeNames kMoe{"Qwen3OmniMoeThinkerTextSparseMoeBlock", "Qwen3OmniMoeThinkerTextExperts",
                               "Qwen3OmniMoeThinkerTextTopKRouter"};
constexpr ModelClass kClasses[] = {{"qwen3_omni_moe_thinker", kTextNames.causal_lm},
                                   {"qwen3_omni_moe", kTextNames.causal_lm},
                                   {"qwen3_omni_moe", "Qwen3OmniMoeForConditionalGeneration"}};
constexpr const char* kBlocks[] = {"Qwen3OmniMoeThinkerTextDecoderLayer", "Qwen3OmniMoeVisionBlock",
                                   "Qwen3OmniMoeAudioEncoderLayer"};

/// class Qwen3OmniMoeTextConfig
TextConfig read_text(ConfigReader& reader) {
  TextConfig d;
  d.names = &kTextNames;
  d.vocab_size = 3584;
  d.hidden_size = 2048;
  d.intermediate_size = 18944;
  d.num_hidden_layers = d.num_attention_heads = 28;
  d.num_key_value_heads = 4;
  d.max_position_embeddings = 32768;
  TextConfig c = read_qwen3_vl_sizes(reader, d, 0);
  read_experts(reader, c, "num_experts", "num_local_experts",
               {.num_experts = 128, .num_experts_per_tok = 8, .balances = true});
  c.experts.intermediate_size = reader.integer("moe_intermediate_size", 768);
  c.experts.norm_topk_prob = reader.boolean("norm_topk_prob", true);
  read_sparse_layers(reader, c);
  reader.ignore({"sliding_window", "use_sliding_window", "shared_expert_intermediate_size"});  // the class slides not
  return c;
}

DecoderParts make_parts(const TextConfig& config, const ModelOptions& options) {
  return make_qwen3_vl_parts(config, options, kMoe);
}

/// class Qwen3OmniMoeAudioEncoderConfig
void read_audio(ConfigReader& reader, Qwen3OmniConfig& c) {
  WhisperConfig& encoder = c.audio;
  encoder.num_mel_bins = 128;
  encoder.hidden_size = 1280;
  encoder.num_hidden_layers = 32;
  encoder.num_attention_heads = 20;
  encoder.intermediate_size = 5120;
  read_whisper_encoder(reader, encoder);
  c.conv_chunksize = reader.integer("conv_chunksize", c.conv_chunksize);
  read_convolved_audio(reader, c, "max_source_positions", "class");  // _get_feat_extract_output_lengths
}

Qwen3OmniConfig read_thinker(ConfigReader& reader) {
  Qwen3OmniConfig c;
  c.grids.of = &kQwen3OmniMoe;
  ConfigReader audio = reader.object("audio_config"), vision = reader.object("vision_config"),
               text = reader.object("text_config");
  read_audio(audio, c);
  audio.finish();
  c.grids.vision = read_qwen3_vision(vision, true);
  vision.finish();
  c.grids.text = read_text(text);
  if (c.grids.text.experts.outputs_router_logits)
    text.fail_found("output_router_logits", "not-modelled",
                    "the loss that balances experts is not supported yet here: set it to false");
  text.finish();
  c.grids.tie_word_embeddings = reader.boolean("tie_word_embeddings", false);
  reader.ignore({"model_type", "architectures", "audio_token_id", "image_token_id", "video_token_id",
                 "position_id_per_seconds", "seconds_per_chunk", "audio_start_token_id", "audio_end_token_id",
                 "vision_start_token_id", "vision_end_token_id", "user_token_id"});
  check_width(audio, "output_dim", c.output_dim, c.grids.text);
  check_width(vision, "out_hidden_size", c.grids.vision.out_hidden_size, c.grids.text);
  return c;
}

/// A thinker's own config, or that of a whole model, of which from_pretrained of the thinker takes its part.
FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  if (&of - kClasses >= 2)
    reader.fail_found("architectures", "not-modelled",
                      "only the thinker of such a model is trained, which is supported: expected "
                      "[\"Qwen3OmniMoeThinkerForConditionalGeneration\"]");
  if (!reader.has("thinker_config")) return read_thinker(reader);
  ConfigReader thinker = reader.object("thinker_config");
  Qwen3OmniConfig c = read_thinker(thinker);
  thinker.finish();
  reader.ignore({"talker_config", "code2wav_config", "enable_audio_output", "im_start_token_id", "im_end_token_id",
                 "tts_pad_token_id", "tts_bos_token_id", "tts_eos_token_id", "system_token_id", "user_token_id",
                 "assistant_token_id"});
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_qwen3_omni_moe(context, config.as<Qwen3OmniConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<Qwen3OmniConfig>();
  ModelTraits t = thinker_traits(kTextNames.causal_lm, c.grids.text, c.grids.tie_word_embeddings);
  t.convolutions = 4;
  t.has_experts = c.grids.text.experts.num_experts != 0;
  t.balances_experts = c.grids.text.experts.balances;
  t.no_split_modules = {"Qwen3OmniMoeThinkerTextDecoderLayer", "Qwen3OmniMoeAudioEncoder", "Qwen3OmniMoeVisionEncoder",
                        "Qwen3OmniMoeAudioEncoderLayer"};
  return t;
}

AudioCount count_audio(const FamilyConfig& config, double seconds) {
  const AudioChunks chunks = config.as<Qwen3OmniConfig>().chunks_of(1, seconds);
  return {chunks.states(), std::to_string(chunks.frames) + " frames of 10 ms, cut into chunks of " +
                               std::to_string(chunks.chunk) + ", are " + std::to_string(chunks.states()) +
                               " tokens: 13 of each whole chunk."};
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<Qwen3OmniConfig>();
  const Qwen3VisionConfig& v = c.grids.vision;
  const std::int64_t frames = checked_product(data.images(), data.grid_t), merged = v.hidden_size * v.merge_unit();
  return std::max(
      {largest_tensor_of_text_family(c.grids.text, data), bytes_of({v.num_position_embeddings, v.hidden_size}),
       bytes_of_layer(frames, data.grid_h * data.grid_w, 4 * v.hidden_size, v.intermediate_size, v.num_heads),
       bytes_of({frames, data.grid_h * data.grid_w, v.patch_elements()}), bytes_of({v.hidden_size, v.patch_elements()}),
       bytes_of({merged, std::max(merged, v.out_hidden_size)}), largest_tensor_of_audio(c, data)});
}

void read_images(ConfigReader& reader, const FamilyConfig& config, DataConfig& data) {
  const Qwen3VisionConfig& v = config.as<Qwen3OmniConfig>().grids.vision;
  // The limits of Qwen2VLImageProcessor's published configs for the Omni models.
  read_grid(reader, {v.patch_size, v.spatial_merge_size, v.temporal_patch_size, 56 * 56, 12'845'056}, data);
  check_one_frame(reader, data);
}

}  // namespace

constexpr Qwen3VLClass kQwen3OmniMoe{"qwen3_omni_moe_thinker",
                                     kTextNames.causal_lm,
                                     "Qwen3OmniMoeThinkerModel",
                                     "Qwen3OmniMoeVisionEncoder",
                                     "Qwen3OmniMoeVisionPatchEmbed",
                                     "Qwen3OmniMoeVisionRotaryEmbedding",
                                     "Qwen3OmniMoeVisionBlock",
                                     "Qwen3OmniMoeVisionAttention",
                                     "Qwen3OmniMoeVisionMLP",
                                     "Qwen3OmniMoeVisionPatchMerger",
                                     true,
                                     read_text,
                                     balanced<make_parts>,
                                     true};

namespace family {
extern const Family qwen3_omni_moe{.classes = kClasses,
                                   .blocks = kBlocks,
                                   .read = read,
                                   .build = build,
                                   .traits = traits,
                                   .largest_tensor = largest_tensor,
                                   .read_images = read_images,
                                   .count_audio = count_audio};
}  // namespace family

}  // namespace oometer
