#include "models/family.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "config/reader.h"
#include "models/sizes.h"
#include "models/videomae/everest.h"
#include "models/videomae/videomae.h"
#include "ops/argsort.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"videomae", "VideoMAEForVideoClassification"},
                                   {"videomae", "VideoMAEForPreTraining"},
                                   {"videomae", "VideoMAEModel"}};
constexpr const char* kBlocks[] = {kVideoMae.layer};

/// Masks of tubes: the same patches of every frame (MCG-NJU/VideoMAE, masking_generator.py, TubeMaskingGenerator), as
/// many as its scripts of pre-training say unless the config has a mask_ratio, as ViTMAEConfig has one.
std::int64_t read_num_masked(ConfigReader& reader, const VideoMaeConfig& c) {
  const double mask_ratio = reader.number("mask_ratio", 0.9, 0, 1);
  const auto of_frame = static_cast<std::int64_t>(mask_ratio * static_cast<double>(c.patches_per_frame()));
  if (of_frame == 0 || of_frame == c.patches_per_frame())
    reader.fail_found("mask_ratio", "inconsistent",
                      "of the " + std::to_string(c.patches_per_frame()) +
                          " patches of a frame it must leave some and mask some: expected e.g. 0.9");
  return checked_product(of_frame, c.num_frames / c.tubelet_size);
}

/// EVEREST's shares, as its code counts tokens (sunilhoho/EVEREST, mcm_step): motion_centric_masking_ratio of them are
/// redundant; in pre-training all but mask_ratio are encoded, and what is neither is made by the decoder.
void read_redundancy(ConfigReader& reader, VideoMaeConfig& c) {
  const double ratio = reader.number("motion_centric_masking_ratio", 0.7, 0, 1),
               mask_ratio = reader.number("mask_ratio", 0.9, 0, 1);
  const std::int64_t tokens = c.num_patches();
  const auto all_but = [&](double share) {
    return static_cast<std::int64_t>((1 - share) * static_cast<double>(tokens));
  };
  const std::int64_t kept = all_but(ratio);
  c.drops_redundant = true;
  reader.findings().assumptions.emplace_back(kEverestAssumption);
  c.num_visible = c.pretrains ? all_but(mask_ratio) : kept;
  c.num_masked = c.pretrains ? kept - c.num_visible : 0;
  if (c.num_frames < 2 * c.tubelet_size || c.num_frames % c.tubelet_size != 0)
    return reader.fail_found("num_frames", "inconsistent",
                             "tubelets are compared with the ones before: expected a multiple of tubelet_size (" +
                                 std::to_string(c.tubelet_size) + "), twice that or more");
  if (tokens > kMostSortedInOneBlock)
    return reader.fail_found(
        "image_size", "not-modelled",
        std::to_string(tokens) + " tokens a video are not supported yet with EVEREST: expected at most 4,096");
  if (c.num_visible == 0 || (c.pretrains && c.num_masked <= 0))
    reader.fail_found("motion_centric_masking_ratio", "inconsistent",
                      c.pretrains ? "of " + std::to_string(tokens) + " tokens a video, " + std::to_string(kept) +
                                        " are left and " + std::to_string(c.num_visible) +
                                        " of them encoded: expected some to encode and some to make, as 0.7 leaves "
                                        "with a mask_ratio of 0.9"
                                  : "it leaves none of " + std::to_string(tokens) + " tokens: expected e.g. 0.4");
}

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  VideoMaeConfig c;
  c.names = &kVideoMae;
  c.pretrains = &of == &kClasses[1];
  read_vit_sizes(reader, of, c);
  c.intermediate_size = reader.integer("intermediate_size", c.intermediate_size);
  if (!reader.has("qkv_bias")) c.qkv_bias = reader.boolean("qv_bias", true);  // VideoMAEConfig.__post_init__
  c.num_frames = reader.integer("num_frames", c.num_frames);
  c.tubelet_size = reader.integer("tubelet_size", c.tubelet_size);
  c.use_mean_pooling = reader.boolean("use_mean_pooling", true);
  c.decoder_num_attention_heads = reader.integer("decoder_num_attention_heads", c.decoder_num_attention_heads);
  c.decoder_hidden_size = reader.integer("decoder_hidden_size", c.decoder_hidden_size);
  c.decoder_num_hidden_layers = reader.integer("decoder_num_hidden_layers", c.decoder_num_hidden_layers, layer_count);
  c.decoder_intermediate_size = reader.integer("decoder_intermediate_size", c.decoder_intermediate_size);
  c.norm_pix_loss = reader.boolean("norm_pix_loss", true);
  reader.ignore({"qv_bias"});
  if (c.num_frames < c.tubelet_size) {
    reader.fail_found("num_frames", "inconsistent",
                      "expected at least tubelet_size (" + std::to_string(c.tubelet_size) + ")");
  } else if (c.pretrains) {
    if (c.decoder_hidden_size % c.decoder_num_attention_heads != 0)
      reader.fail_found(
          "decoder_hidden_size", "inconsistent",
          "expected a multiple of decoder_num_attention_heads (" + std::to_string(c.decoder_num_attention_heads) + ")");
    if (c.num_frames % c.tubelet_size != 0)
      reader.fail_found("num_frames", "inconsistent",
                        "expected a multiple of tubelet_size (" + std::to_string(c.tubelet_size) +
                            "), into which ForPreTraining cuts the pixels");
    if (c.image_size % c.patch_size != 0)
      reader.fail_found("image_size", "inconsistent",
                        "expected a multiple of patch_size (" + std::to_string(c.patch_size) +
                            "), into which ForPreTraining cuts the pixels");
    if (c.num_channels != 3 && !c.norm_pix_loss)
      reader.fail_found("norm_pix_loss", "inconsistent", "expected true, unless num_channels is 3");
    if (reader.ok() && !reader.has("motion_centric_masking_ratio")) {
      c.num_masked = read_num_masked(reader, c);
      c.num_visible = c.num_patches() - c.num_masked;
    }
  }
  if (reader.ok() && reader.has("motion_centric_masking_ratio")) read_redundancy(reader, c);
  reader.ignore({"mask_ratio", "motion_centric_masking_ratio"});
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_videomae(context, config.as<VideoMaeConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<VideoMaeConfig>();
  ModelTraits t = vit_traits(c);
  t.images_why = "the model reads one video a sample";
  if (c.pretrains) {
    t.has_loss = true;
    t.losses = {};
    t.tower = c.names->base;
  } else if (!c.classifies) {
    t.losses = {"last_hidden_state"};
  }
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<VideoMaeConfig>();
  const std::int64_t videos = std::max<std::int64_t>(data.images(), 1), tokens = c.num_patches();
  return std::max({bytes_of_layer(videos, tokens, c.hidden_size, c.intermediate_size, c.num_attention_heads),
                   bytes_of_layer(videos, tokens, c.decoder_hidden_size, c.decoder_intermediate_size,
                                  c.decoder_num_attention_heads),
                   bytes_of({videos, c.num_frames, c.num_channels, c.image_size, c.image_size}),
                   bytes_of({tokens, c.patch_elements()}), bytes_of({c.hidden_size, c.patch_elements()}),
                   bytes_of({c.decoder_hidden_size, c.patch_elements()}), bytes_of({c.hidden_size, c.num_labels})});
}

}  // namespace

namespace family {
extern const Family videomae{.classes = kClasses,
                             .blocks = kBlocks,
                             .read = read,
                             .build = build,
                             .traits = traits,
                             .largest_tensor = largest_tensor};
}  // namespace family

}  // namespace oometer
