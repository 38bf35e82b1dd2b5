#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "config/reader.h"
#include "models/kit/recurrent.h"
#include "models/masking.h"
#include "ops/ops.h"

/// transformers 5.23, models/hrm_text/modeling_hrm_text.py: two stacks of layers that run in turn, several times, most
/// of them without gradients.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"HrmTextForCausalLM", "HrmTextModel",   "HrmTextDecoderLayer",   "HrmTextAttention",
                                 "HrmTextMLP",         "HrmTextRMSNorm", "HrmTextRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"hrm_text", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

struct HrmTextConfig : TextConfig {
  std::int64_t h_cycles = 2, l_cycles = 3;
  std::vector<std::int64_t> l_bp_cycles{2};  ///< the last cycles of the low stack that have gradients, by high cycle
  bool prefix_lm = true;

  bool operator==(const HrmTextConfig&) const = default;
};

HrmTextConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 151'808;
  d.hidden_size = 1536;
  d.intermediate_size = 4096;
  d.num_hidden_layers = 16;
  d.num_attention_heads = 12;
  d.num_key_value_heads = 0;
  HrmTextConfig c;
  static_cast<TextConfig&>(c) = read_text_sizes(reader, d, 128);
  c.num_key_value_heads = c.num_attention_heads;
  c.num_hidden_layers =
      reader.optional_integer("num_layers_per_stack", layer_count).value_or(c.num_hidden_layers);  // of each stack
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  c.mlp_bias = reader.boolean("mlp_bias", false);
  c.h_cycles = reader.integer("H_cycles", 2, {1, 64});
  c.l_cycles = reader.integer("L_cycles", 3, {1, 64});
  if (const auto given = reader.integers("L_bp_cycles", {0, 64}); !given.empty()) c.l_bp_cycles = given;
  const std::int64_t ones = c.h_cycles - static_cast<std::int64_t>(c.l_bp_cycles.size());
  if (ones > 0) c.l_bp_cycles.insert(c.l_bp_cycles.begin(), static_cast<std::size_t>(ones), 1);
  c.prefix_lm = reader.boolean("prefix_lm", true);
  if (c.hidden_size % c.num_attention_heads != 0)
    reader.fail_found("hidden_size", "inconsistent",
                      "expected a multiple of num_attention_heads (" + std::to_string(c.num_attention_heads) + ")");
  check_llama_heads(reader, c);
  reader.ignore({"embedding_scale"});
  return c;
}

struct HrmTextAttention {
  HrmTextAttention(const Builder& builder, const HrmTextConfig& c, const ModelOptions& options)
      : head_dim(c.head_dim),
        call(attention_call(c, options)),
        layer_idx(layer_index(builder)),
        module(builder.module) {
    const std::int64_t width = c.num_attention_heads * c.head_dim;
    const auto projection = [&](const char* name, std::int64_t from, std::int64_t to) {
      return Linear(builder.child(name, "Linear"), from, to, c.qkv_bias);
    };
    q_proj = projection("q_proj", c.hidden_size, width);
    k_proj = projection("k_proj", c.hidden_size, width);
    v_proj = projection("v_proj", c.hidden_size, width);
    o_proj = projection("o_proj", width, c.hidden_size);
    gate_proj = projection("gate_proj", c.hidden_size, width);
  }

  AttentionOutputs operator()(const Tensor& argument, const PositionEmbeddings& positions,
                              const Tensor& attention_mask) const {
    ModuleCall self(argument.context(), module);
    const Tensor hidden_states = self.argument(argument);
    AttentionInputs states = project(hidden_states, q_proj, k_proj, v_proj, head_dim, false);
    const Tensor gate_states = gate_proj(hidden_states);
    std::tie(states.query, states.key) = rotate_halves(states.query, states.key, positions);
    AttentionOutputs attention = attend(call, layer_idx, states, positions, attention_mask);
    {
      const Tensor gate = sigmoid(gate_states);
      attention.output = mul(gate, attention.output);
    }
    attention.output = self.result(o_proj(attention.output));
    return attention;
  }

  Linear q_proj, k_proj, v_proj, o_proj, gate_proj;
  std::int64_t head_dim;
  AttentionCall call;
  std::size_t layer_idx;
  ModuleId module;
};

struct HrmTextStack {
  HrmTextStack() = default;
  HrmTextStack(const Builder& builder, const HrmTextConfig& c, const ModelOptions& options)
      : blocks(builder), checkpointing(options.checkpointing), module(builder.module) {
    for (std::int32_t i = 0; i < c.num_hidden_layers; ++i) {
      const Builder at = builder.child("layers", kNames.decoder_layer, i);
      auto layer = std::make_unique<TextLayer>(at, pre_norm);
      layer->self_attn = HrmTextAttention(at.child("self_attn", kNames.attention), c, options);
      layer->mlp = LlamaMLP(at.child("mlp", kNames.mlp), c);
      layer->input_norm = Norm(at.child("input_layernorm", kNames.rms_norm), l2_norm);
      layer->feedforward_norm = Norm(at.child("post_attention_layernorm", kNames.rms_norm), l2_norm);
      layers.push_back(std::move(layer));
      blocks.add_block(builder);
    }
    final_norm = Norm(builder.child("final_norm", kNames.rms_norm), l2_norm);
  }

  Tensor operator()(const Tensor& argument, const PositionEmbeddings& positions, const Tensor& attention_mask) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_states = call.argument(argument);
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&layer = *layers[i], positions, attention_mask](const Tensor& hidden) {
        return layer(hidden, positions, attention_mask);
      };
    };
    // Each layer is run several times in a forward: none of them stands for another.
    const auto kind = [](std::size_t i) { return static_cast<int>(i); };
    hidden_states = blocks.run(0, layers.size(), std::move(hidden_states), checkpointing, block, {.kind = kind});
    return call.result(final_norm(hidden_states));
  }

  std::vector<std::unique_ptr<TextLayer>> layers;
  BlockStack blocks;
  Norm final_norm;
  CheckpointingConfig checkpointing;
  ModuleId module = 0;
};

class HrmTextForCausalLM : public LanguageModel {
 public:
  HrmTextForCausalLM(Context& context, const HrmTextConfig& c, const DataConfig& data, const ModelOptions& options)
      : LanguageModel(context, kNames.causal_lm, Modality::language, data, options), config_(c) {
    const Builder model = root_.child("model", kNames.model);
    language_model_.module = model.module;
    language_model_.checkpointing = options.checkpointing;
    language_model_.masked = masked_by(options.attention);
    language_model_.embed_tokens = Embedding(model.child("embed_tokens", "Embedding"), c.vocab_size, c.hidden_size);
    language_model_.rotary_emb = LlamaRotaryEmbedding(model.child("rotary_emb", kNames.rotary_embedding), c);
    low_ = HrmTextStack(model.child("L_module", "HrmTextStack"), c, options);
    high_ = HrmTextStack(model.child("H_module", "HrmTextStack"), c, options);
    high_.blocks.first_block = low_.layers.size();
    z_l_init_ = model.parameter("z_L_init", {c.hidden_size});
    z_l_init_->leaf_requires_grad = false;
    make_head(root_, c, c.tie_word_embeddings);
    is_causal_lm = true;
  }

  Tensor embed(const Tensor& input_ids) const override { return language_model_.embed(input_ids); }

  ModelOutputs forward(const ModelInputs& inputs) override {
    return causal_lm_outputs(model_forward(inputs), lm_head_, inputs, loss_function);
  }

 private:
  // HrmTextModel.forward
  Tensor model_forward(const ModelInputs& inputs) const {
    ModuleCall call(context_, language_model_.module);
    Tensor inputs_embeds = inputs.inputs_embeds ? inputs.inputs_embeds : language_model_.embed(inputs.input_ids);
    inputs_embeds = mul_scalar(inputs_embeds);
    const Tensor position_ids =
        inputs.position_ids ? inputs.position_ids : language_model_.positions(context_, inputs_embeds.size(1));
    const MaskArguments given{position_ids, inputs.attention_mask, inputs.rows, inputs.cu_seq_lens_q};
    const Tensor attention_mask = create_causal_mask(inputs_embeds, given, language_model_.masked);
    PositionEmbeddings positions = language_model_.rotary_emb(inputs_embeds, position_ids);
    positions.position_ids = position_ids;
    positions.rows = inputs.rows;
    positions.cu_seq_lens = inputs.cu_seq_lens_q;
    Tensor high = inputs_embeds;
    Tensor low = contiguous(expand(to(z_l_init_, high.dtype()), high.sizes()));
    for (std::int64_t h = 0; h < config_.h_cycles; ++h) {
      const std::int64_t first_with_gradients = config_.l_cycles - config_.l_bp_cycles[static_cast<std::size_t>(h)];
      for (std::int64_t l = 0; l < config_.l_cycles; ++l) {
        std::optional<NoGrad> no_grad;
        if (l < first_with_gradients) no_grad.emplace(context_);
        const Tensor sum = add(low, high);
        low = low_(sum, positions, attention_mask);
      }
      const Tensor sum = add(high, low);
      high = high_(sum, positions, attention_mask);
    }
    return call.result(high);
  }

  HrmTextConfig config_;
  HrmTextStack low_, high_;
  Tensor z_l_init_;
};

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<HrmTextConfig>();
  ModelTraits t = text_traits(c);
  t.has_no_peft_targets();
  for (const Feature feature :
       {Feature::inference, Feature::generate_options, Feature::lengths, Feature::packing, Feature::flash_attention_2})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  if (c.prefix_lm)
    for (const Feature feature : {Feature::flash_attention, Feature::flash_attention_2})
      t.refuse(feature, "inconsistent", "prefix_lm is set, whose mask flash attention cannot take: expected sdpa");
  t.generates = false;
  return t;
}

}  // namespace

namespace family {
extern const Family hrm_text{
    .classes = kClasses,
    .blocks = kBlocks,
    .read = [](ConfigReader& reader, const ModelClass&, Framework) -> FamilyConfig { return read(reader); },
    .build = [](Context& context, const FamilyConfig& config, const DataConfig& data,
                const ModelOptions& options) -> std::unique_ptr<Model> {
      return std::make_unique<HrmTextForCausalLM>(context, config.as<HrmTextConfig>(), data, options);
    },
    .traits = traits,
    .largest_tensor = [](const FamilyConfig& config,
                         const DataConfig& data) { return largest_tensor_of_text(config.as<HrmTextConfig>(), data); }};
}  // namespace family

}  // namespace oometer
