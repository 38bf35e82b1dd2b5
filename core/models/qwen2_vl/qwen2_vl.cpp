#include "models/qwen2_vl/qwen2_vl.h"

#include <algorithm>
#include <optional>

#include "models/kit/grids.h"
#include "nn/activation.h"
#include "nn/checkpointing.h"

/// Names and order of steps are the modeling files'.
namespace oometer {

namespace {

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

PatchAttention vision_attention(const Builder& builder, const QwenVLConfig& config, AttentionKind attention) {
  const QwenVisionConfig& c = config.vision;
  if (c.num_key_value_heads != 0)
    return PatchAttention::grouped(builder, c.hidden_size, c.num_heads, c.num_key_value_heads, attention);
  if (!config.names->projects_apart) return {builder, c.hidden_size, c.num_heads, attention};
  return PatchAttention::apart(builder, c.hidden_size, c.num_heads, attention,
                               {{"q", &PatchAttention::q_proj},
                                {"k", &PatchAttention::k_proj},
                                {"v", &PatchAttention::v_proj},
                                {"proj", &PatchAttention::proj}});
}

struct VisionBlock {
  VisionBlock() = default;
  VisionBlock(const Builder& builder, const QwenVLConfig& config, const ModelOptions& options)
      : norm1(builder, "norm1", config),
        norm2(builder, "norm2", config),
        attn(vision_attention(builder.child("attn", config.names->attention), config, options.attention)),
        mlp(builder.child("mlp", config.names->mlp), config),
        module(builder.module) {}

  Tensor operator()(const Tensor& hidden_in, const PatchSequences& sequences,
                    const PositionEmbeddings& positions) const {
    return run_vision_block(*this, hidden_in, sequences, positions);
  }

  VisionNorm norm1, norm2;
  PatchAttention attn;
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

// Qwen2_5_VisionTransformerPretrainedModel, Qwen2VisionTransformerPretrainedModel
struct VisionTransformer final : GridTower {
  VisionTransformer(const Builder& builder, const QwenVLConfig& config_in, const ModelOptions& options)
      : config(config_in.vision),
        has_windows(config_in.names->has_windows),
        checkpointing(options.checkpointing),
        module(builder.module) {
    const QwenVLClassNames& names = *config_in.names;
    patch_embed = GridPatchEmbed(
        builder.child("patch_embed", names.patch_embed),
        {config.hidden_size, config.in_channels, config.temporal_patch_size, config.patch_size, config.patch_size},
        false, checkpointing);
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

  const Tensor& first_parameter() const override { return patch_embed.weight; }
  BlockStack& block_stack() override { return stack; }
  GridOutputs operator()(const Tensor& pixel_values, const DataConfig& data) const override {
    Context& context = pixel_values.context();
    ModuleCall call(context, module);
    Tensor position_ids = vision_position_ids(context, data);
    const AttentionKind attention = blocks.front().attn.call.kind;
    PatchSequences frames = frames_of(context, data, attention), windows;
    if (has_windows) {
      windows = windows_of(context, config.windows(), data);
      ask_max_seqlen(windows, attention);
    }
    Tensor hidden_states = patch_embed(pixel_values);
    if (has_windows) hidden_states = permute(hidden_states);
    PositionEmbeddings positions = vision_rotary(rotary_pos_emb, position_ids);
    if (has_windows) {
      Tensor cos = permute(positions.cos), sin = permute(positions.sin);
      positions.sin.reset();
      positions = {std::move(cos), std::move(sin)};
    }
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      const PatchSequences& sequences = attends_fully(i) ? frames : windows;
      return [&block = blocks[i], sequences, positions = cast_forward_input(positions, blocks[i].module)](
                 const Tensor& hidden) { return block(hidden, sequences, positions); };
    };
    hidden_states = stack.run(0, blocks.size(), std::move(hidden_states), checkpointing, block,
                              {.kind = [&](std::size_t i) { return int{has_windows && attends_fully(i)}; }});
    GridOutputs outputs{call.result(hidden_states), merger(hidden_states)};
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
  LlamaRotaryEmbedding rotary_pos_emb;
  std::vector<VisionBlock> blocks;
  PatchMerger merger;

 public:
  GridPatchEmbed patch_embed;
  BlockStack stack;
  ModuleId module = 0;
};

}  // namespace

std::unique_ptr<GridTower> make_qwen_vision(const Builder& builder, const QwenVLConfig& config,
                                            const ModelOptions& options) {
  return std::make_unique<VisionTransformer>(builder, config, options);
}

namespace {

// Qwen2_5_VLForConditionalGeneration
class QwenVL : public GridLanguageModel {
 public:
  QwenVL(Context& context, const QwenVLConfig& config, const DataConfig& data, const ModelOptions& options)
      : GridLanguageModel(context, config.names->text.causal_lm, data, options, config.vision.patch_elements(),
                          config.names->has_windows) {
    accepts_loss_kwargs = !config.names->has_windows;  // Qwen2VLForConditionalGeneration does not say it
    const QwenVLClassNames& names = *config.names;
    const Builder model = root_.child("model", names.model);
    model_ = model.module;
    visual_ = make_qwen_vision(model.child("visual", names.tower, Modality::vision), config, options);
    make_decoder(model.child("language_model", names.text.model, Modality::language), config.text, options);
    language_model_.blocks.first_block = visual_->block_stack().size();
    make_head(root_, config.text, config.tie_word_embeddings);
  }

 private:
  GridOutputs run_tower(const Tensor& pixel_values) const override { return (*visual_)(pixel_values, data_); }
  const Tensor& first_of_tower() const override { return visual_->first_parameter(); }

  std::unique_ptr<GridTower> visual_;
};

}  // namespace

std::unique_ptr<Model> build_qwen_vl(Context& context, const QwenVLConfig& config, const DataConfig& data,
                                     const ModelOptions& options) {
  return std::make_unique<QwenVL>(context, config, data, options);
}

}  // namespace oometer
