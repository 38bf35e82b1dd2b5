#include "models/qwen3_vl/qwen3_vl.h"

#include <algorithm>
#include <utility>

#include "models/kit/grids.h"
#include "models/kit/interpolation.h"
#include "models/kit/recurrent.h"
#include "nn/activation.h"
#include "nn/checkpointing.h"

/// Names and order of steps are the modeling files'.
namespace oometer {

namespace {

struct VisionMLP {
  VisionMLP() = default;
  VisionMLP(const Builder& builder, const Qwen3VisionConfig& config)
      : linear_fc1(builder.child("linear_fc1", "Linear"), config.hidden_size, config.intermediate_size, true),
        linear_fc2(builder.child("linear_fc2", "Linear"), config.intermediate_size, config.hidden_size, true),
        act_fn(config.hidden_act),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_state = linear_fc1(call.argument(argument));
    hidden_state = activate(act_fn, hidden_state);
    return call.result(linear_fc2(hidden_state));
  }

  Linear linear_fc1, linear_fc2;
  Activation act_fn = Activation::gelu_tanh;
  ModuleId module = 0;
};

struct Qwen3VLVisionBlock {
  Qwen3VLVisionBlock() = default;
  Qwen3VLVisionBlock(const Builder& builder, const Qwen3VLConfig& config, const ModelOptions& options)
      : norm1(builder.child("norm1", "LayerNorm"), config.vision.hidden_size),
        norm2(builder.child("norm2", "LayerNorm"), config.vision.hidden_size),
        attn(builder.child("attn", config.of->attention), config.vision.hidden_size, config.vision.num_heads,
             options.attention),
        mlp(builder.child("mlp", config.of->mlp), config.vision),
        module(builder.module) {}

  Tensor operator()(const Tensor& hidden_in, const PatchSequences& sequences,
                    const PositionEmbeddings& positions) const {
    return run_vision_block(*this, hidden_in, sequences, positions);
  }

  LayerNorm norm1, norm2;
  PatchAttention attn;
  VisionMLP mlp;
  ModuleId module = 0;
};

struct Qwen3VLPatchMerger {
  Qwen3VLPatchMerger() = default;
  Qwen3VLPatchMerger(const Builder& builder, const Qwen3VLConfig& of, bool with_postshuffle_norm)
      : hidden_size(checked_product(of.vision.hidden_size, of.vision.merge_unit())),
        use_postshuffle_norm(with_postshuffle_norm),
        is_list(of.of->merges_by_list),
        norm(builder.child(is_list ? "ln_q" : "norm", "LayerNorm"),
             use_postshuffle_norm ? hidden_size : of.vision.hidden_size),
        module(builder.module) {
    const auto layer = [&](const char* name, std::int32_t index, const char* type) {
      return is_list ? builder.child("mlp", type, index) : builder.child(name, type);
    };
    linear_fc1 = Linear(layer("linear_fc1", 0, "Linear"), hidden_size, hidden_size, true);
    act_fn = layer("act_fn", 1, "GELU").module;
    linear_fc2 = Linear(layer("linear_fc2", 2, "Linear"), hidden_size, of.vision.out_hidden_size, true);
  }

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    const Tensor given = call.argument(argument);
    const auto rows = [&](const Tensor& tensor) { return view(tensor, {tensor.numel() / hidden_size, hidden_size}); };
    Tensor x = norm(use_postshuffle_norm ? rows(given) : given);
    x = rows(x);
    Tensor transformed = linear_fc1(x);
    if (is_list) x.reset();  // the loop's `hidden` is bound anew
    {
      const ModuleScope scope(argument.context(), act_fn);
      transformed = activate(Activation::gelu, transformed);
    }
    transformed = linear_fc2(transformed);
    x = std::move(transformed);
    return call.result(x);
  }

  std::int64_t hidden_size = 0;
  bool use_postshuffle_norm = false, is_list = false;
  LayerNorm norm;
  Linear linear_fc1;
  ModuleId act_fn = 0;
  Linear linear_fc2;
  ModuleId module = 0;
};

// Qwen3VLVisionModel
struct VisionModel final : GridTower {
  VisionModel(const Builder& builder, const Qwen3VLConfig& config_in, const ModelOptions& options)
      : config(config_in.vision), checkpointing(options.checkpointing), module(builder.module) {
    const Qwen3VLClass& names = *config_in.of;
    Builder projector = builder;
    projector.modality = Modality::projector;
    const auto make_deepstack = [&](const char* name) {
      for (std::int32_t i = 0; i < std::ssize(config.deepstack_visual_indexes); ++i)
        deepstack_merger_list.emplace_back(projector.child(name, names.merger, i), config_in, true);
    };
    if (names.merges_by_list) make_deepstack("merger_list");
    // No hook of checkpointing: transformers 5.23 does not find this tower's input embeddings.
    patch_embed = GridPatchEmbed(
        builder.child("patch_embed", names.patch_embed),
        {config.hidden_size, config.in_channels, config.temporal_patch_size, config.patch_size, config.patch_size},
        true, {});
    pos_embed = Embedding(builder.child("pos_embed", "Embedding"), config.num_position_embeddings, config.hidden_size);
    LlamaConfig half;  // compute_axial_rope_parameters: frequencies of half a head
    half.head_dim = config.hidden_size / config.num_heads / 2;
    rotary_pos_emb = LlamaRotaryEmbedding(builder.child("rotary_pos_emb", names.rotary_embedding), half);
    blocks.reserve(static_cast<std::size_t>(config.depth));
    stack = BlockStack(builder);
    for (std::int32_t i = 0; i < config.depth; ++i) {
      blocks.emplace_back(builder.child("blocks", names.block, i), config_in, options);
      stack.add_block(builder);
    }
    merger = Qwen3VLPatchMerger(builder.child("merger", names.merger, Modality::projector), config_in, false);
    if (!names.merges_by_list) make_deepstack("deepstack_merger_list");
  }

  const Tensor& first_parameter() const override { return patch_embed.weight; }
  BlockStack& block_stack() override { return stack; }
  GridOutputs operator()(const Tensor& pixel_values, const DataConfig& data) const override {
    Context& context = pixel_values.context();
    ModuleCall call(context, module);
    const Interpolation interp = interpolation(context, data, {.aligns_corners = true});
    const Tensor position_ids = vision_position_ids(context, data);
    const PatchSequences sequences = frames_of(context, data, blocks.front().attn.call.kind);
    Tensor hidden_states = patch_embed(pixel_values), pos_embeds;
    {
      Tensor mixed = pos_embed(interp.indices);
      mixed = mul(mixed, unsqueeze(interp.weights, -1));
      pos_embeds = sum(mixed, {1}, false);
    }
    {
      const Tensor typed = to(pos_embeds, hidden_states.dtype());
      hidden_states = add(hidden_states, typed);
    }
    const PositionEmbeddings positions = vision_rotary(rotary_pos_emb, position_ids);
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&block = blocks[i], sequences, positions = cast_forward_input(positions, blocks[i].module)](
                 const Tensor& hidden) { return block(hidden, sequences, positions); };
    };
    GridOutputs outputs;
    std::size_t begin = 0;
    for (std::size_t k = 0; k < deepstack_merger_list.size(); ++k) {
      const auto end = static_cast<std::size_t>(config.deepstack_visual_indexes[k]) + 1;
      hidden_states = stack.run(begin, end, std::move(hidden_states), checkpointing, block);
      outputs.deepstack_features.push_back(deepstack_merger_list[k](hidden_states));
      begin = end;
    }
    hidden_states = stack.run(begin, blocks.size(), std::move(hidden_states), checkpointing, block);
    outputs.pooler_output = merger(hidden_states);
    outputs.last_hidden_state = call.result(hidden_states);
    outputs.pooler_output = call.result(outputs.pooler_output);
    for (Tensor& features : outputs.deepstack_features) features = call.result(features);
    return outputs;
  }

  Qwen3VisionConfig config;
  CheckpointingConfig checkpointing;
  Embedding pos_embed;
  LlamaRotaryEmbedding rotary_pos_emb;
  std::vector<Qwen3VLVisionBlock> blocks;
  Qwen3VLPatchMerger merger;
  std::vector<Qwen3VLPatchMerger> deepstack_merger_list;
  GridPatchEmbed patch_embed;
  BlockStack stack;
  ModuleId module = 0;
};

}  // namespace

std::unique_ptr<GridTower> make_qwen3_vision(const Builder& builder, const Qwen3VLConfig& config,
                                             const ModelOptions& options) {
  return std::make_unique<VisionModel>(builder, config, options);
}

namespace {

// Qwen3VLForConditionalGeneration
class Qwen3VL : public GridLanguageModel {
 public:
  Qwen3VL(Context& context, const Qwen3VLConfig& config, const DataConfig& data, const ModelOptions& options)
      : GridLanguageModel(context, config.of->class_name, data, options, config.vision.patch_elements(), false) {
    accepts_loss_kwargs = false;
    const Qwen3VLClass& of = *config.of;
    const Builder model = root_.child("model", of.model);
    model_ = model.module;
    visual_ = make_qwen3_vision(model.child("visual", of.tower, Modality::vision), config, options);
    DecoderParts parts = of.make_parts(config.text, options);
    complete_parts(parts, config.text);
    make_decoder(model.child("language_model", config.text.names->model, Modality::language), config.text, options,
                 std::move(parts));
    language_model_.blocks.first_block = visual_->block_stack().size();
    make_head(root_, config.text, config.tie_word_embeddings);
  }

 private:
  GridOutputs run_tower(const Tensor& pixel_values) const override { return (*visual_)(pixel_values, data_); }
  const Tensor& first_of_tower() const override { return visual_->first_parameter(); }
  bool text_positions_come_first() const override { return true; }

  std::unique_ptr<GridTower> visual_;
};

}  // namespace

std::unique_ptr<Model> build_qwen3_vl(Context& context, const Qwen3VLConfig& config, const DataConfig& data,
                                      const ModelOptions& options) {
  return std::make_unique<Qwen3VL>(context, config, data, options);
}

}  // namespace oometer
