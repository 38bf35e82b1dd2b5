#include "models/perception_lm/perception_lm.h"

#include <utility>
#include <vector>

#include "models/kit/grids.h"
#include "models/kit/image_text.h"
#include "nn/activation.h"
#include "nn/attention.h"
#include "nn/block_stack.h"
#include "ops/images.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

namespace {

struct AttentionRope {
  AttentionRope(const Builder& builder, const PerceptionEncoderConfig& c, AttentionKind kind)
      : qkv(builder.child("qkv", "Linear"), c.embed_dim, 3 * c.embed_dim, true),
        proj(builder.child("proj", "Linear"), c.embed_dim, c.embed_dim, true),
        num_heads(c.num_heads),
        num_prefix_tokens(c.class_token ? 1 : 0),
        module(builder.module) {
    // timm asks for SDPA, whatever the model around it does.
    if (kind != AttentionKind::eager && !is_flash_attention(kind)) call.kind = kind;
  }

  /// Of neighbours: torch.stack([-x[..., 1::2], x[..., ::2]], -1), of which a slice of either half is as large.
  static Tensor rot(const Tensor& x) {
    const std::int64_t half = x.size(-1) / 2;
    const Tensor negated = [&] {
      const Tensor odd = slice(x, -1, half, half);
      return neg(odd);
    }();
    const Tensor even = slice(x, -1, 0, half);
    return cat({negated, even}, -1);
  }

  Tensor turn(const Tensor& x, const Tensor& sin, const Tensor& cos) const {
    const std::int64_t npt = num_prefix_tokens;
    Tensor turned;
    const Tensor prefix = slice(x, 2, 0, npt);
    {
      const Tensor rest = slice(x, 2, npt, x.size(2) - npt);
      const Tensor sum = [&] {
        const Tensor with_cos = mul(rest, cos);
        const Tensor with_sin = [&] {
          const Tensor rotated = rot(rest);
          return mul(rotated, sin);
        }();
        return add(with_cos, with_sin);
      }();
      turned = to(sum, x.dtype());
    }
    return cat({prefix, turned}, 2);
  }

  Tensor operator()(const Tensor& argument, const Tensor& rope) const {
    ModuleCall self(argument.context(), module);
    const Tensor given = self.argument(argument);
    const std::int64_t b = given.size(0), n = given.size(1), c = given.size(2), dim = c / num_heads;
    Tensor x, v, k, q;
    Tensor packed = qkv(given);
    packed = permute(view(packed, {b, n, 3, num_heads, dim}), {2, 0, 3, 1, 4});
    {
      const TensorList states = unbind(packed);
      q = states[0];
      k = states[1];
      v = states[2];
    }
    const Tensor sin = slice(rope, -1, 0, dim), cos = slice(rope, -1, dim, dim);
    q = turn(q, sin, cos);
    k = turn(k, sin, cos);
    x = attention_forward(call, q, k, v, {}).output;
    x = proj(reshape(x, {b, n, c}));
    return self.result(x);
  }

  Linear qkv, proj;
  std::int64_t num_heads, num_prefix_tokens;
  AttentionCall call;
  ModuleId module;
};

struct Mlp {
  Mlp(const Builder& builder, const PerceptionEncoderConfig& c)
      : fc1(builder.child("fc1", "Linear"), c.embed_dim, c.hidden_features, true),
        act(builder.child("act", "GELU").module),
        fc2(builder.child("fc2", "Linear"), c.hidden_features, c.embed_dim, true),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    Tensor x = fc1(call.argument(argument));
    {
      const ModuleScope scope(argument.context(), act);
      x = activate(Activation::gelu, x);
    }
    x = fc2(x);
    return call.result(x);
  }

  Linear fc1;
  ModuleId act;
  Linear fc2;
  ModuleId module;
};

struct EvaBlock {
  EvaBlock(const Builder& builder, const PerceptionEncoderConfig& c, AttentionKind kind)
      : norm1(builder.child("norm1", "LayerNorm"), c.embed_dim),
        attn(builder.child("attn", "AttentionRope"), c, kind),
        gamma_1(scale(builder, "gamma_1", c)),
        norm2(builder.child("norm2", "LayerNorm"), c.embed_dim),
        mlp(builder.child("mlp", "Mlp"), c),
        gamma_2(scale(builder, "gamma_2", c)),
        module(builder.module) {}

  static Tensor scale(const Builder& builder, const char* name, const PerceptionEncoderConfig& c) {
    builder.children_are_through();
    return c.scales_layers ? builder.parameter(name, {c.embed_dim}) : Tensor();
  }

  Tensor operator()(const Tensor& x_in, const Tensor& rope) const {
    const ModuleScope scope(x_in.context(), module);
    Tensor x_mlp, x_attn;
    {
      const Tensor normed = norm1(x_in);
      x_attn = attn(normed, rope);
    }
    if (gamma_1) x_attn = mul(gamma_1, x_attn);
    Tensor x = add(x_in, x_attn);
    {
      const Tensor normed = norm2(x);
      x_mlp = mlp(normed);
    }
    if (gamma_2) x_mlp = mul(gamma_2, x_mlp);
    x = add(x, x_mlp);
    return x;
  }

  LayerNorm norm1;
  AttentionRope attn;
  Tensor gamma_1;  ///< null: none
  LayerNorm norm2;
  Mlp mlp;
  Tensor gamma_2;
  ModuleId module;
};

// TimmWrapperModel, and the Eva in it. transformers checkpoints no blocks of timm's.
struct VisionTower {
  VisionTower() = default;
  VisionTower(const Builder& builder, const PerceptionEncoderConfig& c, const ModelOptions& options)
      : module(builder.module) {
    const Builder inner = builder.child("timm_model", "Eva");
    timm_model = inner.module;
    const Builder patches = inner.child("patch_embed", "PatchEmbed");
    patch_embed = patches.module;
    proj = Conv2d(patches.child("proj", "Conv2d"), 3, c.embed_dim, c.patch_size, false);
    inner.children_are_through();
    const std::int64_t num_patches = c.side() * c.side();
    if (c.class_token) cls_token = inner.parameter("cls_token", {1, 1, c.embed_dim});
    pos_embed = inner.parameter("pos_embed", {1, num_patches + (c.class_token ? 1 : 0), c.embed_dim});
    const Builder rotary = inner.child("rope", "RotaryEmbeddingCat");
    bands = rotary.buffer({c.head_dim() / 4}, DType::float32);
    rope = rotary.buffer({num_patches, 2 * c.head_dim()}, builder.dtype);
    norm_pre = LayerNorm(inner.child("norm_pre", "LayerNorm"), c.embed_dim);
    stack = BlockStack(inner);
    blocks.reserve(static_cast<std::size_t>(c.depth));
    for (std::int32_t i = 0; i < c.depth; ++i) {
      blocks.emplace_back(inner.child("blocks", "EvaBlock", i), c, options.attention);
      stack.add_block(inner);
    }
    if (c.has_last_norm) norm.emplace_back(inner.child("norm", "LayerNorm"), c.embed_dim);
  }

  Tensor operator()(const Tensor& argument) const {
    Context& context = argument.context();
    ModuleCall call(context, module);
    const Tensor pixel_values = to(call.argument(argument), pos_embed.dtype());
    ModuleScope inside(context, timm_model);
    Tensor x;
    {
      const ModuleScope scope(context, patch_embed);
      const Tensor map = proj(pixel_values);
      x = transpose(reshape(map, {map.size(0), map.size(1), map.size(2) * map.size(3)}), 1, 2);
    }
    {
      const Tensor patches = x;  // forward_features holds them while _pos_embed runs
      if (cls_token) x = cat({expand(cls_token, {x.size(0), 1, x.size(2)}), x}, 1);
      x = add(x, pos_embed);
    }
    x = norm_pre(x);
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&blk = blocks[i], rope = cast_forward_input(rope, blocks[i].module)](const Tensor& hidden) {
        return blk(hidden, rope);
      };
    };
    x = stack.run(0, blocks.size(), std::move(x), {}, block);
    if (!norm.empty()) x = norm.front()(x);
    return call.result(x);
  }

  Conv2d proj;
  Tensor cls_token, pos_embed, bands, rope;
  LayerNorm norm_pre;
  std::vector<EvaBlock> blocks;
  BlockStack stack;
  std::vector<LayerNorm> norm;  ///< one, or none
  ModuleId module = 0, timm_model = 0, patch_embed = 0;
};

struct Projector {
  Projector() = default;
  Projector(const Builder& builder, const PerceptionLmConfig& c)
      : linear_1(builder.child("linear_1", "Linear"), c.vision.embed_dim, c.text.hidden_size, true),
        gelu(builder.child("gelu", "GELU").module),
        linear_2(builder.child("linear_2", "Linear"), c.text.hidden_size, c.text.hidden_size, true),
        pooling(builder.child("pooling", c.projector_pooling_ratio > 1 ? "PerceptionLMAdaptiveAvgPooling" : "Identity")
                    .module),
        ratio(c.projector_pooling_ratio),
        side(c.vision.side()),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    Context& context = argument.context();
    ModuleCall call(context, module);
    Tensor features = permute(call.argument(argument), {1, 0, 2});
    features = linear_1(features);
    {
      const ModuleScope scope(context, gelu);
      features = activate(Activation::gelu, features);
    }
    features = linear_2(features);
    features = permute(features, {1, 0, 2});
    if (ratio > 1) {
      const ModuleScope scope(context, pooling);
      const std::int64_t b = features.size(0), c = features.size(2), fewer = side / ratio;
      Tensor map = reshape(permute(features, {0, 2, 1}), {b, c, side, side});
      map = adaptive_avg_pool(map, fewer);
      features = transpose(reshape(map, {b, c, fewer * fewer}), 1, 2);
    }
    return call.result(features);
  }

  Linear linear_1;
  ModuleId gelu = 0;
  Linear linear_2;
  ModuleId pooling = 0;
  std::int64_t ratio = 1, side = 0;
  ModuleId module = 0;
};

class PerceptionLm : public ImageTextModel {
 public:
  PerceptionLm(Context& context, const PerceptionLmConfig& config, const DataConfig& data, const ModelOptions& options)
      : ImageTextModel(context, "PerceptionLMForConditionalGeneration", Modality::none, data, options),
        config_(config) {
    const Builder model = root_.child("model", "PerceptionLMModel");
    model_ = model.module;
    vision_tower_ =
        VisionTower(model.child("vision_tower", "TimmWrapperModel", Modality::vision), config.vision, options);
    projector_ =
        Projector(model.child("multi_modal_projector", "PerceptionLMMultiModalProjector", Modality::projector), config);
    make_decoder(model.child("language_model", config.text.names->model, Modality::language), config.text, options);
    make_head(root_, config.text, config.tie_word_embeddings);
  }

 private:
  Shape pixel_sizes() const override {
    return {data_.images(), data_.tiles, 3, config_.vision.image_size, config_.vision.image_size};
  }

  ImageFeatures image_features(const ModelInputs& batch) const override {
    const Shape& sizes = batch.pixel_values.sizes();
    const Tensor whole = vision_tower_(view(batch.pixel_values, {sizes[0] * sizes[1], sizes[2], sizes[3], sizes[4]}));
    const Tensor patches = config_.vision_use_cls_token ? slice(whole, 1, 1, whole.size(1) - 1) : whole;
    return {{projector_(patches)}, {whole}};
  }

  Tensor find_placeholders(const Tensor& input_ids, const Tensor&, const Tensor&) const override {
    return grid_placeholder_mask(input_ids, special_video_mask_, false);
  }
  Tensor run_language(const Tensor& inputs_embeds, const ModelInputs& inputs) const override {
    const Tensor other = std::move(special_video_mask_);  // it stays in `_` until forward returns
    return ImageTextModel::run_language(inputs_embeds, inputs);
  }

  PerceptionLmConfig config_;
  VisionTower vision_tower_;
  Projector projector_;
  mutable Tensor special_video_mask_;  ///< of the forward that is run
};

}  // namespace

std::unique_ptr<Model> build_perception_lm(Context& context, const PerceptionLmConfig& config, const DataConfig& data,
                                           const ModelOptions& options) {
  return std::make_unique<PerceptionLm>(context, config, data, options);
}

}  // namespace oometer
