#include "models/florence2/florence2.h"

#include <utility>

#include "models/bert/bert.h"
#include "models/kit/conv2d.h"
#include "models/kit/image_text.h"
#include "models/kit/shift_tokens.h"
#include "models/vit/vit.h"
#include "nn/activation.h"
#include "nn/attention.h"
#include "ops/ops.h"
#include "ops/vision.h"
#include "tensor/node.h"

/// Names and order of steps are the modeling file's.
namespace oometer {

namespace {

Tensor permuted(const Tensor& x, const Shape& order) { return permute(x, order); }

/// F.pad(x, (0, 0, 0, right, 0, bottom)) of [b, height, width, channels]; of nothing it is a clone.
Tensor pad_to(const Tensor& x, std::int64_t height, std::int64_t width) {
  Record record(Op::constant_pad_nd,
                [](Backward& b) { b.give(0, empty(b.context, Op::constant_pad_nd, b.node.sizes, b.grad().dtype())); },
                {&x});
  if (record) record->sizes = x.sizes();
  return record.output(empty(x.context(), Op::constant_pad_nd, {x.size(0), height, width, x.size(3)}, x.dtype()));
}

AttentionOutputs attend(const AttentionCall& call, const AttentionInputs& states) {
  if (call.kind == AttentionKind::eager) return eager_in_own_type(call, states, {});
  return attention_forward(call, states.query, states.key, states.value, {});
}

struct Florence2VisionConvEmbed {
  Florence2VisionConvEmbed(const Builder& builder)
      : conv_builder(builder.child("conv", "Conv2d")),
        norm_builder(builder.child("norm", "LayerNorm")),
        module(builder.module) {}

  void make(const DavitConfig& c, std::size_t stage) {
    const std::int64_t in = stage == 0 ? c.in_channels : c.embed_dim[stage - 1];
    pre_norm = c.patch_prenorm[stage] != 0;
    conv =
        AnyConv2d(conv_builder, in, c.embed_dim[stage],
                  {.kernel = c.patch_size[stage], .stride = c.patch_stride[stage], .padding = c.patch_padding[stage]});
    norm = LayerNorm(norm_builder, pre_norm ? in : c.embed_dim[stage]);
  }

  Tensor operator()(const Tensor& hidden_in) const {
    ModuleCall call(hidden_in.context(), module);
    Tensor hidden_states = call.argument(hidden_in);
    const auto normalise = [&] {
      hidden_states = permuted(hidden_states, {0, 2, 3, 1});
      hidden_states = norm(hidden_states);
      hidden_states = permuted(hidden_states, {0, 3, 1, 2});
    };
    if (pre_norm) normalise();
    hidden_states = conv(hidden_states);
    if (!pre_norm) normalise();
    return call.result(hidden_states);
  }

  Builder conv_builder, norm_builder;
  AnyConv2d conv;
  LayerNorm norm;
  bool pre_norm = false;
  ModuleId module;
};

struct Florence2VisionMLP {
  Florence2VisionMLP(const Builder& builder, const DavitConfig& c, std::size_t stage)
      : fc1(builder.child("fc1", "Linear"), c.embed_dim[stage], c.intermediate(stage), true),
        fc2(builder.child("fc2", "Linear"), c.intermediate(stage), c.embed_dim[stage], true),
        activation_fn(c.activation),
        module(builder.module) {}

  Tensor operator()(const Tensor& hidden_in) const {
    ModuleCall call(hidden_in.context(), module);
    Tensor hidden_states = fc1(call.argument(hidden_in));
    hidden_states = activate(activation_fn, hidden_states);
    return call.result(fc2(hidden_states));
  }

  Linear fc1, fc2;
  Activation activation_fn;
  ModuleId module;
};

/// Florence2VisionWindowAttention, Florence2VisionChannelAttention.
struct Florence2VisionAttention {
  Florence2VisionAttention(const Builder& builder, const DavitConfig& c, std::size_t stage, bool of_windows,
                           AttentionKind attention)
      : qkv(builder.child("qkv", "Linear"), c.embed_dim[stage], 3 * c.embed_dim[stage], c.qkv_bias),
        proj(builder.child("proj", "Linear"), c.embed_dim[stage], c.embed_dim[stage], true),
        heads(of_windows ? c.num_heads[stage] : c.num_groups[stage]),
        window(of_windows ? c.window_size : 0),
        call{.kind = attention},
        module(builder.module) {}

  Tensor operator()(const Tensor& hidden_in) const {
    ModuleCall self(hidden_in.context(), module);
    const Tensor hidden_states = self.argument(hidden_in);
    return self.result(window == 0 ? of_channels(hidden_states) : of_windows(hidden_states));
  }

  Tensor of_channels(const Tensor& hidden_in) const {
    const std::int64_t batch = hidden_in.size(0), tokens = hidden_in.size(1), width = hidden_in.size(2);
    Tensor projected = view(qkv(hidden_in), {batch, tokens, 3, heads, width / heads});
    projected = permute(projected, {2, 0, 3, 4, 1});
    const TensorList parts = unbind(projected, 0);
    // Channels see channels: the tokens are what a head has, and lie apart in memory, so only plain SDPA takes them.
    AttentionCall its = call;
    if (its.kind != AttentionKind::eager) its.kind = AttentionKind::sdpa_math;
    const AttentionInputs states{parts[0], parts[1], parts[2]};
    AttentionOutputs attention = attend(its, states);
    Tensor hidden_states = std::move(attention.output);
    hidden_states = permute(hidden_states, {0, 3, 2, 1});
    hidden_states = reshape(hidden_states, {batch, tokens, width});
    return proj(hidden_states);
  }

  Tensor of_windows(const Tensor& hidden_in) const {
    const std::int64_t batch = hidden_in.size(0), height = hidden_in.size(1), width = hidden_in.size(2),
                       channels = hidden_in.size(3);
    const auto whole = [&](std::int64_t side) { return (side + window - 1) / window * window; };
    const std::int64_t padded_height = whole(height), padded_width = whole(width), rows = padded_height / window,
                       columns = padded_width / window, windows = batch * rows * columns, area = window * window;
    Tensor hidden_states = pad_to(hidden_in, padded_height, padded_width);
    hidden_states = view(hidden_states, {batch, rows, window, columns, window, channels});
    Tensor windowed = contiguous(permute(hidden_states, {0, 1, 3, 2, 4, 5}));
    windowed = view(windowed, {windows, area, channels});
    Tensor projected = view(qkv(windowed), {windows, area, 3, heads, channels / heads});
    projected = permute(projected, {2, 0, 3, 1, 4});
    const TensorList parts = unbind(projected, 0);
    const AttentionInputs states{parts[0], parts[1], parts[2]};
    AttentionOutputs attention = attend(call, states);
    windowed = view(std::move(attention.output), {windows, area, channels});
    windowed = proj(windowed);
    hidden_states = view(windowed, {batch, rows, columns, window, window, channels});
    hidden_states = contiguous(permute(hidden_states, {0, 1, 3, 2, 4, 5}));
    hidden_states = view(hidden_states, {batch, padded_height, padded_width, channels});
    hidden_states = slice(slice(hidden_states, 1, 0, height), 2, 0, width);
    hidden_states = contiguous(hidden_states);
    return view(hidden_states, {batch, height * width, channels});
  }

  Linear qkv, proj;
  std::int64_t heads, window;
  AttentionCall call;
  ModuleId module;
};

/// Florence2VisionSpatialBlock, Florence2VisionChannelBlock.
struct Florence2VisionHalf {
  Florence2VisionHalf(const Builder& builder, const DavitConfig& c, std::size_t stage, bool spatial, double rate,
                      AttentionKind kind)
      : conv1(builder.child("conv1", "Conv2d"), c.embed_dim[stage], c.embed_dim[stage], depthwise(c, stage)),
        norm1(builder.child("norm1", "LayerNorm"), c.embed_dim[stage]),
        attention(builder.child(spatial ? "window_attn" : "channel_attn",
                                spatial ? "Florence2VisionWindowAttention" : "Florence2VisionChannelAttention"),
                  c, stage, spatial, kind),
        conv2((builder.child("drop_path1", rate > 0 ? kDropPath : "Identity"), builder.child("conv2", "Conv2d")),
              c.embed_dim[stage], c.embed_dim[stage], depthwise(c, stage)),
        norm2(builder.child("norm2", "LayerNorm"), c.embed_dim[stage]),
        ffn(builder.child("ffn", "Florence2VisionMLP"), c, stage),
        drop_rate(rate),
        is_spatial(spatial),
        module((builder.child("drop_path2", rate > 0 ? kDropPath : "Identity"), builder.module)) {}

  static constexpr const char* kDropPath = "Florence2DropPath";
  static AnyConv2d::Options depthwise(const DavitConfig& c, std::size_t stage) {
    return {.kernel = 3, .padding = 1, .groups = c.embed_dim[stage]};
  }

  Tensor operator()(const Tensor& hidden_in) const {
    ModuleCall call(hidden_in.context(), module);
    const Shape image = hidden_in.sizes();
    const std::int64_t batch = image[0], width = image[1], tokens = checked_product(image[2], image[3]);
    Tensor hidden_states = call.argument(hidden_in), residual;
    const auto convolve = [&](const AnyConv2d& conv) {
      {
        const Tensor convolved = conv(hidden_states);
        hidden_states = add(convolved, hidden_states);
      }
      hidden_states = transpose(reshape(hidden_states, {batch, width, tokens}), 1, 2);
      residual = hidden_states;
    };
    const auto join = [&] {
      {
        const Tensor kept = drop_path(hidden_states, drop_rate);
        hidden_states = add(residual, kept);
      }
      hidden_states = view(transpose(hidden_states, 1, 2), image);
    };
    convolve(conv1);
    hidden_states = norm1(hidden_states);
    if (is_spatial) hidden_states = view(hidden_states, {batch, image[2], image[3], width});
    hidden_states = attention(hidden_states);
    join();
    convolve(conv2);
    hidden_states = norm2(hidden_states);
    hidden_states = ffn(hidden_states);
    join();
    return call.result(hidden_states);
  }

  AnyConv2d conv1;
  LayerNorm norm1;
  Florence2VisionAttention attention;
  AnyConv2d conv2;
  LayerNorm norm2;
  Florence2VisionMLP ffn;
  double drop_rate;
  bool is_spatial;
  ModuleId module;
};

struct Florence2VisionBlock {
  Florence2VisionBlock(const Builder& builder, const DavitConfig& c, std::size_t stage, double spatial_rate,
                       double channel_rate, AttentionKind attention)
      : spatial_block(builder.child("spatial_block", "Florence2VisionSpatialBlock"), c, stage, true, spatial_rate,
                      attention),
        channel_block(builder.child("channel_block", "Florence2VisionChannelBlock"), c, stage, false, channel_rate,
                      attention),
        module(builder.module) {}

  Tensor operator()(const Tensor& hidden_in) const {
    ModuleCall call(hidden_in.context(), module);
    Tensor hidden_states = spatial_block(call.argument(hidden_in));
    hidden_states = channel_block(hidden_states);
    return call.result(hidden_states);
  }

  Florence2VisionHalf spatial_block, channel_block;
  ModuleId module;
};

/// A list of lists, by stages.
constexpr const char* kStages[] = {"blocks.0",  "blocks.1",  "blocks.2",  "blocks.3", "blocks.4",  "blocks.5",
                                   "blocks.6",  "blocks.7",  "blocks.8",  "blocks.9", "blocks.10", "blocks.11",
                                   "blocks.12", "blocks.13", "blocks.14", "blocks.15"};

struct Florence2VisionBackbone {
  Florence2VisionBackbone() = default;
  Florence2VisionBackbone(const Builder& builder, const DavitConfig& c, AttentionKind attention)
      : module(builder.module) {
    std::int64_t halves = 0, next = 0;
    for (const std::int64_t depth : c.depths) halves += 2 * depth;
    const auto rate = [&] {
      const std::int64_t i = next++;
      return c.drop_path_rate * static_cast<double>(i) / static_cast<double>(halves - 1);
    };
    // Python makes a stage's convolution, then its blocks, and lists all convolutions first.
    for (std::size_t i = 0; i < c.stages(); ++i)
      convs.emplace_back(builder.child("convs", "Florence2VisionConvEmbed", static_cast<std::int32_t>(i)));
    for (std::size_t i = 0; i < c.stages(); ++i) {
      convs[i].make(c, i);
      blocks.emplace_back();
      for (std::int32_t j = 0; j < c.depths[i]; ++j) {
        const double spatial = rate(), channel = rate();
        blocks[i].emplace_back(builder.child(kStages[i], "Florence2VisionBlock", j), c, i, spatial, channel, attention);
      }
    }
  }

  Tensor operator()(const Tensor& pixel_values) const {
    ModuleCall call(pixel_values.context(), module);
    Tensor hidden_states = to(call.argument(pixel_values), convs[0].conv.weight.dtype());
    for (std::size_t i = 0; i < convs.size(); ++i) {
      hidden_states = convs[i](hidden_states);
      for (const Florence2VisionBlock& layer : blocks[i]) hidden_states = layer(hidden_states);
    }
    return call.result(hidden_states);
  }

  std::vector<Florence2VisionConvEmbed> convs;
  std::vector<std::vector<Florence2VisionBlock>> blocks;
  ModuleId module = 0;
};

struct Florence2MultiModalProjector {
  Florence2MultiModalProjector() = default;
  Florence2MultiModalProjector(const Builder& builder, const DavitConfig& c, DType dtype)
      : image_projection(builder.child("image_projection", "Linear"), c.embed_dim.back(), c.projection_dim, false),
        image_proj_norm(builder.child("image_proj_norm", "LayerNorm"), c.projection_dim),
        module(builder.module) {
    const std::int64_t width = c.embed_dim.back();
    const Builder positions =
        builder.child("image_position_embed", "Florence2VisionLearnedAbsolutePositionEmbedding2D");
    image_position_embed = positions.module;
    row_embeddings = Embedding(positions.child("row_embeddings", "Embedding"), c.max_position_embeddings, width / 2);
    column_embeddings =
        Embedding(positions.child("column_embeddings", "Embedding"), c.max_position_embeddings, width - width / 2);
    const Builder temporal = builder.child("visual_temporal_embed", "Florence2VisionPositionalEmbeddingCosine1D");
    visual_temporal_embed = temporal.module;
    make_sinusoids(temporal, c.max_temporal_embeddings, width, dtype);
  }

  void make_sinusoids(const Builder& builder, std::int64_t count, std::int64_t width, DType dtype) {
    Context& context = *builder.context;
    const std::int64_t half = width / 2;
    const auto floats = [&](Op op, const Shape& sizes) { return empty(context, op, sizes, DType::float32); };
    pos_idx_to_embed = builder.buffer({count, width}, dtype);
    Tensor emb;
    {
      const Tensor steps = empty(context, Op::arange, {half}, DType::int64);
      emb = floats(Op::to_copy, {half});
    }
    for (const Op op : {Op::mul, Op::exp}) emb = floats(op, {half});
    {
      const Tensor positions = floats(Op::arange, {count});
      emb = floats(Op::mul, {count, half});
    }
    const Tensor sines = floats(Op::sin, {count, half}), cosines = floats(Op::cos, {count, half});
  }

  Tensor positions_of(const Tensor& given) const {
    Context& context = given.context();
    const ModuleCall call(context, image_position_embed);
    const std::int64_t height = given.size(2), width = given.size(3);
    const Tensor width_values = empty(context, Op::arange, {width}, DType::int64),
                 height_values = empty(context, Op::arange, {height}, DType::int64);
    const Tensor x_emb = column_embeddings(width_values), y_emb = row_embeddings(height_values);
    Tensor pos;
    {
      const Tensor columns = repeat(unsqueeze(x_emb, 0), {height, 1, 1}),
                   rows = repeat(unsqueeze(y_emb, 1), {1, width, 1});
      pos = cat({columns, rows}, -1);
    }
    pos = permute(pos, {2, 0, 1});
    return repeat(unsqueeze(pos, 0), {given.size(0), 1, 1, 1});
  }

  Tensor operator()(const Tensor& given) const {
    Context& context = given.context();
    ModuleCall call(context, module);
    const Tensor image_in = call.argument(given);
    const std::int64_t batch = image_in.size(0), width = image_in.size(1),
                       tokens = checked_product(image_in.size(2), image_in.size(3));
    Tensor position_features;
    {
      const Tensor positions = positions_of(image_in);
      position_features = add(image_in, positions);
    }
    position_features = transpose(reshape(position_features, {batch, width, tokens}), 1, 2);
    Tensor temporal_features;
    {
      const ModuleCall self(context, visual_temporal_embed);
      temporal_features = slice(pos_idx_to_embed, 0, 0, 1);
    }
    temporal_features = unsqueeze(temporal_features, 1);
    Tensor visual_token_features = add(position_features, temporal_features);
    visual_token_features = unsqueeze(visual_token_features, 1);
    const Tensor spatial_image_features = mean(visual_token_features, std::vector<int>{2}, false),
                 temporal_image_features = mean(visual_token_features, std::vector<int>{1}, false);
    Tensor image_features = cat({spatial_image_features, temporal_image_features}, 1);
    image_features = image_projection(image_features);
    image_features = image_proj_norm(image_features);
    return call.result(image_features);
  }

  Linear image_projection;
  LayerNorm image_proj_norm;
  Embedding row_embeddings, column_embeddings;
  Tensor pos_idx_to_embed;
  ModuleId image_position_embed = 0, visual_temporal_embed = 0, module = 0;
};

class Florence2 : public EncoderModel {
 public:
  Florence2(Context& context, const Florence2Config& config, const DataConfig& data, const ModelOptions& options)
      : EncoderModel(context, config.text, data, options),
        in_channels_(config.vision.in_channels),
        dtype_(options.dtype) {
    loss_type = LossType::masked_lm;  // ForCausalLMLoss with shift_labels
    const Builder model = root_.child("model", "Florence2Model", Modality::none);
    model_ = model.module;
    vision_tower_ = Florence2VisionBackbone(model.child("vision_tower", "Florence2VisionBackbone", Modality::vision),
                                            config.vision, options.attention);
    multi_modal_projector_ = Florence2MultiModalProjector(
        model.child("multi_modal_projector", "Florence2MultiModalProjector", Modality::projector), config.vision,
        options.dtype);
    language_model_ =
        make_bart_inside(model.child("language_model", kBart.model, Modality::language), config.text, options);
    for (Embedding* table : language_model_->tied())
      tie_weight(table->weight, table->module, language_model_->shared.weight);
    lm_head_ = Linear(root_.child("lm_head", "Linear"), config.text.hidden_size, config.text.vocab_size, false);
    tie_weight(lm_head_.weight, lm_head_.module, language_model_->shared.weight);
    is_reentrant_ = options.checkpointing.mode == CheckpointMode::reentrant;
    is_half_ = options.dtype == DType::float16;
  }

  ModelInputs make_inputs(bool with_labels) override {
    ModelInputs batch = EncoderModel::make_inputs(with_labels);
    make_images(batch, data_.images_per_sample);
    return batch;
  }

  void make_images(ModelInputs& batch, std::int64_t images_per_sample) override {
    data_.images_per_sample = images_per_sample;
    if (data_.images() > 0)
      batch.pixel_values =
          empty(context_, Op::input, {data_.images(), in_channels_, data_.image_height, data_.image_width},
                data_.pixel_dtype.value_or(dtype_), Role::input);
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    if (is_half_)
      refuse("/training/precision",
             "found float16, in which the encoder's layers look for what is not finite; this is not supported yet: "
             "expected bfloat16");
    if (is_reentrant_)
      refuse("/training/activation_checkpointing",
             "found \"reentrant\", which is not supported yet with decoders that see an encoder's states; expected "
             "\"non-reentrant\"");
    const Tensor decoder_input_ids = inputs.labels ? shift_tokens_right(inputs.labels) : inputs.input_ids;
    const Tensor decoder_states = model_forward(inputs, decoder_input_ids);
    Tensor encoder_states = encoder_states_;
    encoder_states_.reset();
    ModelOutputs outputs = outputs_of(lm_head_(decoder_states), inputs);
    outputs.others.push_back(std::move(encoder_states));
    return outputs;
  }

 private:
  void refuse(const char* pointer, const char* message) { context_.refusal = Error{"not-modelled", pointer, message}; }

  Tensor model_forward(const ModelInputs& inputs, const Tensor& decoder_input_ids) {
    ModuleCall call(context_, model_);
    const MaskArguments source{{}, inputs.attention_mask, inputs.rows};
    Tensor inputs_embeds = language_model_->embed(inputs.input_ids);
    Tensor image_features, special_image_mask;
    if (inputs.pixel_values) {
      {
        const Tensor last_hidden_state = vision_tower_(inputs.pixel_values);
        image_features = multi_modal_projector_(last_hidden_state);
      }
      image_features = to(image_features, inputs_embeds.dtype());
      special_image_mask = placeholder_mask(inputs.input_ids);
      inputs_embeds = masked_scatter(inputs_embeds, special_image_mask, image_features);
    }
    encoder_states_ = language_model_->encode(inputs_embeds, source);
    return call.result(language_model_->decode(decoder_input_ids, encoder_states_, source));
  }

  std::int64_t in_channels_;
  DType dtype_;
  bool is_half_ = false, is_reentrant_ = false;
  ModuleId model_ = 0;
  Florence2VisionBackbone vision_tower_;
  Florence2MultiModalProjector multi_modal_projector_;
  std::unique_ptr<BartInside> language_model_;
  Linear lm_head_;
  Tensor encoder_states_;  ///< while forward runs
};

}  // namespace

std::unique_ptr<Model> build_florence2(Context& context, const Florence2Config& config, const DataConfig& data,
                                       const ModelOptions& options) {
  return std::make_unique<Florence2>(context, config, data, options);
}

}  // namespace oometer
