#include "models/llava/llava.h"

#include <algorithm>
#include <variant>

#include "models/clip/clip.h"
#include "models/kit/decoder.h"
#include "models/llava/next.h"
#include "models/siglip/siglip.h"
#include "nn/activation.h"
#include "ops/integers.h"
#include "ops/ops.h"

namespace oometer {

namespace {

struct LlavaMultiModalProjector {
  LlavaMultiModalProjector() = default;
  LlavaMultiModalProjector(const Builder& builder, const LlavaConfig& config)
      : linear_1(builder.child("linear_1", "Linear"), config.projector_input_size(), config.text.hidden_size,
                 config.projector_bias),
        linear_2(builder.child("linear_2", "Linear"), config.text.hidden_size, config.text.hidden_size,
                 config.projector_bias),
        act(config.projector_hidden_act),
        module(builder.module) {}

  Tensor operator()(const Tensor& selected) const {
    ModuleCall call(selected.context(), module);
    const Tensor image_features = call.argument(selected);
    Tensor hidden_states = linear_1(image_features);
    hidden_states = activate(act, hidden_states);
    return call.result(linear_2(hidden_states));
  }

  Linear linear_1, linear_2;
  Activation act = Activation::gelu;
  ModuleId module = 0;
};

// What _merge_input_ids_with_image_features gives.
struct Merged {
  Tensor embedding, attention_mask, labels, position_ids;
};

// LlavaForConditionalGeneration
class Llava : public LanguageModel {
 public:
  Llava(Context& context, const LlavaConfig& config, const DataConfig& data, const ModelOptions& options)
      : LanguageModel(context, config.of->class_name, Modality::none, data, options),
        behaviours_(context.behaviours),
        config_(config) {
    if (behaviours_.llava_holds_causal_lm) loss_type = LossType::shifted;
    const bool holds_causal_lm = behaviours_.llava_holds_causal_lm;
    const Builder model = holds_causal_lm ? root_ : root_.child("model", config.of->model);
    model_ = model.module;
    const Builder tower = model.child("vision_tower", config.vision.family->model, Modality::vision);
    if (config.has_siglip())
      vision_tower_ = SiglipVisionModel(tower, config.vision, options);
    else
      vision_tower_ = ClipVisionModel(tower, config.vision, options);
    projector_ = LlavaMultiModalProjector(
        model.child("multi_modal_projector", config.of->projector, Modality::projector), config);
    if (config.is_next()) {
      model.children_are_through();
      const Tensor random = empty(context, Op::empty, {config.text.hidden_size}, options.dtype);
      Builder newline = model;
      newline.modality = Modality::projector;
      image_newline_ = newline.parameter("image_newline", {config.text.hidden_size});
    }
    const Builder language =
        model.child("language_model", holds_causal_lm ? config.text.names->causal_lm : config.text.names->model,
                    Modality::language);
    causal_lm_ = language.module;
    make_decoder(holds_causal_lm ? language.child("model", config.text.names->model) : language, config.text, options);
    std::visit(
        [&](auto& vision) {
          vision.embeddings.checkpointing = options.checkpointing;
          // Before 5.x the hook was put on the main model's embeddings alone, the text's.
          vision.embeddings.checkpointing.input_require_grads = false;
          language_model_.blocks.first_block = vision.encoder.layers.size();
        },
        vision_tower_);
    make_head(holds_causal_lm ? language : root_, config.text, config.tie_word_embeddings);
    if (!behaviours_.captures_all_hidden_states)
      captured_ = config.vision_feature_layers;
    else
      for (std::int64_t i = 0; i <= config.vision.num_hidden_layers; ++i) captured_.push_back(i);
  }

  void make_images(ModelInputs& batch, std::int64_t images_per_sample) override {
    data_.images_per_sample = images_per_sample;
    if (data_.images() > 0) batch.pixel_values = input(pixel_sizes(), data_.pixel_dtype.value_or(dtype_));
  }

  TensorList encoded_images(const ModelInputs& batch) override {
    if (!batch.pixel_values) return {};
    TensorList outputs;  // of LLaVA-NeXT: a tensor an image
    ClipVisionOutput image =
        config_.is_next() ? next_image_features(batch.pixel_values, outputs) : image_features(batch.pixel_values);
    if (!config_.is_next()) outputs.push_back(std::move(image.pooler_output));
    for (Tensor& hidden_states : image.hidden_states) outputs.push_back(std::move(hidden_states));
    outputs.push_back(std::move(image.last_hidden_state));
    return outputs;
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    if (behaviours_.llava_holds_causal_lm) return forward_around_causal_lm(inputs);
    Tensor image_hidden_states;
    const Tensor hidden_states = model_forward(inputs, image_hidden_states);
    ModelOutputs outputs = causal_lm_outputs(hidden_states, lm_head_, inputs, loss_function);
    if (image_hidden_states) outputs.others.push_back(image_hidden_states);
    return outputs;
  }

 private:
  std::int64_t text_length() const override {
    // Where the model itself makes room for the features, each image is one token of the input.
    const bool makes_room = data_.images() > 0 && behaviours_.llava_merge == LlavaMerge::legacy_index_put;
    return data_.sequence_length -
           (makes_room ? checked_product(data_.images_per_sample, config_.tokens_per_image() - 1) : 0);
  }

  void complete(ModelInputs& batch) override {
    make_images(batch, data_.images_per_sample);
    // What the processor gives beside them goes to the device with the batch.
    if (config_.is_next() && data_.pixel_dtype && data_.images() > 0)
      batch.image_grid_thw = input({data_.images(), 2});  // image_sizes
    // These versions cannot do without one where there are images; the processor always gives it.
    if (behaviours_.llava_holds_causal_lm) batch.attention_mask = input(batch.input_ids.sizes());
  }

  Shape pixel_sizes() const {
    const ClipVisionConfig& v = config_.vision;
    if (config_.is_next()) {
      std::int64_t tiles = data_.tiles;  // padded to the most (_pad_for_batching)
      for (const ImageShape& image : data_.sample_images) tiles = std::max(tiles, image.tiles);
      return {data_.images(), tiles, v.num_channels, v.image_size, v.image_size};
    }
    return {data_.images(), v.num_channels, data_.image_height, data_.image_width};
  }

  ClipVisionOutput tower_outputs(const Tensor& pixel_values) const {
    return std::visit([&](const auto& vision) { return vision(pixel_values, captured_); }, vision_tower_);
  }

  Tensor selected_features(const ClipVisionOutput& image_outputs) const {
    const auto select = [&](const Tensor& hidden_states) {
      return config_.vision_feature_select == FeatureSelect::without_class_token
                 ? slice(hidden_states, 1, 1, hidden_states.size(1) - 1)
                 : hidden_states;
    };
    const auto states = [&](std::size_t k) -> const Tensor& {
      return image_outputs.hidden_states[behaviours_.captures_all_hidden_states
                                             ? static_cast<std::size_t>(config_.vision_feature_layers[k])
                                             : k];
    };
    if (!config_.vision_feature_layer_is_list) return select(states(0));
    // LLaVA-NeXT's classes drop the class token of all layers together, LLaVA's of each.
    TensorList pool;
    for (std::size_t k = 0; k < config_.vision_feature_layers.size(); ++k)
      pool.push_back(config_.is_next() ? states(k) : select(states(k)));
    const Tensor all = cat(pool, -1);
    return config_.is_next() ? select(all) : all;
  }

  // LlavaModel.get_image_features; before 4.52 LlavaForConditionalGeneration's, which gives the features only
  ClipVisionOutput image_features(const Tensor& pixel_values) const {
    ClipVisionOutput image_outputs = tower_outputs(pixel_values);
    const Tensor selected = selected_features(image_outputs);
    image_outputs.pooler_output = projector_(selected);
    if (!behaviours_.captures_all_hidden_states) return image_outputs;
    return {{}, image_outputs.pooler_output, {}};
  }

  // LlavaNextModel.get_image_features
  ClipVisionOutput next_image_features(const Tensor& tiles_of_images, TensorList& packed) const {
    Tensor feature_lens;  // goes last
    // A cat of each image's own tiles.
    const Shape sizes = pixel_sizes();
    const Tensor pixel_values =
        empty(context_, Op::cat, {data_.all_tiles(), sizes[2], sizes[3], sizes[4]}, tiles_of_images.dtype());
    ClipVisionOutput image_outputs = tower_outputs(pixel_values);
    const Tensor selected = selected_features(image_outputs);
    TensorList image_features;
    {
      const Tensor projected = projector_(selected);
      image_features = split(projected, data_.of_each_image([](const ImageShape& image) { return image.tiles; }), 0);
    }
    packed = pack_image_features(config_, data_, image_features, image_newline_);
    feature_lens = empty(context_, Op::to_copy, {data_.images()}, DType::int64);
    image_features.clear();
    image_outputs.pooler_output.reset();
    return image_outputs;
  }

  // LlavaModel.get_placeholder_mask, and what stood in its place
  Tensor placeholder_mask(const Tensor& input_ids, const Tensor& inputs_embeds, const Tensor& features) const {
    const auto is_image_token = [&] { return pointwise(Op::eq, {&input_ids}, DType::boolean); };
    const auto expanded = [&](const Tensor& mask) { return expand(unsqueeze(mask, -1), inputs_embeds.sizes()); };
    switch (behaviours_.placeholder_check) {
      case PlaceholderCheck::count: {
        const Tensor tokens = is_image_token();
        const Tensor count = sum_all(tokens);
      }
        return expanded(is_image_token());
      case PlaceholderCheck::by_index: {
        const Tensor mask = is_image_token();
        Tensor count;
        if (!behaviours_.llava_holds_causal_lm) count = sum_all(mask);  // 4.52 and later: for the message
        Tensor wide = expanded(mask);
        { const Tensor gathered = index_mask(inputs_embeds, wide, features.numel()); }
        return wide;
      }
      case PlaceholderCheck::scalar:
        break;
    }
    const Tensor mask = is_image_token();
    const Tensor count = sum_all(mask);
    const Tensor elements = mul_scalar(count);
    const Tensor matches = pointwise(Op::eq, {&elements}, DType::boolean);
    return unsqueeze(mask, -1);
  }

  // LlavaModel.forward
  Tensor model_forward(const ModelInputs& inputs, Tensor& image_hidden_states) const {
    ModuleCall call(context_, model_);
    Tensor inputs_embeds = language_model_.embed(inputs.input_ids);
    ClipVisionOutput image;
    TensorList packed;          // LLaVA-NeXT keeps both in a dictionary until forward returns
    Tensor special_image_mask;  // bound until forward returns
    if (has_images(inputs)) {
      if (inputs.images && config_.is_next())
        for (std::size_t i = 0; std::ssize(packed) < data_.images(); ++i) packed.push_back((*inputs.images)[i]);
      else if (inputs.images)
        image.pooler_output = inputs.images->front();
      else
        image =
            config_.is_next() ? next_image_features(inputs.pixel_values, packed) : image_features(inputs.pixel_values);
      Tensor features = config_.is_next() ? cat(packed, 0) : cat_unbound(image.pooler_output);
      if (behaviours_.captures_all_hidden_states)
        image.pooler_output.reset();  // list(image_features), bound to the same name
      features = to(features, inputs_embeds.dtype());
      special_image_mask = placeholder_mask(inputs.input_ids, inputs_embeds, features);
      inputs_embeds = masked_scatter(inputs_embeds, special_image_mask, features);
      image_hidden_states = features;
    }
    return call.result(
        run_decoder(inputs_embeds, {inputs.position_ids, inputs.attention_mask, inputs.rows, inputs.cu_seq_lens_q}));
  }

  // LlavaForConditionalGeneration.forward up to 4.51, with the LlamaForCausalLM that it holds
  ModelOutputs forward_around_causal_lm(const ModelInputs& inputs) const {
    const Tensor &input_ids = inputs.input_ids, &pixel_values = inputs.pixel_values;
    ModelOutputs outputs;
    Tensor inputs_embeds = language_model_.embed(input_ids);
    if (behaviours_.llava_chooses_merge) {
      Tensor counts;
      {
        const Tensor tokens = pointwise(Op::eq, {&input_ids}, DType::boolean);
        counts = empty(context_, Op::sum, {input_ids.size(0)}, DType::int64);
        const Tensor as_integers = empty(context_, Op::to_copy, input_ids.sizes(), DType::int64);
      }
      const Tensor most = empty(context_, Op::max, {}, DType::int64);
      counts.reset();
      const Tensor fewer = pointwise(Op::lt, {&most}, DType::boolean);
    }
    Merged merged{inputs_embeds, inputs.attention_mask, inputs.labels, {}};
    ClipVisionOutput image_outputs;  // up to 4.45 a name of forward's own: every hidden state lives to its end
    Tensor features, selected, special_image_mask;
    if (pixel_values && behaviours_.llava_merge == LlavaMerge::legacy_index_put) {
      image_outputs = tower_outputs(pixel_values);
      selected = selected_features(image_outputs);
      features = projector_(selected);
      merged.embedding.reset();
      merged = merge_input_ids_with_image_features(input_ids, features, inputs_embeds);
      inputs_embeds.reset();
    } else if (pixel_values) {
      features = image_features(pixel_values).pooler_output;
      features = to(features, inputs_embeds.dtype());
      special_image_mask = placeholder_mask(input_ids, inputs_embeds, features);
      merged.embedding.reset();
      inputs_embeds = masked_scatter(inputs_embeds, special_image_mask, features);
      merged.embedding = inputs_embeds;
    }
    const Tensor logits = causal_lm(merged);
    if (merged.labels) outputs.loss = (*loss_function)(logits, merged.labels, merged.attention_mask);
    outputs.others.push_back(logits);
    if (!image_outputs.last_hidden_state) outputs.others.push_back(features);
    return outputs;
  }

  // LlamaForCausalLM.forward without labels
  Tensor causal_lm(const Merged& merged) const {
    ModuleCall call(context_, causal_lm_);
    const Tensor hidden_states = run_decoder(merged.embedding, {merged.position_ids, merged.attention_mask});
    Tensor logits = lm_head_(hidden_states);
    if (behaviours_.logits_float_in_model) logits = to(logits, DType::float32);
    return call.result(logits);
  }

  // _merge_input_ids_with_image_features (4.37.2, 4.44.2): every index tensor by its size
  Merged merge_input_ids_with_image_features(const Tensor& input_ids, const Tensor& image_features,
                                             const Tensor& inputs_embeds) const {
    const std::int64_t batch = input_ids.size(0), length = data_.sequence_length, width = inputs_embeds.size(2);
    const std::int64_t features = checked_product(image_features.size(0), image_features.size(1));
    const std::int64_t text = checked_product(batch, input_ids.size(1) - data_.images_per_sample);
    const Shape input = input_ids.sizes(), merged{batch, length};
    const auto booleans = [&](Op op, const Shape& sizes) { return empty(context_, op, sizes, DType::boolean); };
    const auto sum_booleans = [&](const Shape& sizes, const Shape& result) {
      Tensor total = integers(context_, Op::sum, result);
      const Tensor as_integers = integers(context_, Op::to_copy, sizes);
      return total;
    };
    const auto find = [&](const Shape& sizes, std::int64_t count) {
      const Tensor mask = booleans(Op::ne, sizes);
      return nonzero(mask, count);
    };
    {
      const Tensor padded = booleans(Op::eq, {batch});
      const Tensor left_padding = sum_booleans({batch}, {});
    }
    const Tensor special_image_token_mask = booleans(Op::eq, input);
    const Tensor num_special_image_tokens = sum_booleans(input, {batch});
    Tensor max_embed_dim;
    {
      Tensor most = integers(context_, Op::max, {});
      most = integers(context_, Op::mul, {});
      max_embed_dim = integers(context_, Op::add, {});
    }
    const Tensor where = find(input, text);  // batch_indices and non_image_indices are views of it
    const Tensor batch_indices = select(where, 1, 0), non_image_indices = select(where, 1, 1);
    Tensor new_token_positions = integers(context_, Op::mul, input);
    new_token_positions = integers(context_, Op::add, input);
    new_token_positions = integers(context_, Op::cumsum, input);
    new_token_positions = integers(context_, Op::sub, input);
    Tensor nb_image_pad;
    {
      const Tensor last = integers(context_, Op::sub, {});
      nb_image_pad = integers(context_, Op::sub, {batch});
    }
    const Tensor text_to_overwrite = integers(context_, Op::index, {text});

    Merged result;
    result.embedding = empty(context_, Op::zeros, {batch, length, width}, inputs_embeds.dtype());
    result.attention_mask = integers(context_, Op::zeros, merged);
    result.labels = integers(context_, Op::fill, merged);
    {
      const Tensor values = index(inputs_embeds, batch_indices, non_image_indices);
      result.embedding = index_put_(std::move(result.embedding), batch_indices, text_to_overwrite, values);
    }
    for (int copied : {0, 1}) {  // the mask, the labels
      (void)copied;
      const Tensor values = integers(context_, Op::index, {text});
    }
    Tensor image_to_overwrite;
    if (behaviours_.legacy_merge_looks_for_zeros) {
      const Tensor zeros = booleans(Op::eq, result.embedding.sizes());
      image_to_overwrite = booleans(Op::all, merged);
    } else {
      image_to_overwrite = booleans(Op::fill, merged);
      const Tensor value = booleans(Op::to_copy, {});
    }
    {
      Tensor order = integers(context_, Op::cumsum, merged);
      { const Tensor as_integers = integers(context_, Op::cumsum, merged); }
      order = integers(context_, Op::sub, merged);
      const Tensor beyond_padding = booleans(Op::ge, merged);
    }
    {
      const Tensor found = sum_booleans(merged, {});
      const Tensor differs = booleans(Op::ne, {});
    }
    result.embedding = index_put_mask_(std::move(result.embedding), image_to_overwrite,
                                       view(contiguous(image_features), {features, width}));
    result.position_ids = integers(context_, Op::cumsum, merged);
    result.position_ids = integers(context_, Op::sub, merged);
    { const Tensor masked = booleans(Op::eq, merged); }
    if (behaviours_.legacy_merge_blanks_padding) {
      const Tensor padding = find(input, 0);
      const Tensor zero = empty(context_, Op::fill, {}, inputs_embeds.dtype());
      result.embedding = index_put_(std::move(result.embedding), select(padding, 1, 0), select(padding, 1, 1), zero);
    }
    return result;
  }

  const Behaviours& behaviours_;
  LlavaConfig config_;
  std::variant<ClipVisionModel, SiglipVisionModel> vision_tower_;
  LlavaMultiModalProjector projector_;
  Tensor image_newline_;
  std::vector<std::int64_t> captured_;  ///< the tower's hidden states that are kept
  ModuleId model_ = 0, causal_lm_ = 0;
};

}  // namespace

std::unique_ptr<Model> build_llava(Context& context, const LlavaConfig& config, const DataConfig& data,
                                   const ModelOptions& options) {
  if (context.behaviours.llava_merge == LlavaMerge::split_and_cat)
    return build_original_llava(context, config, data, options);
  return std::make_unique<Llava>(context, config, data, options);
}

}  // namespace oometer
