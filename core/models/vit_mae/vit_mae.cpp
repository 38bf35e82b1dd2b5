#include "models/vit_mae/vit_mae.h"

#include <optional>
#include <utility>

#include "nn/checkpointing.h"
#include "ops/argsort.h"
#include "ops/experts.h"
#include "ops/integers.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

namespace {

/// build_2d_sinusoidal_position_embedding with cls_token, and its halves in the other order: what is there meanwhile.
void make_sinusoids(Context& context, std::int64_t side, std::int64_t dim) {
  const std::int64_t patches = side * side, quarter = dim / 4;
  const auto doubles = [&](Op op, const Shape& sizes) { return empty(context, op, sizes, DType::float64); };
  Tensor pos_embed;
  {
    Tensor steps = doubles(Op::arange, {quarter}), omega = doubles(Op::div, {quarter});
    steps.reset();
    {
      const Tensor powers = doubles(Op::pow, {quarter});
      { const Workspace base(context, Op::pow, 8); }
      const Tensor inverse = doubles(Op::reciprocal, {quarter});
      omega = doubles(Op::mul, {quarter});
    }
    const Tensor grid_h = doubles(Op::arange, {side}), grid_w = doubles(Op::arange, {side});
    const auto outer = [&] {
      const Tensor flat = doubles(Op::clone, {patches});
      return doubles(Op::mul, {patches, quarter});
    };
    const Tensor emb_h = outer(), emb_w = outer();
    Tensor wide;
    {
      const Tensor sin_h = doubles(Op::sin, {patches, quarter}), cos_h = doubles(Op::cos, {patches, quarter}),
                   sin_w = doubles(Op::sin, {patches, quarter}), cos_w = doubles(Op::cos, {patches, quarter});
      wide = doubles(Op::cat, {patches, dim});
    }
    {
      const Tensor zeros = doubles(Op::zeros, {1, dim});
      wide = doubles(Op::cat, {patches + 1, dim});
    }
    pos_embed = empty(context, Op::to_copy, {patches + 1, dim}, DType::float32);
  }
  pos_embed = empty(context, Op::cat, {patches + 1, dim}, DType::float32);
}

std::int64_t side_of(std::int64_t patches) {
  std::int64_t side = 0;
  while ((side + 1) * (side + 1) <= patches) ++side;
  return side;
}

/// x[batch, ids[batch, i], :] for each i: torch.gather(x, 1, ids.unsqueeze(-1).repeat(1, 1, dim)).
Tensor gather_rows(const Tensor& x, const Tensor& ids) {
  return gather(x, repeat(unsqueeze(ids, 2), {1, 1, x.size(2)}));
}

struct VitMaeEmbeddings {
  VitMaeEmbeddings() = default;
  VitMaeEmbeddings(const Builder& builder, const VitMaeConfig& c, const ModelOptions& options)
      : config(c), checkpointing(options.checkpointing), module(builder.module) {
    cls_token = builder.parameter("cls_token", {1, 1, c.hidden_size});
    const Builder patches = builder.child("patch_embeddings", c.names->patch_embeddings);
    patch_embeddings = patches.module;
    projection = Conv2d(patches.child("projection", "Conv2d"), c.num_channels, c.hidden_size, c.patch_size, true);
    position_embeddings = builder.parameter("position_embeddings", {1, c.num_patches() + 1, c.hidden_size});
    position_embeddings->leaf_requires_grad = false;
  }

  struct Outputs {
    Tensor embeddings, mask, ids_restore;
  };

  Outputs operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    const Tensor pixel_values = call.argument(argument);
    Outputs its;
    its.embeddings = embed_patches(pixel_values);
    if (checkpointing.input_require_grads) require_input_grad(checkpointing, its.embeddings, patch_embeddings);
    its.embeddings = add(its.embeddings, slice(position_embeddings, 1, 1, config.num_patches()));
    its = random_masking(its.embeddings);
    const Tensor class_token = add(cls_token, slice(position_embeddings, 1, 0, 1));
    its.embeddings =
        call.result(cat({expand(class_token, {its.embeddings.size(0), 1, config.hidden_size}), its.embeddings}, 1));
    return its;
  }

  Tensor embed_patches(const Tensor& argument) const {
    ModuleCall patches(argument.context(), patch_embeddings);
    const Tensor pixel_values = patches.argument(argument);
    check_pixels(pixel_values, projection.weight);
    const Tensor projected = projection(pixel_values);
    return patches.result(
        transpose(reshape(projected, {projected.size(0), config.hidden_size, config.num_patches()}), 1, 2));
  }

  Outputs random_masking(const Tensor& sequence) const {
    Context& context = sequence.context();
    const std::int64_t batch = sequence.size(0), length = sequence.size(1);
    const Tensor noise = empty(context, Op::empty, {batch, length}, DType::float32);
    const Tensor ids_shuffle = argsort(noise), ids_restore = argsort(ids_shuffle);
    const Tensor sequence_unmasked = gather_rows(sequence, slice(ids_shuffle, 1, 0, config.num_kept));
    Tensor mask = empty(context, Op::fill, {batch, length}, DType::float32);
    mask = gather(mask, ids_restore);
    return {sequence_unmasked, mask, ids_restore};
  }

  VitMaeConfig config;
  Tensor cls_token, position_embeddings;
  Conv2d projection;
  CheckpointingConfig checkpointing;
  ModuleId module = 0, patch_embeddings = 0;
};

struct VitMaeDecoder {
  VitMaeDecoder(const Builder& builder, const VitMaeConfig& c, const ModelOptions& options) : module(builder.module) {
    decoder_embed = Linear(builder.child("decoder_embed", "Linear"), c.hidden_size, c.decoder_hidden_size, true);
    builder.children_are_through();
    mask_token = builder.parameter("mask_token", {1, 1, c.decoder_hidden_size});
    decoder_pos_embed = builder.parameter("decoder_pos_embed", {1, c.num_patches() + 1, c.decoder_hidden_size});
    decoder_pos_embed->leaf_requires_grad = false;
    VitConfig decoder_config = c;
    decoder_config.hidden_size = c.decoder_hidden_size;
    decoder_config.num_hidden_layers = c.decoder_num_hidden_layers;
    decoder_config.num_attention_heads = c.decoder_num_attention_heads;
    decoder_config.intermediate_size = c.decoder_intermediate_size;
    decoder_layers = VitLayers(builder, "decoder_layers", decoder_config, options);
    decoder_layers.blocks.first_block = static_cast<std::size_t>(c.num_hidden_layers);
    decoder_norm = LayerNorm(builder.child("decoder_norm", "LayerNorm"), c.decoder_hidden_size);
    decoder_pred = Linear(builder.child("decoder_pred", "Linear"), c.decoder_hidden_size, c.patch_elements(), true);
    make_sinusoids(*builder.context, side_of(c.num_patches()), c.decoder_hidden_size);
  }

  Tensor operator()(const Tensor& argument, const Tensor& ids_restore) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_states = decoder_embed(call.argument(argument));
    const std::int64_t batch = hidden_states.size(0), kept = hidden_states.size(1) - 1, patches = ids_restore.size(1);
    const Tensor mask_tokens = repeat(mask_token, {batch, patches - kept, 1});
    Tensor unmasked_tokens = cat({slice(hidden_states, 1, 1, kept), mask_tokens}, 1);
    unmasked_tokens = gather_rows(unmasked_tokens, ids_restore);
    hidden_states = cat({slice(hidden_states, 1, 0, 1), unmasked_tokens}, 1);
    hidden_states = add(hidden_states, decoder_pos_embed);
    hidden_states = decoder_layers(std::move(hidden_states));
    hidden_states = decoder_norm(hidden_states);
    const Tensor logits = decoder_pred(hidden_states);
    return call.result(slice(logits, 1, 1, patches));
  }

  Linear decoder_embed;
  Tensor mask_token, decoder_pos_embed;
  VitLayers decoder_layers;
  LayerNorm decoder_norm;
  Linear decoder_pred;
  ModuleId module;
};

class VitMae : public ImageModel {
 public:
  VitMae(Context& context, const VitMaeConfig& c, const DataConfig& data, const ModelOptions& options)
      : ImageModel(context, c, data, options), config_(c) {
    const Builder model = c.pretrains ? root_.child("vit", c.names->model) : root_;
    model_ = model.module;
    embeddings_ = VitMaeEmbeddings(model.child("embeddings", c.names->embeddings), c, options);
    layers_ = VitLayers(model, "layers", c, options);
    layernorm_ = LayerNorm(model.child("layernorm", "LayerNorm"), c.hidden_size);
    if (c.pretrains) decoder_.emplace(root_.child("decoder", "ViTMAEDecoder"), c, options);
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    Tensor mask, ids_restore;
    Tensor latent = model_forward(inputs.pixel_values, mask, ids_restore);
    if (!decoder_) return {{}, {}, {std::move(latent), std::move(mask), std::move(ids_restore)}};
    Tensor logits = (*decoder_)(latent, ids_restore);
    Tensor loss = loss_of(inputs.pixel_values, logits, mask);
    return {std::move(loss), {}, {std::move(logits), std::move(mask), std::move(ids_restore)}};
  }

 private:
  // ViTMAEModel.forward
  Tensor model_forward(const Tensor& argument, Tensor& mask, Tensor& ids_restore) const {
    ModuleCall call(context_, model_);
    const VitMaeEmbeddings::Outputs embedded = embeddings_(call.argument(argument));
    mask = call.result(embedded.mask);
    ids_restore = call.result(embedded.ids_restore);
    const Tensor hidden_states = layers_(embedded.embeddings);
    return call.result(layernorm_(hidden_states));
  }

  // ViTMAEForPreTraining.forward, behind the decoder
  Tensor loss_of(const Tensor& pixel_values, const Tensor& logits, const Tensor& mask) const {
    // patchify
    Tensor target = empty(context_, Op::clone, {pixel_values.size(0), config_.num_patches(), config_.patch_elements()},
                          pixel_values.dtype());
    Tensor average, variance;
    if (config_.norm_pix_loss) {
      average = mean(target, -1, true);
      variance = var(target, {-1}, true);
      const Tensor centred = sub(target, average);
      const Tensor deviation = [&] {
        const Tensor padded = add_scalar(variance);
        return pow(padded, 0.5);
      }();
      target = div(centred, deviation);
    }
    Tensor loss = [&] {
      const Tensor difference = sub(logits, target);
      return pow(difference, 2);
    }();
    loss = mean(loss, -1, false);
    const Tensor sum = [&] {
      const Tensor product = mul(loss, mask);
      return sum_all(product);
    }();
    const Tensor masked = sum_all(mask);
    return div(sum, masked);
  }

  VitMaeConfig config_;
  VitMaeEmbeddings embeddings_;
  VitLayers layers_;
  LayerNorm layernorm_;
  std::optional<VitMaeDecoder> decoder_;
  ModuleId model_ = 0;
};

}  // namespace

std::unique_ptr<Model> build_vit_mae(Context& context, const VitMaeConfig& config, const DataConfig& data,
                                     const ModelOptions& options) {
  return std::make_unique<VitMae>(context, config, data, options);
}

}  // namespace oometer
