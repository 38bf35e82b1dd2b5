#include "models/kit/grids.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "config/reader.h"
#include "models/kit/videos.h"
#include "nn/checkpointing.h"
#include "ops/cub.h"
#include "ops/integers.h"
#include "rounding.h"

namespace oometer {

namespace {

/// Sides of images in pixels, and how many frames.
constexpr Range kPixels{1, 1 << 16};
/// What one operator may make of a tensor: Node::outputs counts in 16 bits.
constexpr std::int64_t kMostSequences = 65'535;

}  // namespace

std::pair<std::int64_t, std::int64_t> smart_resize(const std::vector<std::int64_t>& size, std::int64_t factor_,
                                                   const Pixels& limits, std::int64_t frames_,
                                                   std::int64_t frames_of_patch_) {
  const auto height = static_cast<double>(size[0]), width = static_cast<double>(size[1]),
             factor = static_cast<double>(factor_), frames = static_cast<double>(frames_),
             frames_of_patch = static_cast<double>(frames_of_patch_);
  double rows = std::nearbyint(height / factor), columns = std::nearbyint(width / factor);  // halves to even
  const double pixels =
      std::nearbyint(frames / frames_of_patch) * frames_of_patch * (rows * factor) * (columns * factor);
  if (pixels > limits.max) {
    const double beta = std::sqrt(frames * height * width / limits.max);
    rows = std::max(1.0, std::floor(height / beta / factor));
    columns = std::max(1.0, std::floor(width / beta / factor));
  } else if (pixels < limits.min) {
    const double beta = std::sqrt(limits.min / (frames * height * width));
    rows = std::ceil(height * beta / factor);
    columns = std::ceil(width * beta / factor);
  }
  return {static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns)};
}

void grow_to_token(std::vector<std::int64_t>& size, std::int64_t factor) {
  if (size.size() != 2 || std::min(size[0], size[1]) >= factor) return;
  const auto of = [&](std::int64_t side) { return static_cast<double>(factor) / static_cast<double>(side); };
  const double scale = std::max(of(size[0]), of(size[1]));
  for (std::int64_t& side : size) side = static_cast<std::int64_t>(static_cast<double>(side) * scale);
}

void grow_sides(std::vector<std::int64_t>& size, std::int64_t factor) {
  if (size.size() != 2) return;
  for (std::size_t side = 0; side < 2; ++side) {
    if (size[side] >= factor) continue;
    const double other = static_cast<double>(size[1 - side] * factor) / static_cast<double>(size[side]);
    size[1 - side] = static_cast<std::int64_t>(std::nearbyint(other));  // halves to even
    size[side] = factor;
  }
}

void check_axial_heads(ConfigReader& reader, std::int64_t hidden_size, const char* heads_key, std::int64_t heads) {
  if (hidden_size % heads != 0 || hidden_size / heads % 4 != 0)
    reader.fail_found(
        "hidden_size", "inconsistent",
        std::string("expected ") + heads_key + " (" + std::to_string(heads) + ") heads of a multiple of 4");
}

void read_grid(ConfigReader& reader, const GridRule& rule, DataConfig& data) {
  if (reader.has("video"))
    return rule.video.max_pixels == 0 ? refuse_video(reader) : read_video(reader, rule.video, data);
  const std::int64_t factor = rule.patch_size * rule.spatial_merge_size,
                     frames_of_limits = rule.of_all_frames ? rule.temporal_patch_size : 1;
  const std::int64_t min_pixels = reader.optional_integer("min_pixels").value_or(rule.min_pixels),
                     max_pixels = reader.optional_integer("max_pixels").value_or(rule.max_pixels),
                     frames = reader.optional_integer("frames", kPixels).value_or(1);
  std::vector<std::int64_t> size = reader.integers("image_size", kPixels), grid = reader.integers("grid_thw", kPixels);
  if (data.images_per_sample == 0) return;
  if (!grid.empty()) {
    if (grid.size() != 3 || grid[1] % rule.spatial_merge_size != 0 || grid[2] % rule.spatial_merge_size != 0) {
      reader.fail_found("grid_thw", "inconsistent",
                        "expected [frames, rows, columns] of patches, rows and columns multiples of "
                        "spatial_merge_size (" +
                            std::to_string(rule.spatial_merge_size) + ")");
      return;
    }
    if (!size.empty()) reader.fail_found("image_size", "inconsistent", "grid_thw says it: leave one of them out");
  } else {
    if (size.empty()) size = {672, 448};
    if (rule.grows_sides)
      grow_sides(size, factor);
    else if (rule.of_all_frames)
      grow_to_token(size, factor);
    if (size.size() != 2 || std::max(size[0], size[1]) > 200 * std::min(size[0], size[1])) {
      reader.fail_found("image_size", "inconsistent",
                        "expected [height, width] in pixels, neither more than 200 times the other");
      return;
    }
    const auto of_a_frame = [&](std::int64_t pixels) {
      return static_cast<double>(pixels) / static_cast<double>(frames_of_limits);
    };
    const auto [height, width] = smart_resize(size, factor, {of_a_frame(min_pixels), of_a_frame(max_pixels)});
    grid = {divide_up(frames, rule.temporal_patch_size), height * rule.spatial_merge_size,
            width * rule.spatial_merge_size};
  }
  if (rule.of_all_frames && grid[0] != 1)
    reader.fail(reader.has("grid_thw") ? "grid_thw" : "frames", "not-modelled",
                "videos of this model are not supported yet: expected one frame");
  data.grid_t = grid[0];
  data.grid_h = grid[1];
  data.grid_w = grid[2];
  data.image_height = grid[1] * rule.patch_size;
  data.image_width = grid[2] * rule.patch_size;
  data.tokens_per_image = data.patches() / (rule.spatial_merge_size * rule.spatial_merge_size);
  check_sequences(reader, checked_product(data.images(), data.grid_t));
}

void check_sequences(ConfigReader& reader, std::int64_t sequences) {
  if (sequences > kMostSequences)
    reader.fail(reader.has("grid_thw") ? "grid_thw" : "image_size", "out-of-range",
                "found " + std::to_string(sequences) + " windows of attention in a micro-batch; at most " +
                    std::to_string(kMostSequences) + " are modelled");
}

Tensor repeat_interleave(Context& context, std::int64_t images, bool repeats_by_column, std::int64_t elements,
                         std::int64_t columns) {
  // A strided column is copied each time.
  const auto column = [&] {
    return repeats_by_column && images > 1 ? integers(context, Op::clone, {images}) : Tensor();
  };
  Tensor indices;
  {
    const Tensor repeats = column();
    const Tensor sums = integers(context, Op::cumsum, {images});
    {
      const Tensor copy = column();
      const Workspace scan(context, Op::cumsum, cub_scan_bytes(images));
    }
    {
      const Tensor least = integers(context, Op::empty, {});
      const Tensor copy = column();
    }
    indices = integers(context, Op::empty, {elements});
  }
  return integers(context, Op::index, {checked_product(elements, columns)});
}

PatchSequences vision_cu_seqlens(Context& context, const DataConfig& data, bool merges_frames) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < data.images(); ++i) {
    const ImageShape& image = data.image(i);
    if (merges_frames)
      lengths.push_back(image.patches());
    else
      lengths.insert(lengths.end(), static_cast<std::size_t>(image.grid_t), image.grid_h * image.grid_w);
  }
  const std::int64_t images = data.images(), frames = std::ssize(lengths);
  Tensor seqlens;
  {
    const Tensor areas = integers(context, Op::mul, {images});
    seqlens = merges_frames ? integers(context, Op::mul, {images}) : repeat_interleave(context, images, true, frames);
  }
  const Tensor sums = empty(context, Op::cumsum, {frames}, DType::int32);
  {
    const Tensor copy = empty(context, Op::to_copy, {frames}, DType::int32);
    const Workspace scan(context, Op::cumsum, kSmallScan);
  }
  Tensor bounds = empty(context, Op::constant_pad_nd, {frames + 1}, DType::int32);
  return {std::move(bounds), std::move(lengths)};
}

PatchSequences frames_of(Context& context, const DataConfig& data, AttentionKind attention) {
  PatchSequences sequences = vision_cu_seqlens(context, data, false);
  ask_max_seqlen(sequences, attention);
  return sequences;
}

std::int64_t windows_with_padding(const WindowRule& rule, const ImageShape& image) {
  const auto along = [&](std::int64_t patches) { return patches / rule.merge / rule.side + 1; };
  return checked_product(image.grid_t, along(image.grid_h) * along(image.grid_w));
}

std::vector<std::int64_t> window_lengths(const WindowRule& rule, const ImageShape& image) {
  const std::int64_t side = rule.side, rows = image.grid_h / rule.merge, columns = image.grid_w / rule.merge;
  std::vector<std::int64_t> lengths;
  for (std::int64_t t = 0; t < image.grid_t; ++t)
    for (std::int64_t top = 0; top < rows; top += side)  // windows of padding alone go (unique_consecutive)
      for (std::int64_t left = 0; left < columns; left += side)
        lengths.push_back(std::min(side, rows - top) * std::min(side, columns - left) * rule.merge * rule.merge);
  return lengths;
}

PatchSequences windows_of(Context& context, const WindowRule& rule, const DataConfig& data) {
  PatchSequences sequences;
  std::int64_t windows = 0;
  for (std::int64_t i = 0; i < data.images(); ++i) {
    windows += windows_with_padding(rule, data.image(i));
    const std::vector<std::int64_t> of_image = window_lengths(rule, data.image(i));
    sequences.lengths.insert(sequences.lengths.end(), of_image.begin(), of_image.end());
  }
  // All but the bounds is made on the host. Windows of padding alone end where they begin.
  const Tensor all = empty(context, Op::to_copy, {windows + 1}, DType::int32);
  sequences.cu_seqlens = empty(context, Op::empty, {windows + 1}, DType::int32);
  const Tensor count = integers(context, Op::empty, {});
  const Workspace select(context, Op::empty, kSmallScan);
  return sequences;
}

Tensor vision_position_ids(Context& context, const DataConfig& data) {
  TensorList position_ids;
  Tensor wpos_ids, hpos_ids, spatial_merge_size = integers(context, Op::to_copy, {1});
  for (std::int64_t i = 0; i < data.images(); ++i) {
    const ImageShape& image = data.image(i);
    const std::int64_t h = image.grid_h, w = image.grid_w;
    Tensor rows = integers(context, Op::arange, {h}), columns = integers(context, Op::arange, {w});
    hpos_ids.reset();
    wpos_ids.reset();
    hpos_ids = integers(context, Op::clone, {h * w});
    rows.reset();
    wpos_ids = integers(context, Op::clone, {h * w});
    columns.reset();
    const Tensor both = integers(context, Op::cat, {h * w, 2});
    position_ids.push_back(integers(context, Op::clone, {image.patches(), 2}));
  }
  Tensor result = integers(context, Op::cat, {data.all_patches(), 2});
  spatial_merge_size.reset();
  position_ids.clear();
  return result;
}

PositionEmbeddings vision_rotary(const LlamaRotaryEmbedding& rotary_emb, const Tensor& position_ids, DType dtype) {
  Context& context = position_ids.context();
  ModuleCall call(context, rotary_emb.module);
  const NoGrad no_grad(context);
  Tensor freqs = rotary_angles(position_ids, rotary_emb.inv_freq);
  const auto of = [&](Op op) {
    const Tensor values = pointwise(op, {&freqs}, DType::float32);
    return mul_scalar(values);
  };
  Tensor cos = of(Op::cos), sin = of(Op::sin);
  const auto recomposition_frequencies = [](const Tensor& freq) {
    const Tensor freq_h = select(freq, 1, 0), freq_w = select(freq, 1, 1);
    const Tensor freq_hw = cat({freq_h, freq_w}, -1);
    return cat({freq_hw, freq_hw}, -1);
  };
  cos = recomposition_frequencies(cos);
  sin = recomposition_frequencies(sin);
  const PositionEmbeddings typed{to(cos, dtype), to(sin, dtype)};
  return {call.result(typed.cos), call.result(typed.sin)};
}

PositionEmbeddings cast_forward_input(const PositionEmbeddings& positions, ModuleId block) {
  Tensor cos = cast_forward_input(positions.cos, block);
  return {std::move(cos), cast_forward_input(positions.sin, block)};
}

PatchAttention::PatchAttention(const Builder& builder, std::int64_t hidden_size, std::int64_t heads,
                               AttentionKind attention, bool qkv_bias, bool proj_bias)
    : qkv(builder.child("qkv", "Linear"), hidden_size, 3 * hidden_size, qkv_bias),
      proj(builder.child("proj", "Linear"), hidden_size, hidden_size, proj_bias),
      num_heads(heads),
      head_dim(hidden_size / heads),
      call{attention, false, 0},
      module(builder.module) {}

PatchAttention PatchAttention::apart(const Builder& builder, std::int64_t hidden_size, std::int64_t heads,
                                     AttentionKind attention, std::initializer_list<Projection> projections) {
  PatchAttention its;
  its.is_apart = true;
  its.num_heads = heads;
  its.head_dim = hidden_size / heads;
  its.call = {attention, false, 0};
  its.module = builder.module;
  for (const Projection& one : projections) {
    const std::int64_t width = one.heads != 0 ? one.heads * its.head_dim : hidden_size;
    its.*one.of = Linear(builder.child(one.name, "Linear"), hidden_size, width, one.bias);
  }
  return its;
}

PatchAttention PatchAttention::grouped(const Builder& builder, std::int64_t hidden_size, std::int64_t heads,
                                       std::int64_t num_key_value_heads, AttentionKind attention) {
  PatchAttention its;
  its.num_heads = heads;
  its.num_key_value_heads = num_key_value_heads;
  its.head_dim = hidden_size / heads;
  its.call = {attention, false, 0};
  its.module = builder.module;
  its.proj = Linear(builder.child("proj", "Linear"), hidden_size, hidden_size, true);
  its.qkv = Linear(builder.child("qkv", "Linear"), hidden_size, (heads + 2 * num_key_value_heads) * its.head_dim, true);
  return its;
}

PatchAttention PatchAttention::apart(const Builder& builder, std::int64_t hidden_size, std::int64_t heads,
                                     AttentionKind attention, bool finds_longest) {
  PatchAttention its = apart(builder, hidden_size, heads, attention,
                             {{"proj", &PatchAttention::proj},
                              {"q_proj", &PatchAttention::q_proj},
                              {"k_proj", &PatchAttention::k_proj},
                              {"v_proj", &PatchAttention::v_proj}});
  its.finds_longest = finds_longest;
  return its;
}

namespace {

void apply_rotary_pos_emb_vision(Tensor& query_states, Tensor& key_states, const PositionEmbeddings& positions) {
  const DType dtype = query_states.dtype();
  Tensor k_embed, q_embed, k, q;  // q goes first
  q = to(query_states, DType::float32);
  k = to(key_states, DType::float32);
  const Tensor cos = to(unsqueeze(positions.cos, -2), DType::float32);
  const Tensor sin = to(unsqueeze(positions.sin, -2), DType::float32);
  q_embed = rotate(q, cos, sin);
  k_embed = rotate(k, cos, sin);
  q_embed = to(q_embed, dtype);
  k_embed = to(k_embed, dtype);
  query_states = std::move(q_embed);
  key_states = std::move(k_embed);
}

}  // namespace

AttentionOutputs attend_within(const AttentionCall& call, const Tensor& query, const Tensor& key, const Tensor& value,
                               const PatchSequences& sequences) {
  Rows rows;
  rows.documents = {sequences.lengths};
  return attention_forward(call, query, key, value, {}, {.rows = &rows, .cu_seq_lens = sequences.cu_seqlens});
}

void ask_max_seqlen(const PatchSequences& sequences, AttentionKind attention) {
  if (!is_flash_attention(attention)) return;
  const Tensor lengths = empty(sequences.cu_seqlens.context(), Op::sub, {std::ssize(sequences.lengths)}, DType::int32);
  const Tensor max = reduce(Op::max, lengths, {0}, false, DType::int32);
}

Tensor PatchAttention::operator()(const Tensor& argument, const PatchSequences& sequences,
                                  const PositionEmbeddings& positions, TensorList* attn_weights) const {
  ModuleCall self(argument.context(), module);
  const Tensor hidden_states = self.argument(argument);
  const std::int64_t seq_length = hidden_states.size(0);
  Tensor attn_output;
  TensorList attn_outputs;
  List<TensorList> splits;
  Tensor lengths, value_states, key_states, query_states;
  if (is_apart) {
    const auto heads = [&](const Linear& projection, const Norm& norm) {
      const Tensor x = projection(hidden_states), of_heads = view(x, {seq_length, x.size(1) / head_dim, head_dim});
      return norm ? norm(of_heads) : of_heads;
    };
    query_states = heads(q_proj, q_norm);
    key_states = heads(k_proj, k_norm);
    value_states = heads(v_proj, {});
  } else if (num_key_value_heads != 0) {
    const std::int64_t kv_width = num_key_value_heads * head_dim;
    const Tensor projected = qkv(hidden_states);
    const TensorList states = split(projected, {num_heads * head_dim, kv_width, kv_width}, -1);
    query_states = view(states[0], {seq_length, num_heads, head_dim});
    key_states = view(states[1], {seq_length, num_key_value_heads, head_dim});
    value_states = view(states[2], {seq_length, num_key_value_heads, head_dim});
  } else {
    const Tensor projected = qkv(hidden_states);
    TensorList states = unbind(transpose(view(projected, {seq_length, 3, num_heads, head_dim}), 0, 1));
    query_states = states[0];
    key_states = states[1];
    value_states = states[2];
  }
  if (q_norm && !is_apart) {
    query_states = q_norm(query_states);
    key_states = k_norm(key_states);
  }
  if (positions.cos) apply_rotary_pos_emb_vision(query_states, key_states, positions);
  for (Tensor* states : {&query_states, &key_states, &value_states}) *states = unsqueeze(transpose(*states, 0, 1), 0);
  if (is_flash_attention(call.kind)) {
    if (finds_longest) ask_max_seqlen(sequences, call.kind);
    attn_output = attend_within(call, query_states, key_states, value_states, sequences).output;
  } else {
    lengths = empty(hidden_states.context(), Op::sub, {std::ssize(sequences.lengths)}, DType::int32);
    for (const Tensor* states : {&query_states, &key_states, &value_states})
      splits.push_back(split(*states, sequences.lengths, 2));
    attn_outputs.reserve(sequences.lengths.size());
    for (std::size_t i = 0; i < sequences.lengths.size(); ++i) {
      AttentionOutputs attention = attention_forward(call, splits[0][i], splits[1][i], splits[2][i], {});
      attn_outputs.push_back(std::move(attention.output));
      if (attn_weights) attn_weights->push_back(std::move(attention.weights));
    }
    attn_output = cat(attn_outputs, 1);
  }
  attn_output = view(attn_output, {seq_length, checked_product(num_heads, head_dim)});
  return self.result(proj(attn_output));
}

GridPatchEmbed::GridPatchEmbed(const Builder& builder, const Shape& sizes, bool with_bias,
                               const CheckpointingConfig& config)
    : checkpointing(config), module(builder.module) {
  const Builder conv = builder.child("proj", "Conv3d");
  proj = conv.module;
  weight = conv.parameter("weight", sizes);
  if (with_bias) bias = conv.parameter("bias", {sizes[0]});
}

Tensor GridPatchEmbed::operator()(const Tensor& pixel_values) const {
  Context& context = pixel_values.context();
  ModuleCall call(context, module);
  if (context.modules) context.modules->read(weight);  // `target_dtype`
  const Shape& kernel = weight.sizes();
  Tensor hidden_states =
      view(call.argument(pixel_values), {pixel_values.size(0), kernel[1], kernel[2], kernel[3], kernel[4]});
  hidden_states = to(hidden_states, weight.dtype());
  {
    ModuleCall inner(context, proj);
    hidden_states = inner.result(convolution(inner.argument(hidden_states), weight, bias));
  }
  hidden_states = call.result(view(hidden_states, {pixel_values.size(0), kernel[0]}));
  require_input_grad(checkpointing, hidden_states, module);
  return hidden_states;
}

Tensor grid_placeholder_mask(const Tensor& input_ids, Tensor& other, bool of_videos) {
  const Tensor special_image_mask = pointwise(Op::eq, {&input_ids}, DType::boolean);
  other = pointwise(Op::eq, {&input_ids}, DType::boolean);
  const auto check = [](const Tensor& tokens) {
    Tensor elements = mul_scalar(tokens);
    const Tensor matches = pointwise(Op::eq, {&elements}, DType::boolean);
    elements.reset();
  };
  Tensor n_video_tokens, n_image_tokens = sum_all(special_image_mask);
  if (!of_videos) check(n_image_tokens);
  n_video_tokens = sum_all(other);
  if (of_videos) check(n_video_tokens);
  return unsqueeze(special_image_mask, -1);
}

void GridLanguageModel::make_images(ModelInputs& batch, std::int64_t images_per_sample) {
  data_.images_per_sample = images_per_sample;
  if (data_.images() == 0) return;
  batch.mm_token_type_ids = input({data_.micro_batch_size, data_.sequence_length});
  make_pixel_values(batch);
  if (is_video() && has_seconds_) batch.second_per_grid_ts = input({data_.images()}, DType::float32);
}

TensorList GridLanguageModel::encoded_images(const ModelInputs& batch) {
  if (!batch.pixel_values) return {};
  GridOutputs outputs = image_features(batch.pixel_values);
  TensorList all{std::move(outputs.pooler_output), std::move(outputs.last_hidden_state)};
  for (Tensor& features : outputs.deepstack_features) all.push_back(std::move(features));
  return all;
}

Tensor GridLanguageModel::prepare_position_ids(const ModelInputs& batch, Tensor text_positions, bool continues) {
  if (continues) return integers(context_, Op::add, {1, text_positions.size(0), text_positions.size(1)});
  Tensor vision_positions;
  const Shape sizes{4, text_positions.size(0), text_positions.size(1)};
  if (batch.mm_token_type_ids) {
    { const Workspace has_new_vision_tokens(context_, Op::any, 1); }
    vision_positions = rope_index(text_positions, true, nullptr);
  } else
    rope_deltas_ = integers(context_, Op::zeros, {sizes[1], 1});
  Tensor position_ids = integers(context_, Op::cat, sizes);
  text_positions.reset();
  return position_ids;
}

ModelOutputs GridLanguageModel::forward(const ModelInputs& inputs) {
  const Tensor hidden_states = model_forward(inputs);
  ModelOutputs outputs = causal_lm_outputs(hidden_states, lm_head_, inputs, loss_function);
  if (const auto& add_auxiliary_loss = language_model_.parts.add_auxiliary_loss)
    add_auxiliary_loss(outputs, inputs, inputs.labels && loss_function->replaces_forward());
  return outputs;
}

void GridLanguageModel::complete(ModelInputs& batch) {
  const std::int64_t rows = data_.micro_batch_size, length = data_.sequence_length;
  if (!data_.pixel_dtype) batch.position_ids = input({3, rows, length});
  make_pixel_values(batch);
  if (data_.video && has_seconds_) batch.second_per_grid_ts = input({data_.images()}, DType::float32);
  if (data_.pixel_dtype && data_.images() > 0) batch.mm_token_type_ids = input({rows, length});
}

void GridLanguageModel::make_pixel_values(ModelInputs& batch) const {
  const std::int64_t images = data_.images();
  if (images == 0) return;
  batch.pixel_values = input({data_.all_patches(), patch_elements_}, data_.pixel_dtype.value_or(dtype_));
  batch.image_grid_thw = input({images, 3});
}

namespace {

/// Of a row, without padding.
std::int64_t attended_tokens(const Rows* rows, std::int64_t row, std::int64_t length) {
  if (!rows || rows->documents.empty()) return length;
  const std::vector<std::int64_t>& documents = rows->documents[static_cast<std::size_t>(row)];
  return std::accumulate(documents.begin(), documents.end(), std::int64_t{0});
}

}  // namespace

// get_vision_position_ids of an image's tokens.
Tensor GridLanguageModel::token_position_ids(const ImageShape& image) const {
  const std::int64_t merge =
      std::llround(std::sqrt(image.patches() / std::max<std::int64_t>(image.tokens_per_image, 1)));
  const auto axis = [&](Op op, std::int64_t size, DType dtype = DType::int64) {
    const Tensor steps = integers(context_, Op::arange, {size});
    return empty(context_, op, {size}, dtype);
  };
  Tensor temporal = axis(Op::mul, image.grid_t, has_seconds_ ? DType::int64 : DType::float32);
  if (!has_seconds_) temporal = integers(context_, Op::to_copy, {image.grid_t});
  const Tensor height = axis(Op::add, image.grid_h / merge), width = axis(Op::add, image.grid_w / merge);
  return integers(context_, Op::cat, {3, image.tokens_per_image});
}

// get_rope_index. A token of text comes before each image, the rest of the text after the last.
Tensor GridLanguageModel::rope_index(const Tensor& input_ids, bool is_masked, const Rows* rows) {
  const std::int64_t batch = input_ids.size(0), length = input_ids.size(1);
  const auto scalar = [&](Op op) { return integers(context_, op, {}); };
  // Python's locals go in the order in which they were bound: these in the reverse of their declaration.
  Tensor llm_positions, vision_position_ids;
  TensorList llm_pos_ids_list;
  Tensor current_pos;  // a number until an image has come
  Tensor input_token_type, current_input_ids;
  TensorList mrope_position_deltas;
  const bool by_frame = is_video() && times_frames();
  ImageShape frame = data_;
  Tensor video_grid_thw;
  if (by_frame) {
    const std::int64_t videos = data_.images(), frames = checked_product(videos, data_.grid_t);
    video_grid_thw = repeat_interleave(context_, videos, true, frames, 3);
    frame.tokens_per_image /= frame.grid_t;
    frame.grid_t = 1;
  }
  const std::int64_t pieces =
      by_frame ? checked_product(data_.images_per_sample, data_.grid_t) : data_.images_per_sample;
  Tensor position_ids = integers(context_, Op::zeros, {3, batch, length});
  for (std::int64_t row = 0; row < batch; ++row) {
    const std::int64_t tokens = attended_tokens(rows, row, length);
    const auto attended = [&] { return empty(context_, Op::to_copy, {length}, DType::boolean); };
    const auto unpadded = [&] { return index_mask(select(input_ids, 0, row), attended(), tokens); };
    current_input_ids.reset();  // the row's own is a view
    input_token_type.reset();
    if (is_masked) {
      current_input_ids = unpadded();
      input_token_type = unpadded();
    }
    current_pos.reset();
    llm_pos_ids_list.clear();
    const auto add_text = [&](std::int64_t size) {
      if (size <= 0) return;
      const Tensor steps = integers(context_, Op::arange, {size});
      llm_pos_ids_list.push_back(integers(context_, Op::add, {3, size}));
    };
    std::int64_t text = tokens - data_.tokens_of_images();
    for (std::int64_t image = 0; image < pieces; ++image) {
      add_text(std::min<std::int64_t>(text, 1));
      text -= std::min<std::int64_t>(text, 1);
      vision_position_ids = token_position_ids(by_frame ? frame : data_.image(image));
      llm_pos_ids_list.push_back(vision_position_ids);
      { const Tensor is_wider = empty(context_, Op::gt, {}, DType::boolean); }
      const Tensor side = scalar(Op::floor_divide);
      if (!current_pos) current_pos = scalar(Op::add);  // afterwards in place
    }
    add_text(text);
    llm_positions = integers(context_, Op::cat, {3, tokens});
    if (is_masked) const Tensor mask = attended(), where = nonzero(mask, tokens);
    Tensor next;
    {
      const Tensor last = scalar(Op::maximum);
      next = scalar(Op::add);
    }
    mrope_position_deltas.push_back(scalar(Op::sub));
  }
  rope_deltas_ = integers(context_, Op::to_copy, {batch});
  return position_ids;
}

// compute_3d_position_ids; without images the text model makes its own.
Tensor GridLanguageModel::compute_3d_position_ids(const ModelInputs& inputs) {
  if (inputs.mm_token_type_ids && is_video())
    refusal =
        Error{"not-modelled", "/data",
              "found images of several frames in a batch as a processor makes it (a trainer, lengths, weights and "
              "autocast apart), whose positions are not supported yet; expected single frames"};
  if (inputs.mm_token_type_ids)
    return rope_index(inputs.input_ids, static_cast<bool>(inputs.attention_mask), inputs.rows);
  const Tensor tokens = unsqueeze(language_model_.positions(context_, inputs.input_ids.size(1)), 0);
  return expand(tokens, {text_positions_come_first() ? 4 : 3, inputs.input_ids.size(0), tokens.size(-1)});
}

Tensor frame_row_column(const Tensor& given) {
  if (given.ndim() == 3 && given.size(0) != 1) return given.size(0) == 4 ? slice(given, 0, 1, 3) : given;
  const Tensor one = given.ndim() == 3 ? given : unsqueeze(given, 0);
  return expand(one, {3, one.size(1), one.size(2)});
}

// Qwen2_5_VLModel.forward, Qwen3VLModel.forward
Tensor GridLanguageModel::model_forward(const ModelInputs& inputs) {
  ModuleCall call(context_, model_);
  // Python's locals go in the order in which they were bound: these in the reverse of their declaration.
  Tensor position_ids = inputs.position_ids;
  Deepstack deepstack;
  Tensor other_mask, image_mask, image_embeds;
  GridOutputs image_outputs;
  Tensor inputs_embeds = language_model_.embed(inputs.input_ids);
  if (has_images(inputs)) {
    if (inputs.images)
      image_outputs = {(*inputs.images)[1], inputs.images->front(), {inputs.images->begin() + 2, inputs.images->end()}};
    else
      image_outputs = image_features(inputs.pixel_values);
    // The tuple of each image's features becomes one tensor again, and so do those of the deepstack.
    const std::vector<std::int64_t> of_images = data_.tokens_of_each_image();
    const TensorList pieces = split(image_outputs.pooler_output, of_images, 0);
    List<TensorList> deeper;
    for (const Tensor& features : image_outputs.deepstack_features) deeper.push_back(split(features, of_images, 0));
    image_embeds = cat(pieces, 0);
    image_embeds = to(image_embeds, inputs_embeds.dtype());
    image_mask = find_placeholders(inputs.input_ids, other_mask, data_.video || (inputs.images && is_video()));
    inputs_embeds = masked_scatter(inputs_embeds, image_mask, image_embeds);
    if (!deeper.empty()) deepstack.visual_pos_masks = select(image_mask, -1, 0);
    for (const TensorList& features : deeper) deepstack.visual_embeds.push_back(cat(features, 0));
  }
  if (!position_ids)
    position_ids = compute_3d_position_ids(inputs);
  else if (text_positions_come_first() && position_ids.ndim() == 2)
    position_ids = expand(unsqueeze(position_ids, 0), {4, position_ids.size(0), position_ids.size(1)});
  else
    position_ids = frame_row_column(position_ids);
  Tensor hidden_states =
      run_decoder(inputs_embeds, {position_ids, inputs.attention_mask, inputs.rows, inputs.cu_seq_lens_q}, &deepstack);
  inputs_embeds.reset();
  image_outputs.last_hidden_state.reset();
  image_outputs.pooler_output.reset();
  image_embeds.reset();
  return call.result(hidden_states);
}

GridOutputs GridLanguageModel::image_features(const Tensor& pixel_values) const {
  const Tensor typed = to(pixel_values, first_of_tower().dtype());  // self.visual.dtype
  GridOutputs outputs = run_tower(typed);
  Tensor split_sizes;
  {
    const Tensor patches = integers(context_, Op::mul, {data_.images()});
    split_sizes = integers(context_, Op::div, {data_.images()});
  }
  return outputs;
}

}  // namespace oometer
