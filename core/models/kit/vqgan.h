#pragma once

#include <cstdint>
#include <vector>

#include "models/kit/conv2d.h"
#include "nn/module.h"

/// The VQ-GAN that cuts images into tokens, in Janus and Chameleon (transformers 5.23, models/chameleon/
/// modeling_chameleon.py and models/janus/modeling_janus.py). Names and order of steps are those files'.
namespace oometer {

class ConfigReader;

/// What its classes are called.
struct VqganFamily {
  const char *model, *encoder, *mid, *resnet_block, *attn_block, *downsample, *quantizer;
};

struct VqganConfig {
  const VqganFamily* family = nullptr;
  std::int64_t embed_dim = 256, num_embeddings = 8192;
  bool double_latent = false;
  std::int64_t latent_channels = 256, in_channels = 3, base_channels = 128, num_res_blocks = 2;
  std::vector<std::int64_t> channel_multiplier{1, 1, 2, 2, 4};
  std::vector<bool> attends;  ///< each resolution's blocks
  bool mid_attends = true;
  double dropout = 0;

  std::size_t levels() const { return channel_multiplier.size(); }
  std::int64_t channels(std::size_t level) const { return base_channels * channel_multiplier[level]; }
  std::int64_t last_channels() const { return channels(levels() - 1); }
  bool operator==(const VqganConfig&) const = default;
};
/// The fields that both classes' configs have.
VqganConfig read_vqgan_config(ConfigReader& reader, const VqganConfig& defaults);

struct VqganGroupNorm {
  VqganGroupNorm() = default;
  VqganGroupNorm(const Builder& builder, std::int64_t channels);
  Tensor operator()(const Tensor& x) const;

  Tensor weight, bias;
  ModuleId module = 0;
};

/// A part whose modules stand in named_parameters() where its constructor is called, and whose weights are made later.
struct VqganResnetBlock {
  VqganResnetBlock() = default;
  VqganResnetBlock(const Builder& builder, const VqganConfig& config, std::int64_t in, std::int64_t out);
  void make();
  Tensor operator()(const Tensor& hidden_states) const;

  Builder builders[5];
  std::int64_t in_channels = 0, out_channels = 0;
  double dropout_rate = 0;
  VqganGroupNorm norm1, norm2;
  AnyConv2d conv1, conv2, nin_shortcut;
  ModuleId module = 0;
};

struct VqganAttnBlock {
  VqganAttnBlock() = default;
  VqganAttnBlock(const Builder& builder, std::int64_t channels);
  void make();
  Tensor operator()(const Tensor& hidden_states) const;

  Builder builders[5];
  std::int64_t channels = 0;
  VqganGroupNorm norm;
  AnyConv2d q, k, v, proj_out;
  ModuleId module = 0;
};

struct VqganMidBlock {
  VqganMidBlock() = default;
  VqganMidBlock(const Builder& builder, const VqganConfig& config);
  Tensor operator()(const Tensor& hidden_states) const;

  VqganResnetBlock block_1, block_2;
  VqganAttnBlock attn_1;
  bool attends = true;
  ModuleId module = 0;
};

/// Blocks of one resolution, each with its attention where they attend.
struct VqganLevel {
  VqganLevel() = default;
  VqganLevel(const Builder& builder, const VqganConfig& config, std::int64_t blocks, std::int64_t in, std::int64_t out,
             bool attends);

  std::vector<VqganResnetBlock> block;
  std::vector<VqganAttnBlock> attn;
};

struct VqganEncoder {
  VqganEncoder() = default;
  VqganEncoder(const Builder& builder, const VqganConfig& config);
  Tensor operator()(const Tensor& pixel_values) const;

  AnyConv2d conv_in;
  std::vector<VqganLevel> down;
  std::vector<AnyConv2d> downsample;
  std::vector<ModuleId> downsample_module;
  VqganMidBlock mid;
  VqganGroupNorm norm_out;
  AnyConv2d conv_out;
  ModuleId module = 0;
};

/// What its encode() gives: last_hidden_state, quantized_last_hidden_state, image_tokens, embedding_loss.
struct VqganOutput {
  Tensor last_hidden_state, quantized_last_hidden_state, image_tokens, embedding_loss;
};

/// The encoder and what quantises, without what decodes.
struct Vqgan {
  Vqgan() = default;
  Vqgan(const Builder& builder, const VqganConfig& config);
  /// It is called as a method, not as a module.
  VqganOutput encode(const Tensor& pixel_values) const;

  VqganEncoder encoder;
  Embedding embedding;
  ModuleId quantizer = 0;
  AnyConv2d quant_conv, post_quant_conv;
};

}  // namespace oometer
