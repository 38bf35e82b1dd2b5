#include "models/gemma4/audio.h"

#include "models/gemma4/vision.h"
#include "models/kit/norms.h"

/// Names and order are the modeling file's.
namespace oometer {

namespace {

struct Gemma4AudioBuilder {
  const Gemma4AudioConfig& c;

  void clippable(const Builder& parent, const char* name, std::int64_t in, std::int64_t out) const {
    Gemma4ClippableLinear(parent.child(name, "Gemma4ClippableLinear"), in, out, c.use_clipped_linears);
  }
  void norm(const Builder& parent, const char* name) const {
    Norm(parent.child(name, "Gemma4RMSNorm"), rms_norm_by_pow, {c.hidden_size});
  }
  void subsample(const Builder& parent, const char* name, std::int64_t in, std::int64_t out) const {
    const Builder layer = parent.child(name, "Gemma4AudioSubSampleConvProjectionLayer");
    layer.child("conv", "Conv2d").parameter("weight", {out, in, 3, 3});
    Builder of_norm = layer.child("norm", "LayerNorm");
    of_norm.in_norm = true;
    of_norm.parameter("weight", {out});
  }
  void feed_forward(const Builder& parent, const char* name) const {
    const Builder at = parent.child(name, "Gemma4AudioFeedForward");
    clippable(at, "ffw_layer_1", c.hidden_size, 4 * c.hidden_size);
    clippable(at, "ffw_layer_2", 4 * c.hidden_size, c.hidden_size);
    norm(at, "pre_layer_norm");
    norm(at, "post_layer_norm");
  }
  void attention(const Builder& parent) const {
    const Builder at = parent.child("self_attn", "Gemma4AudioAttention");
    const std::int64_t head_dim = c.hidden_size / c.num_attention_heads, width = c.num_attention_heads * head_dim;
    for (const char* name : {"q_proj", "k_proj", "v_proj"}) clippable(at, name, c.hidden_size, width);
    clippable(at, "post", c.hidden_size, c.hidden_size);
    Linear(at.child("relative_k_proj", "Linear"), c.hidden_size, width, false);
    at.parameter("per_dim_scale", {head_dim});
    at.buffer({}, at.dtype);  // softcap
  }
  void light_conv(const Builder& parent) const {
    const Builder at = parent.child("lconv1d", "Gemma4AudioLightConv1d");
    clippable(at, "linear_start", c.hidden_size, 2 * c.hidden_size);
    clippable(at, "linear_end", c.hidden_size, c.hidden_size);
    at.child("depthwise_conv1d", "Gemma4AudioCausalConv1d").parameter("weight", {c.hidden_size, 1, c.conv_kernel_size});
    norm(at, "pre_layer_norm");
    norm(at, "conv_norm");
  }
};

}  // namespace

void make_gemma4_audio(const Builder& builder, const Gemma4AudioConfig& c) {
  const Gemma4AudioBuilder make{c};
  const Builder projection = builder.child("subsample_conv_projection", "Gemma4AudioSubSampleConvProjection");
  const auto [first, second] = c.subsampling_conv_channels;
  make.subsample(projection, "layer0", 1, first);
  make.subsample(projection, "layer1", first, second);
  Linear(projection.child("input_proj_linear", "Linear"), first / 4 * second, c.hidden_size, false);
  const Builder rel_pos_enc = builder.child("rel_pos_enc", "Gemma4AudioRelPositionalEncoding");
  rel_pos_enc.buffer({1, 1, c.hidden_size / 2}, rel_pos_enc.dtype);
  for (std::int32_t i = 0; i < c.num_hidden_layers; ++i) {
    const Builder layer = builder.child("layers", "Gemma4AudioLayer", i);
    make.feed_forward(layer, "feed_forward1");
    make.feed_forward(layer, "feed_forward2");
    make.attention(layer);
    make.light_conv(layer);
    for (const char* name : {"norm_pre_attn", "norm_post_attn", "norm_out"}) make.norm(layer, name);
  }
  Linear(builder.child("output_proj", "Linear"), c.hidden_size, c.output_proj_dims, true);
}

}  // namespace oometer
