#include <algorithm>

#include "models/gemma3n/gemma3n.h"
#include "models/kit/norms.h"

/// Names and order are the modeling file's.
namespace oometer {

namespace {

struct Gemma3nAudioBuilder {
  const Gemma3nAudioConfig& c;

  void norm(const Builder& parent, const char* name) const {
    Norm(parent.child(name, "Gemma3nRMSNorm"), rms_norm_by_pow, {c.hidden_size});
  }
  static void linear(const Builder& parent, const char* name, std::int64_t in, std::int64_t out) {
    Linear(parent.child(name, "Linear"), in, out, false);
  }
  static void subsample(const Builder& parent, const char* name, std::int64_t in, std::int64_t out) {
    const Builder block = parent.child(name, "Gemma3nAudioSSCPConvBlock");
    block.child("conv", "Conv2d").parameter("weight", {out, in, 3, 3});
    block.child("norm", "Gemma3nAudioCumulativeGroupNorm").parameter("weight", {out});
  }
  void feed_forward(const Builder& parent, const char* name) const {
    const Builder at = parent.child(name, "Gemma3nAudioConformerFeedForward");
    at.buffer({}, at.dtype);  // gradient_clipping, here and below
    norm(at, "pre_layer_norm");
    linear(at, "ffw_layer_1", c.hidden_size, 4 * c.hidden_size);
    linear(at, "ffw_layer_2", 4 * c.hidden_size, c.hidden_size);
    norm(at, "post_layer_norm");
  }
  void attention(const Builder& parent) const {
    const Builder outer = parent.child("attention", "Gemma3nAudioConformerAttention");
    outer.buffer({}, outer.dtype);
    norm(outer, "pre_attn_norm");
    const Builder at = outer.child("attn", "Gemma3nAudioAttention");
    const std::int64_t head_dim = c.hidden_size / c.conf_num_attention_heads,
                       width = c.conf_num_attention_heads * head_dim;
    const Builder positions = at.child("relative_position_embedding", "Gemma3nAudioRelativePositionEmbedding");
    linear(positions, "pos_proj", c.hidden_size, width);
    positions.buffer({1, 1, c.hidden_size / 2}, DType::float32);
    at.parameter("per_dim_scale", {head_dim});
    for (const char* name : {"q_proj", "k_proj", "v_proj"}) linear(at, name, c.hidden_size, width);
    at.buffer({}, at.dtype);  // q_scale
    const std::int64_t past = std::max<std::int64_t>(c.conf_attention_context_left - 1, 0);
    at.buffer({c.conf_attention_chunk_size, c.conf_attention_chunk_size + past + c.conf_attention_context_right},
              DType::boolean);
    at.buffer({}, DType::float32);  // softcap
    linear(outer, "post", c.hidden_size, c.hidden_size);
    norm(outer, "post_norm");
  }
  void light_conv(const Builder& parent) const {
    const Builder at = parent.child("lconv1d", "Gemma3nAudioConformerLightConv1d");
    norm(at, "pre_layer_norm");
    linear(at, "linear_start", c.hidden_size, 2 * c.hidden_size);
    at.child("depthwise_conv1d", "Conv1d").parameter("weight", {c.hidden_size, 1, c.conf_conv_kernel_size});
    at.buffer({}, at.dtype);
    norm(at, "conv_norm");
    linear(at, "linear_end", c.hidden_size, c.hidden_size);
  }
};

/// A frequency axis behind one of the two convolutions, which have 3 x 3 kernels and strides of two.
std::int64_t halved(std::int64_t frequencies) { return (frequencies - 1) / 2 + 1; }

}  // namespace

void make_gemma3n_audio(const Builder& builder, const Gemma3nAudioConfig& c) {
  const Gemma3nAudioBuilder make{c};
  const Builder projection = builder.child("subsample_conv_projection", "Gemma3nAudioSubSampleConvProjection");
  const auto [first, second] = c.sscp_conv_channel_size;
  make.subsample(projection, "conv_0", 1, first);
  make.subsample(projection, "conv_1", first, second);
  make.linear(projection, "input_proj_linear", second * halved(halved(c.input_feat_size)), c.hidden_size);
  for (std::int32_t i = 0; i < c.conf_num_hidden_layers; ++i) {
    const Builder block = builder.child("conformer", "Gemma3nAudioConformerBlock", i);
    make.feed_forward(block, "ffw_layer_start");
    make.attention(block);
    make.light_conv(block);
    make.feed_forward(block, "ffw_layer_end");
    block.buffer({}, block.dtype);
    make.norm(block, "norm");
  }
}

}  // namespace oometer
