#include "models/idefics3/idefics3.h"

#include <cmath>
#include <functional>

#include "models/clip/clip.h"
#include "models/idefics3/perceiver.h"
#include "models/kit/decoder.h"
#include "nn/checkpointing.h"
#include "ops/integers.h"

namespace oometer {

namespace {

Tensor floats(Context& context, Op op, const Shape& sizes) { return empty(context, op, sizes, DType::float32); }

struct Idefics3VisionEmbeddings {
  Idefics3VisionEmbeddings() = default;
  Idefics3VisionEmbeddings(const Builder& builder, const ClipVisionConfig& config)
      : patch_embedding(builder.child("patch_embedding", "Conv2d"), config.num_channels, config.hidden_size,
                        config.patch_size, true),
        position_embedding(builder.child("position_embedding", "Embedding"), config.num_positions(),
                           config.hidden_size),
        num_patches_per_side(config.image_size / config.patch_size),
        module(builder.module) {}

  Tensor operator()(const Tensor& pixel_values, const Tensor& patch_attention_mask) const {
    Context& context = pixel_values.context();
    ModuleCall call(context, module);
    // Python's locals go in the order in which they were bound: these in the reverse of their declaration.
    Tensor pos_ids, bucket_w, bucket_h, fractional_w, fractional_h, w_indices, h_indices, step_w, step_h, nb_patches_w,
        nb_patches_h, position_ids, boundaries, embeddings, patch_embeds;
    patch_embeds = patch_embedding(pixel_values);
    const std::int64_t batch = patch_embeds.size(0), height = patch_embeds.size(2), width = patch_embeds.size(3);
    embeddings = transpose(view(patch_embeds, {batch, patch_embeds.size(1), checked_product(height, width)}), 1, 2);

    const double step = 1.0 / static_cast<double>(num_patches_per_side);
    boundaries = floats(context, Op::arange, {static_cast<std::int64_t>(std::ceil((1.0 - step) / step))});
    position_ids = integers(context, Op::fill, {batch, checked_product(height, width)});
    nb_patches_h = sum(select(patch_attention_mask, 2, 0), {1}, false);
    nb_patches_w = sum(select(patch_attention_mask, 1, 0), {1}, false);
    const auto inverse = [&] {
      const Tensor reciprocal = floats(context, Op::reciprocal, {batch});
      return floats(context, Op::mul, {batch});
    };
    step_h = inverse();
    step_w = inverse();
    h_indices = floats(context, Op::arange, {height});
    w_indices = floats(context, Op::arange, {width});
    fractional_h = floats(context, Op::mul, {batch, height});
    fractional_w = floats(context, Op::mul, {batch, width});
    fractional_h = floats(context, Op::clamp, {batch, height});
    fractional_w = floats(context, Op::clamp, {batch, width});
    bucket_h = integers(context, Op::index, {batch, height});
    bucket_w = integers(context, Op::index, {batch, width});
    {
      const Tensor rows = integers(context, Op::mul, {batch, height, 1});
      pos_ids = integers(context, Op::add, {batch, height, width});
    }
    position_ids = integers(context, Op::where, position_ids.sizes());
    {
      const Tensor positions = position_embedding(position_ids);
      embeddings = add(embeddings, positions);
    }
    require_input_grad(checkpointing, embeddings, module);
    return call.result(embeddings);
  }

  Conv2d patch_embedding;
  Embedding position_embedding;
  std::int64_t num_patches_per_side = 0;
  CheckpointingConfig checkpointing;  ///< see require_input_grad
  ModuleId module = 0;
};

struct Idefics3VisionTransformer {
  Idefics3VisionTransformer() = default;
  Idefics3VisionTransformer(const Builder& builder, const ClipVisionConfig& config, const ModelOptions& options)
      : embeddings(builder.child("embeddings", config.family->embeddings), config),
        encoder(builder.child("encoder", config.family->encoder), vision_layers(config, options.attention),
                config.num_hidden_layers, options.checkpointing),
        post_layernorm(builder.child("post_layernorm", "LayerNorm"), config.hidden_size),
        module(builder.module) {}

  Tensor operator()(const Tensor& pixel_values, const Tensor& patch_attention_mask) const {
    ModuleCall call(pixel_values.context(), module);
    const Tensor hidden_states = embeddings(pixel_values, patch_attention_mask);
    // create_bidirectional_mask: nothing is masked, which it looks for.
    { const Tensor all = empty(hidden_states.context(), Op::all, {}, DType::boolean); }
    TensorList none;
    Tensor last_hidden_state = encoder(hidden_states, {}, {}, none);
    last_hidden_state = post_layernorm(last_hidden_state);
    return call.result(last_hidden_state);
  }

  Idefics3VisionEmbeddings embeddings;
  ClipEncoder encoder;
  LayerNorm post_layernorm;
  ModuleId module = 0;
};

struct Idefics3Connector {
  Idefics3Connector() = default;
  Idefics3Connector(const Builder& builder, const Idefics3Config& config)
      : scale_factor(config.scale_factor), module(builder.module) {
    const Builder inner = builder.child("modality_projection", config.family->simple_mlp);
    modality_projection = inner.module;
    proj = Linear(inner.child("proj", "Linear"), config.vision.hidden_size * scale_factor * scale_factor,
                  config.text.hidden_size, false);
  }

  Tensor pixel_shuffle(const Tensor& image_hidden_states) const {
    const std::int64_t batch = image_hidden_states.size(0), patches = image_hidden_states.size(1),
                       width = image_hidden_states.size(2) * scale_factor;
    const auto side = static_cast<std::int64_t>(std::sqrt(static_cast<double>(patches)));
    const std::int64_t fewer = side / scale_factor;
    Tensor x = view(image_hidden_states, {batch, side, fewer, width});
    x = transpose(x, 1, 2);
    x = reshape(x, {batch, fewer, fewer, width * scale_factor});
    x = transpose(x, 1, 2);
    return reshape(x, {batch, fewer * fewer, width * scale_factor});
  }

  Tensor operator()(const Tensor& image_hidden_states, const Tensor&) const {
    ModuleCall call(image_hidden_states.context(), module);
    const Tensor x = pixel_shuffle(call.argument(image_hidden_states));
    ModuleCall mlp(x.context(), modality_projection);
    return call.result(mlp.result(proj(mlp.argument(x))));
  }

  Linear proj;
  std::int64_t scale_factor = 1;
  ModuleId module = 0, modality_projection = 0;
};

class Idefics3 : public LanguageModel {
 public:
  Idefics3(Context& context, const Idefics3Config& config, const DataConfig& data, const ModelOptions& options)
      : LanguageModel(context, config.family->conditional_generation, Modality::none, data, options), config_(config) {
    const Builder model = root_.child("model", config.family->model);
    model_ = model.module;
    vision_model_ = Idefics3VisionTransformer(
        model.child("vision_model", config.vision.family->model, Modality::vision), config.vision, options);
    const Builder connector = model.child("connector", config.family->connector, Modality::projector);
    if (config.family->has_perceiver)
      connector_ = Idefics2Connector(connector, config, options.attention);
    else
      connector_ = Idefics3Connector(connector, config);
    make_decoder(model.child("text_model", config.text.names->model, Modality::language), config.text, options);
    vision_model_.embeddings.checkpointing = options.checkpointing;
    language_model_.blocks.first_block = vision_model_.encoder.layers.size();
    make_head(root_, config.text, config.tie_word_embeddings);
  }

  /// The processor's batch: with pixel_attention_mask.
  void make_images(ModelInputs& batch, std::int64_t images_per_sample) override {
    data_.images_per_sample = images_per_sample;
    complete(batch);
    if (!batch.pixel_values) return;
    const Shape& sizes = batch.pixel_values.sizes();
    batch.pixel_attention_mask = input({sizes[0], sizes[1], sizes[3], sizes[4]});
  }

  TensorList encoded_images(const ModelInputs& batch) override {
    if (!batch.pixel_values) return {};
    ImageOutputs image = image_features(batch);
    return {std::move(image.features), std::move(image.last_hidden_state)};
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    TensorList image_hidden_states;
    const Tensor hidden_states = model_forward(inputs, image_hidden_states);
    ModelOutputs outputs = causal_lm_outputs(hidden_states, lm_head_, inputs, loss_function);
    for (const Tensor& tensor : image_hidden_states) outputs.others.push_back(tensor);
    return outputs;
  }

 private:
  struct ImageOutputs {
    Tensor last_hidden_state, features;
  };

  void complete(ModelInputs& batch) override {
    if (data_.images() == 0) return;
    const auto [height, width] = config_.pixels(data_);
    const std::int64_t tiles = data_.sum_of_sample([](const ImageShape& image) { return image.tiles; });
    batch.pixel_values = input({data_.micro_batch_size, tiles, config_.vision.num_channels, height, width},
                               data_.pixel_dtype.value_or(dtype_));
  }

  bool is_smolvlm() const { return config_.family == &kSmolVlm; }

  // get_image_features: no tile is padding, which it finds out by counting zeros
  ImageOutputs image_features(const ModelInputs& batch_in) const {
    const Tensor& padded = batch_in.pixel_values;
    const std::int64_t batch = padded.size(0), tiles = padded.size(1);
    const std::int64_t patch = config_.vision.patch_size, height = padded.size(3), width = padded.size(4),
                       rows = height / patch, columns = width / patch;
    Tensor patch_attention_mask, pixel_attention_mask, num_real_images_per_batch, real_images, pixel_values;
    pixel_values = to(padded, vision_model_.embeddings.patch_embedding.weight.dtype());  // self.dtype
    pixel_values = view(pixel_values, {checked_product(batch, tiles), padded.size(2), height, width});
    const std::int64_t images = pixel_values.size(0);
    {
      Tensor zeros = pointwise(Op::eq, {&pixel_values}, DType::boolean);
      const Tensor count = sum(zeros, {-1, -2, -3}, false);
      zeros.reset();
      real_images = pointwise(Op::ne, {&count}, DType::boolean);
    }
    if (is_smolvlm()) {
      const Tensor any = empty(context_, Op::all, {}, DType::boolean);
      const Tensor none = empty(context_, Op::logical_not, {}, DType::boolean);
    }
    num_real_images_per_batch = sum(view(real_images, {batch, tiles}), {1}, false);
    pixel_values = index_mask(pixel_values, real_images, images);
    pixel_attention_mask =
        batch_in.pixel_attention_mask
            ? index_mask(view(batch_in.pixel_attention_mask, {images, height, width}), real_images, images)
            : empty(context_, Op::ones_like, {images, height, width}, DType::boolean);
    {
      // unfold: a view of [images, rows, columns, patch, patch]
      const Tensor count = integers(context_, Op::sum, {images, rows, columns});
      if (!batch_in.pixel_attention_mask)
        const Tensor as_integers = integers(context_, Op::to_copy, {images, rows, columns, patch, patch});
      patch_attention_mask =
          pointwise(config_.family->has_perceiver ? Op::eq : Op::gt, {&count}, DType::boolean);  // == patch_size ** 2
    }
    ImageOutputs outputs;
    outputs.last_hidden_state = vision_model_(pixel_values, patch_attention_mask);
    outputs.features =
        connector_(outputs.last_hidden_state, view(patch_attention_mask, {images, checked_product(rows, columns)}));
    pixel_values.reset();
    real_images.reset();
    num_real_images_per_batch.reset();
    return outputs;
  }

  // inputs_merger, SmolVLM's get_placeholder_mask
  Tensor placeholder_mask(const Tensor& input_ids) const {
    const Tensor mask = pointwise(Op::eq, {&input_ids}, DType::boolean);
    Tensor count = sum_all(mask);
    Tensor elements = mul_scalar(count);
    if (!is_smolvlm()) count.reset();
    const Tensor matches = pointwise(Op::eq, {&elements}, DType::boolean);
    elements.reset();
    return unsqueeze(mask, -1);
  }

  // Idefics3Model.forward
  Tensor model_forward(const ModelInputs& inputs, TensorList& returned) const {
    ModuleCall call(context_, model_);
    Tensor inputs_embeds = language_model_.embed(inputs.input_ids);
    ImageOutputs image;
    Tensor image_hidden_states, special_image_mask;
    if (has_images(inputs)) {
      // in a dictionary that lives until forward returns
      image = inputs.images ? ImageOutputs{(*inputs.images)[1], (*inputs.images)[0]} : image_features(inputs);
      const Tensor& features = image.features;
      const Tensor flat = view(features, {checked_product(features.size(0), features.size(1)), features.size(2)});
      image_hidden_states = cat({split(flat)}, 0);
      // self.dtype: the first parameter's, as it is now (FSDP's mixed precision)
      image_hidden_states = to(image_hidden_states, vision_model_.embeddings.patch_embedding.weight.dtype());
      special_image_mask = placeholder_mask(inputs.input_ids);
      inputs_embeds = masked_scatter(inputs_embeds, special_image_mask, image_hidden_states);
      if (!is_smolvlm()) special_image_mask.reset();
      // SmolVLM gives back what get_image_features gave, the tower's own output with it.
      if (is_smolvlm()) {
        returned = {image.last_hidden_state};
        const std::int64_t samples = inputs.input_ids.size(0);
        const std::vector<std::int64_t> rows(static_cast<std::size_t>(samples), flat.size(0) / samples);
        for (const Tensor& of_sample : split(flat, rows, 0)) returned.push_back(of_sample);
      } else {
        returned = {image_hidden_states};
      }
    }
    return call.result(
        run_decoder(inputs_embeds, {inputs.position_ids, inputs.attention_mask, inputs.rows, inputs.cu_seq_lens_q}));
  }

  Idefics3Config config_;
  Idefics3VisionTransformer vision_model_;
  std::function<Tensor(const Tensor& image_hidden_states, const Tensor& attention_mask)> connector_;
  ModuleId model_ = 0;
};

}  // namespace

std::unique_ptr<Model> build_idefics3(Context& context, const Idefics3Config& config, const DataConfig& data,
                                      const ModelOptions& options) {
  return std::make_unique<Idefics3>(context, config, data, options);
}

}  // namespace oometer
