#include "models/qwen2_vl/qwen2_vl.h"

#include <algorithm>
#include <optional>

#include "models/kit/decoder.h"
#include "nn/activation.h"
#include "nn/checkpointing.h"
#include "ops/cub.h"
#include "ops/integers.h"

/// Names and order of steps are the modeling files'. The batch has its position_ids, as get_rope_index makes them in a
/// data collator, and image_grid_thw on the device, as whoever moves a batch there leaves it.
namespace oometer {

namespace {

/// CUB's scratch memory for a scan or a selection of int32: descriptors of 8 bytes, of 32 tiles for the first tile.
constexpr std::int64_t kSmallScan = 1023;

/// RMSNorm (Qwen2.5-VL) or LayerNorm (Qwen2-VL).
struct VisionNorm {
  VisionNorm() = default;
  VisionNorm(const Builder& parent, const char* name, const QwenVLConfig& config) {
    const Builder builder = parent.child(name, config.names->norm);
    if (config.names->has_windows)
      rms_norm.emplace(builder, config.vision.hidden_size);
    else
      layer_norm = LayerNorm(builder, config.vision.hidden_size);
  }
  Tensor operator()(const Tensor& x) const { return rms_norm ? (*rms_norm)(x) : layer_norm(x); }

  std::optional<LlamaRMSNorm> rms_norm;
  LayerNorm layer_norm;
};

/// Qwen2_5_VLMLP (Llama's, with biases) or VisionMlp.
struct VisionMlp {
  VisionMlp() = default;
  VisionMlp(const Builder& builder, const QwenVLConfig& config)
      : act(config.vision.hidden_act), module(builder.module) {
    const QwenVisionConfig& vision = config.vision;
    if (config.names->has_windows) {
      LlamaConfig sizes;
      sizes.hidden_size = vision.hidden_size;
      sizes.intermediate_size = vision.intermediate_size;
      sizes.hidden_act = vision.hidden_act;
      sizes.mlp_bias = true;
      gated.emplace(builder, sizes);
    } else {
      fc1 = Linear(builder.child("fc1", "Linear"), vision.hidden_size, vision.intermediate_size, true);
      fc2 = Linear(builder.child("fc2", "Linear"), vision.intermediate_size, vision.hidden_size, true);
    }
  }
  Tensor operator()(const Tensor& argument) const {
    if (gated) return (*gated)(argument);
    ModuleCall call(argument.context(), module);
    Tensor x = fc1(call.argument(argument));
    x = activate(act, x);
    return call.result(fc2(x));
  }

  std::optional<LlamaMLP> gated;
  Linear fc1, fc2;
  Activation act = Activation::quick_gelu;
  ModuleId module = 0;
};

/// Which patches attend to one another: cu_seqlens, which holds the bounds of the sequences, and their lengths.
struct Sequences {
  Tensor cu_seqlens;
  std::vector<std::int64_t> lengths;
};

struct VisionAttention {
  VisionAttention() = default;
  VisionAttention(const Builder& builder, const QwenVisionConfig& config, AttentionKind attention)
      : qkv(builder.child("qkv", "Linear"), config.hidden_size, 3 * config.hidden_size, true),
        proj(builder.child("proj", "Linear"), config.hidden_size, config.hidden_size, true),
        num_heads(config.num_heads),
        head_dim(config.head_dim()),
        call{attention, false, 0},
        module(builder.module) {}

  Tensor operator()(const Tensor& argument, const Sequences& sequences, const PositionEmbeddings& positions) const {
    ModuleCall self(argument.context(), module);
    const Tensor hidden_states = self.argument(argument);
    const std::int64_t seq_length = hidden_states.size(0);
    Tensor attn_output;
    TensorList attn_outputs;
    std::vector<TensorList> splits;
    Tensor lengths, value_states, key_states, query_states;
    {
      const Tensor projected = qkv(hidden_states);
      TensorList states = unbind(transpose(view(projected, {seq_length, 3, num_heads, head_dim}), 0, 1));
      query_states = states[0];
      key_states = states[1];
      value_states = states[2];
    }
    apply_rotary_pos_emb_vision(query_states, key_states, positions);
    for (Tensor* states : {&query_states, &key_states, &value_states}) *states = unsqueeze(transpose(*states, 0, 1), 0);
    lengths = empty(hidden_states.context(), Op::sub, {std::ssize(sequences.lengths)}, DType::int32);
    for (const Tensor* states : {&query_states, &key_states, &value_states})
      splits.push_back(split(*states, sequences.lengths, 2));
    attn_outputs.reserve(sequences.lengths.size());
    for (std::size_t i = 0; i < sequences.lengths.size(); ++i)
      attn_outputs.push_back(attention_forward(call, splits[0][i], splits[1][i], splits[2][i], {}).output);
    attn_output = cat(attn_outputs, 1);
    attn_output = view(attn_output, {seq_length, checked_product(num_heads, head_dim)});
    return self.result(proj(attn_output));
  }

  static void apply_rotary_pos_emb_vision(Tensor& query_states, Tensor& key_states,
                                          const PositionEmbeddings& positions) {
    const DType dtype = query_states.dtype();
    Tensor k_embed, q_embed, k, q;  // q goes first
    q = to(query_states, DType::float32);
    k = to(key_states, DType::float32);
    const Tensor cos = unsqueeze(positions.cos, -2), sin = unsqueeze(positions.sin, -2);
    q_embed = rotate(q, cos, sin);
    k_embed = rotate(k, cos, sin);
    q_embed = to(q_embed, dtype);
    k_embed = to(k_embed, dtype);
    query_states = std::move(q_embed);
    key_states = std::move(k_embed);
  }

  Linear qkv, proj;
  std::int64_t num_heads = 0, head_dim = 0;
  AttentionCall call;
  ModuleId module = 0;
};

struct VisionBlock {
  VisionBlock() = default;
  VisionBlock(const Builder& builder, const QwenVLConfig& config, const ModelOptions& options)
      : norm1(builder, "norm1", config),
        norm2(builder, "norm2", config),
        attn(builder.child("attn", config.names->attention), config.vision, options.attention),
        mlp(builder.child("mlp", config.names->mlp), config),
        module(builder.module) {}

  Tensor operator()(const Tensor& hidden_in, const Sequences& sequences, const PositionEmbeddings& positions) const {
    const ModuleScope scope(hidden_in.context(), module);
    Tensor hidden_states = norm1(hidden_in);
    hidden_states = attn(hidden_states, sequences, positions);
    hidden_states = add(hidden_in, hidden_states);
    Tensor transformed = norm2(hidden_states);
    transformed = mlp(transformed);
    Tensor result = add(hidden_states, transformed);
    transformed.reset();
    return result;
  }

  VisionNorm norm1, norm2;
  VisionAttention attn;
  VisionMlp mlp;
  ModuleId module = 0;
};

struct PatchMerger {
  PatchMerger() = default;
  PatchMerger(const Builder& builder, const QwenVLConfig& config)
      : hidden_size(checked_product(config.vision.hidden_size, config.vision.merge_unit())),
        ln_q(builder, "ln_q", config),
        module(builder.module) {
    const Builder sequential = builder.child("mlp", "Sequential");
    mlp = sequential.module;
    first = Linear(sequential.child("", "Linear", 0), hidden_size, hidden_size, true);
    second = Linear(sequential.child("", "Linear", 2), hidden_size, config.vision.out_hidden_size, true);
  }

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    Tensor x;
    {
      Tensor rows = ln_q(call.argument(argument));  // the caller's argument while mlp runs
      rows = view(rows, {rows.numel() / hidden_size, hidden_size});
      ModuleCall inner(argument.context(), mlp);
      x = first(inner.argument(rows));
      x = activate(Activation::gelu, x);
      x = inner.result(second(x));
    }
    return call.result(x);
  }

  std::int64_t hidden_size = 0;
  VisionNorm ln_q;
  Linear first, second;
  ModuleId module = 0, mlp = 0;
};

struct VisionOutputs {
  Tensor last_hidden_state, pooler_output;
};

// Qwen2_5_VisionTransformerPretrainedModel, Qwen2VisionTransformerPretrainedModel
struct VisionTransformer {
  VisionTransformer() = default;
  VisionTransformer(const Builder& builder, const QwenVLConfig& config_in, const ModelOptions& options)
      : config(config_in.vision),
        has_windows(config_in.names->has_windows),
        checkpointing(options.checkpointing),
        module(builder.module) {
    const QwenVLClassNames& names = *config_in.names;
    const Builder embed = builder.child("patch_embed", names.patch_embed), conv = embed.child("proj", "Conv3d");
    patch_embed = embed.module;
    proj = conv.module;
    weight = conv.parameter("weight", {config.hidden_size, config.in_channels, config.temporal_patch_size,
                                       config.patch_size, config.patch_size});
    LlamaConfig half;  // compute_axial_rope_parameters: frequencies of half a head
    half.head_dim = config.head_dim() / 2;
    rotary_pos_emb = LlamaRotaryEmbedding(builder.child("rotary_pos_emb", names.rotary_embedding), half);
    blocks.reserve(static_cast<std::size_t>(config.depth));
    stack = BlockStack(builder);
    for (std::int32_t i = 0; i < config.depth; ++i) {
      blocks.emplace_back(builder.child("blocks", names.block, i), config_in, options);
      stack.add_block(builder);
    }
    merger = PatchMerger(builder.child("merger", names.merger, Modality::projector), config_in);
  }

  VisionOutputs operator()(const Tensor& pixel_values, const DataConfig& data) const {
    Context& context = pixel_values.context();
    ModuleCall call(context, module);
    Tensor position_ids = vision_position_ids(context, data);
    Sequences frames{frame_bounds(context, data), repeated(frame_lengths(data), data.images())}, windows;
    if (has_windows) {
      windows.lengths = repeated(window_lengths(config, data), data.images());
      windows.cu_seqlens = window_bounds(context, checked_product(data.images(), windows_with_padding(config, data)));
    }
    Tensor hidden_states = embed(pixel_values);
    if (has_windows) hidden_states = permute(hidden_states);
    PositionEmbeddings positions = rotary(position_ids);
    if (has_windows) {
      Tensor cos = permute(positions.cos), sin = permute(positions.sin);
      positions.sin.reset();
      positions = {std::move(cos), std::move(sin)};
    }
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      const Sequences& sequences = attends_fully(i) ? frames : windows;
      return [&block = blocks[i], sequences, positions](const Tensor& hidden) {
        return block(hidden, sequences, positions);
      };
    };
    hidden_states = stack.run(0, blocks.size(), std::move(hidden_states), checkpointing, block,
                              {.is_other = [&](std::size_t i) { return has_windows && attends_fully(i); }});
    VisionOutputs outputs{call.result(hidden_states), merger(hidden_states)};
    if (has_windows) outputs.pooler_output = index_from_host(outputs.pooler_output, outputs.pooler_output.size(0));
    outputs.pooler_output = call.result(outputs.pooler_output);
    position_ids.reset();
    // cu_seqlens_now is the last block's.
    (attends_fully(blocks.size() - 1) ? windows : frames).cu_seqlens.reset();
    return outputs;
  }

 private:
  bool attends_fully(std::size_t block) const {
    const std::vector<std::int64_t>& full = config.fullatt_block_indexes;
    return !has_windows || std::find(full.begin(), full.end(), static_cast<std::int64_t>(block)) != full.end();
  }

  static std::vector<std::int64_t> repeated(const std::vector<std::int64_t>& lengths, std::int64_t times) {
    std::vector<std::int64_t> all;
    for (std::int64_t i = 0; i < times; ++i) all.insert(all.end(), lengths.begin(), lengths.end());
    return all;
  }

  // Qwen2_5_VisionPatchEmbed.forward
  Tensor embed(const Tensor& pixel_values) const {
    Context& context = pixel_values.context();
    ModuleCall call(context, patch_embed);
    if (context.modules) context.modules->read(weight);  // `target_dtype`
    const std::int64_t patch = config.patch_size;
    Tensor hidden_states = view(call.argument(pixel_values),
                                {pixel_values.size(0), config.in_channels, config.temporal_patch_size, patch, patch});
    hidden_states = to(hidden_states, weight.dtype());
    {
      ModuleCall inner(context, proj);
      hidden_states = inner.result(convolution(inner.argument(hidden_states), weight, {}));
    }
    hidden_states = call.result(view(hidden_states, {pixel_values.size(0), config.hidden_size}));
    require_input_grad(checkpointing, hidden_states, patch_embed);
    return hidden_states;
  }

  // get_vision_position_ids, vision_utils.py: [patches, 2]
  static Tensor vision_position_ids(Context& context, const DataConfig& data) {
    const std::int64_t h = data.grid_h, w = data.grid_w;
    TensorList position_ids;
    Tensor wpos_ids, hpos_ids, spatial_merge_size = integers(context, Op::to_copy, {1});
    for (std::int64_t image = 0; image < data.images(); ++image) {
      Tensor rows = integers(context, Op::arange, {h}), columns = integers(context, Op::arange, {w});
      hpos_ids.reset();
      wpos_ids.reset();
      hpos_ids = integers(context, Op::clone, {h * w});
      rows.reset();
      wpos_ids = integers(context, Op::clone, {h * w});
      columns.reset();
      const Tensor both = integers(context, Op::cat, {h * w, 2});
      position_ids.push_back(integers(context, Op::clone, {data.patches(), 2}));
    }
    Tensor result = integers(context, Op::cat, {checked_product(data.images(), data.patches()), 2});
    spatial_merge_size.reset();
    position_ids.clear();
    return result;
  }

  // get_vision_cu_seqlens
  static Tensor frame_bounds(Context& context, const DataConfig& data) {
    const std::int64_t images = data.images(), frames = checked_product(images, data.grid_t);
    const auto scan = [&](std::int64_t bytes) { const Workspace workspace(context, Op::cumsum, bytes); };
    Tensor seqlens;
    {
      const Tensor areas = integers(context, Op::mul, {images});
      {  // repeat_interleave, by a column of the grid: a strided one is copied each time
        const auto column = [&] { return images > 1 ? integers(context, Op::clone, {images}) : Tensor(); };
        Tensor indices;
        {
          const Tensor repeats = column();
          const Tensor sums = integers(context, Op::cumsum, {images});
          {
            const Tensor copy = column();
            scan(cub_scan_bytes(images));
          }
          {
            const Tensor least = integers(context, Op::empty, {});
            const Tensor copy = column();
          }
          indices = integers(context, Op::empty, {frames});
        }
        seqlens = integers(context, Op::index, {frames});
      }
    }
    const Tensor sums = empty(context, Op::cumsum, {frames}, DType::int32);
    {
      const Tensor copy = empty(context, Op::to_copy, {frames}, DType::int32);
      scan(kSmallScan);
    }
    Tensor bounds = empty(context, Op::constant_pad_nd, {frames + 1}, DType::int32);
    return bounds;
  }

  // get_vision_window_index: all but the bounds is made on the host. Windows of padding alone end where they begin.
  static Tensor window_bounds(Context& context, std::int64_t windows) {
    const Tensor all = empty(context, Op::to_copy, {windows + 1}, DType::int32);
    Tensor bounds = empty(context, Op::empty, {windows + 1}, DType::int32);
    const Tensor count = integers(context, Op::empty, {});
    const Workspace select(context, Op::empty, kSmallScan);
    return bounds;
  }

  // Qwen2_5_VLVisionRotaryEmbedding.forward
  PositionEmbeddings rotary(const Tensor& position_ids) const {
    Context& context = position_ids.context();
    ModuleCall call(context, rotary_pos_emb.module);
    const NoGrad no_grad(context);
    Tensor freqs = rotary_angles(position_ids, rotary_pos_emb.inv_freq);
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
    return {call.result(cos), call.result(sin)};
  }

  // permute_input_for_window_attn
  Tensor permute(const Tensor& input_tensor) const {
    const std::int64_t seq_len = input_tensor.size(0), rows = seq_len / config.merge_unit(),
                       width = input_tensor.size(1);
    const Tensor grouped = view(input_tensor, {rows, config.merge_unit(), width});
    return view(index_from_host(grouped, rows), {seq_len, width});
  }

  QwenVisionConfig config;
  bool has_windows = false;
  CheckpointingConfig checkpointing;
  Tensor weight;
  LlamaRotaryEmbedding rotary_pos_emb;
  std::vector<VisionBlock> blocks;
  PatchMerger merger;

 public:
  BlockStack stack;
  ModuleId module = 0, patch_embed = 0, proj = 0;
};

// Qwen2_5_VLForConditionalGeneration
class QwenVL : public LanguageModel {
 public:
  QwenVL(Context& context, const QwenVLConfig& config, const DataConfig& data, const ModelOptions& options)
      : LanguageModel(context, config.names->text.causal_lm, Modality::none, data, options),
        vision_(config.vision),
        has_windows_(config.names->has_windows) {
    const QwenVLClassNames& names = *config.names;
    const Builder model = root_.child("model", names.model);
    model_ = model.module;
    visual_ = VisionTransformer(model.child("visual", names.tower, Modality::vision), config, options);
    make_decoder(model.child("language_model", names.text.model, Modality::language), config.text, options);
    language_model_.blocks.first_block = visual_.stack.size();
    make_head(root_, config.text, config.tie_word_embeddings);
  }

  /// The processor's batch: no position ids, but which tokens are an image's.
  void make_images(ModelInputs& batch, std::int64_t images_per_sample) override {
    data_.images_per_sample = images_per_sample;
    if (data_.images() == 0) return;
    batch.mm_token_type_ids = input({data_.micro_batch_size, data_.sequence_length});
    make_pixel_values(batch);
    if (is_video() && has_windows_) batch.second_per_grid_ts = input({data_.images()}, DType::float32);
  }

  TensorList encoded_images(const ModelInputs& batch) override {
    if (!batch.pixel_values) return {};
    VisionOutputs outputs = image_features(batch.pixel_values);
    return {std::move(outputs.pooler_output), std::move(outputs.last_hidden_state)};
  }

  Tensor prepare_position_ids(const ModelInputs& batch, Tensor text_positions, bool continues) override {
    if (continues) return integers(context_, Op::add, {1, text_positions.size(0), text_positions.size(1)});
    Tensor vision_positions;
    const Shape sizes{4, text_positions.size(0), text_positions.size(1)};
    if (batch.mm_token_type_ids) {
      { const Workspace has_new_vision_tokens(context_, Op::any, 1); }
      vision_positions = rope_index(text_positions);
    } else
      rope_deltas_ = integers(context_, Op::zeros, {sizes[1], 1});
    Tensor position_ids = integers(context_, Op::cat, sizes);
    text_positions.reset();
    return position_ids;
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    const Tensor hidden_states = model_forward(inputs);
    return causal_lm_outputs(hidden_states, lm_head_, inputs, loss_function);
  }

 private:
  void complete(ModelInputs& batch) override {
    batch.position_ids = input({3, data_.micro_batch_size, data_.sequence_length});
    make_pixel_values(batch);
  }

  void make_pixel_values(ModelInputs& batch) const {
    const std::int64_t images = data_.images();
    if (images == 0) return;
    batch.pixel_values =
        input({checked_product(images, data_.patches()), vision_.patch_elements()}, data_.pixel_dtype.value_or(dtype_));
    batch.image_grid_thw = input({images, 3});
  }

  /// generate() is given pixel_values_videos; training, pixel_values.
  bool is_video() const { return data_.grid_t > 1; }

  // get_rope_index. A token of text comes before each image, the rest of the text after the last. Left out: scalars,
  // and what is as long as an image's side and goes at once.
  Tensor rope_index(const Tensor& text_positions) {
    const std::int64_t batch = text_positions.size(0), length = text_positions.size(1);
    // Python's locals go in the order in which they were bound: these in the reverse of their declaration.
    Tensor llm_positions;
    TensorList llm_pos_ids_list;
    Tensor input_token_type, current_input_ids;
    Tensor position_ids = integers(context_, Op::zeros, {3, batch, length});
    for (std::int64_t row = 0; row < batch; ++row) {
      const auto attended = [&] { return empty(context_, Op::to_copy, {length}, DType::boolean); };
      const auto unpadded = [&] { return index_mask(select(text_positions, 0, row), attended(), length); };
      current_input_ids.reset();
      input_token_type.reset();
      current_input_ids = unpadded();
      input_token_type = unpadded();
      llm_pos_ids_list.clear();
      const auto group = [&](std::int64_t tokens) {
        if (tokens > 0) llm_pos_ids_list.push_back(integers(context_, Op::add, {3, tokens}));
        return tokens;
      };
      std::int64_t text = length - checked_product(data_.images_per_sample, data_.tokens_per_image);
      for (std::int64_t image = 0; image < data_.images_per_sample; ++image) {
        text -= group(std::min<std::int64_t>(text, 1));
        group(data_.tokens_per_image);
      }
      group(text);
      llm_positions = integers(context_, Op::cat, {3, length});
      const Tensor mask = attended(), where = nonzero(mask, length);
    }
    rope_deltas_ = integers(context_, Op::to_copy, {batch});
    return position_ids;
  }

  // Qwen2_5_VLModel.forward
  Tensor model_forward(const ModelInputs& inputs) const {
    ModuleCall call(context_, model_);
    Tensor other_mask, image_mask, image_embeds;
    VisionOutputs image_outputs;
    Tensor inputs_embeds = language_model_.embed(inputs.input_ids);
    if (has_images(inputs)) {
      image_outputs = inputs.images ? VisionOutputs{(*inputs.images)[1], inputs.images->front()}
                                    : image_features(inputs.pixel_values);
      // The tuple of each image's features becomes one tensor again.
      image_embeds = cat(split(image_outputs.pooler_output, features_of_images(), 0), 0);
      image_embeds = to(image_embeds, inputs_embeds.dtype());
      image_mask = placeholder_mask(inputs.input_ids, other_mask, inputs.images && is_video());
      inputs_embeds = masked_scatter(inputs_embeds, image_mask, image_embeds);
    }
    Tensor hidden_states =
        run_decoder(inputs_embeds, {axes_of(inputs.position_ids), inputs.attention_mask, inputs.rows});
    inputs_embeds.reset();
    image_outputs.last_hidden_state.reset();
    image_outputs.pooler_output.reset();
    image_embeds.reset();
    return call.result(hidden_states);
  }

  std::vector<std::int64_t> features_of_images() const {
    return std::vector<std::int64_t>(static_cast<std::size_t>(data_.images()), data_.tokens_per_image);
  }

  // get_image_features
  VisionOutputs image_features(const Tensor& pixel_values) const {
    VisionOutputs outputs = visual_(pixel_values, data_);
    Tensor split_sizes;
    {
      const Tensor patches = integers(context_, Op::mul, {data_.images()});
      split_sizes = integers(context_, Op::div, {data_.images()});
    }
    return outputs;
  }

  // get_placeholder_mask, of images or videos; `other`: that of the others
  Tensor placeholder_mask(const Tensor& input_ids, Tensor& other, bool of_videos) const {
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

  /// Qwen2_5_VLTextModel.forward: positions of frame, row and column, without the text's own that generate() has.
  static Tensor axes_of(const Tensor& given) {
    if (given.ndim() == 3 && given.size(0) != 1) return given.size(0) == 4 ? slice(given, 0, 1, 3) : given;
    const Tensor one = given.ndim() == 3 ? given : unsqueeze(given, 0);
    return expand(one, {3, one.size(1), one.size(2)});
  }

  QwenVisionConfig vision_;
  bool has_windows_ = false;
  VisionTransformer visual_;
  ModuleId model_ = 0;
  Tensor rope_deltas_;  ///< of generation
};

}  // namespace

std::unique_ptr<Model> build_qwen_vl(Context& context, const QwenVLConfig& config, const DataConfig& data,
                                     const ModelOptions& options) {
  return std::make_unique<QwenVL>(context, config, data, options);
}

}  // namespace oometer
