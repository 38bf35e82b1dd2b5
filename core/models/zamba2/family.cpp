#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "config/reader.h"
#include "models/kit/mamba2.h"
#include "models/kit/positioned.h"
#include "models/llama/llama.h"
#include "nn/activation.h"
#include "ops/ops.h"

/// transformers 5.23, models/zamba2/modeling_zamba2.py: Mamba-2 layers, and before some of them a transformer block
/// that several share, each with adapters of its own.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"Zamba2ForCausalLM", "Zamba2Model",   "Zamba2MambaDecoderLayer", "Zamba2Attention",
                                 "Zamba2MLP",         "Zamba2RMSNorm", "Zamba2RotaryEmbedding"};
constexpr const char* kHybridLayer = "Zamba2HybridLayer";
constexpr ModelClass kClasses[] = {{"zamba2", kNames.causal_lm}, {"zamba2", "Zamba2ForSequenceClassification"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer, kHybridLayer};

struct Zamba2Config : TextConfig {
  std::vector<bool> is_hybrid{};  ///< by layer: it has a transformer block
  std::int64_t num_mem_blocks = 1, adapter_rank = 128;
  bool use_shared_attention_adapter = false, use_mem_rope = false;

  std::int64_t attention_hidden_size() const { return 2 * hidden_size; }
  bool operator==(const Zamba2Config&) const = default;
};

/// layers_block_type, also by the names of older files (remap_legacy_layer_types).
void read_types(ConfigReader& reader, Zamba2Config& c) {
  const char* const key = reader.has("layer_types") ? "layer_types" : "layers_block_type";
  const std::vector<std::string> types = reader.texts_of_layers(key, c.num_hidden_layers);
  for (const std::string& type : types) {
    c.is_hybrid.push_back(type == "hybrid");
    if (type != "hybrid" && type != "mamba" && type != "linear_attention")
      reader.fail(key, "not-modelled",
                  "found \"" + type + "\"; \"linear_attention\" and \"hybrid\" are what this class knows");
  }
  if (!types.empty()) return;
  for (std::int64_t i = 0; i < c.num_hidden_layers; ++i)
    c.is_hybrid.push_back((i != 0 && i % 6 == 0 && i <= 42) || i == 47 || i == 51);
  if (c.num_hidden_layers != 54)
    reader.fail(key, "inconsistent", "found none, and the class's own is of 54 layers; expected one a layer");
}

void read_mixer(ConfigReader& reader, Zamba2Config& c) {
  MixerConfig& m = c.mixer;
  m.kernels = Kernels::mamba2 | Kernels::causal_conv1d;
  const std::int64_t inner = reader.integer("mamba_expand", 2) * c.hidden_size;
  m.num_value_heads = reader.integer("n_mamba_heads", 8);
  m.num_key_heads = reader.integer("mamba_ngroups", 1);
  m.key_head_dim = reader.integer("mamba_d_state", 64);
  m.conv_kernel = reader.integer("mamba_d_conv", 4);
  m.chunk_size = reader.integer("chunk_size", 256);
  m.conv_bias = true;  // whatever use_conv_bias is
  m.value_head_dim = inner / m.num_value_heads;
  if (m.value_size() != inner)
    reader.fail_found("n_mamba_heads", "inconsistent",
                      "expected a divisor of mamba_expand * hidden_size (" + std::to_string(inner) + ")");
  read_mamba_groups(reader, c);
}

Zamba2Config read(ConfigReader& reader) {
  Zamba2Config c;
  c.names = &kNames;
  c.vocab_size = reader.integer("vocab_size", 32'000);
  c.hidden_size = reader.integer("hidden_size", 2560);
  c.num_hidden_layers = reader.integer("num_hidden_layers", 54, layer_count);
  c.intermediate_size = reader.optional_integer("intermediate_size").value_or(4 * c.hidden_size);
  c.num_attention_heads = reader.integer("num_attention_heads", 32);
  c.num_key_value_heads = reader.optional_integer("num_key_value_heads").value_or(c.num_attention_heads);
  c.max_position_embeddings = reader.integer("max_position_embeddings", 4096);
  c.hidden_act = reader.activation("hidden_act", Activation::gelu);
  c.attention_dropout = reader.number("attention_dropout", 0, 0, 1);
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", true);
  c.has_pad_token = !reader.is_null("pad_token_id");
  c.num_mem_blocks = reader.integer("num_mem_blocks", 1);
  c.adapter_rank = reader.integer("adapter_rank", 128);
  c.use_shared_attention_adapter = reader.boolean("use_shared_attention_adapter", false);
  c.use_mem_rope = reader.boolean("use_mem_rope", false);
  reader.refuse("add_bias_linear", "biases of blocks that are shared are not supported yet: set it to false");
  c.head_dim = std::max<std::int64_t>(1, c.attention_hidden_size() / c.num_attention_heads);
  if (c.head_dim * c.num_attention_heads != c.attention_hidden_size())
    reader.fail_found(
        "hidden_size", "inconsistent",
        "expected num_attention_heads (" + std::to_string(c.num_attention_heads) + ") to divide its double");
  check_llama_heads(reader, c);
  read_types(reader, c);
  read_mixer(reader, c);
  reader.ignore({"time_step_min", "time_step_max", "time_step_floor", "use_mamba_kernels", "use_conv_bias",
                 "use_mem_eff_path", "num_logits_to_keep", "use_long_context", "pad_token_id", "mamba_headdim",
                 "attention_hidden_size", "attention_head_dim", "hybrid_layer_ids", "kv_channels", "ffn_hidden_size",
                 "num_query_groups", "time_step_limit", "use_shared_mlp_adapter", "use_shared_block_adapter"});
  return c;
}

/// An nn.Sequential of two Linear layers.
struct Adapter {
  Adapter(const Builder& builder, std::int64_t in, std::int64_t rank, std::int64_t out)
      : first(builder.child("0", "Linear"), in, rank, false),
        second(builder.child("1", "Linear"), rank, out, false),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    const Tensor compressed = first(call.argument(argument));
    return call.result(second(compressed));
  }

  Linear first, second;
  ModuleId module;
};

/// Of one list of a block's adapters: those of the hybrid layers that share it, by their place among all of these.
using Adapters = std::vector<std::optional<Adapter>>;

Adapters make_adapters(const Builder& builder, const char* name, const Zamba2Config& c, std::int64_t block_id,
                       std::int64_t in, std::int64_t out) {
  const auto count = std::count(c.is_hybrid.begin(), c.is_hybrid.end(), true);
  Adapters adapters;
  for (std::int32_t i = 0; i < count; ++i) {
    const bool has_it = i % c.num_mem_blocks == block_id;
    const Builder its = builder.child(name, has_it ? "Sequential" : "Identity", i);
    adapters.emplace_back();
    if (has_it) adapters.back().emplace(its, in, c.adapter_rank, out);
  }
  return adapters;
}

struct Zamba2Attention {
  Zamba2Attention(const Builder& builder, const Zamba2Config& c, const ModelOptions& options, std::int64_t block_id)
      : head_dim(c.head_dim), call(attention_call(c, options)), use_mem_rope(c.use_mem_rope), module(builder.module) {
    const std::int64_t width = c.attention_hidden_size();
    q_proj = Linear(builder.child("q_proj", "Linear"), width, c.num_attention_heads * head_dim, false);
    k_proj = Linear(builder.child("k_proj", "Linear"), width, c.num_key_value_heads * head_dim, false);
    v_proj = Linear(builder.child("v_proj", "Linear"), width, c.num_key_value_heads * head_dim, false);
    o_proj = Linear(builder.child("o_proj", "Linear"), c.num_attention_heads * head_dim, c.hidden_size, false);
    if (!c.use_shared_attention_adapter) return;
    // Of each place in turn, as the constructor's loop makes them.
    const auto count = std::count(c.is_hybrid.begin(), c.is_hybrid.end(), true);
    for (std::int32_t i = 0; i < count; ++i) {
      const bool has_it = i % c.num_mem_blocks == block_id;
      for (auto [adapters, name] :
           {std::pair{&q_adapters, "linear_q_adapter_list"}, std::pair{&k_adapters, "linear_k_adapter_list"},
            std::pair{&v_adapters, "linear_v_adapter_list"}}) {
        adapters->emplace_back();
        if (has_it) adapters->back().emplace(builder.child(name, "Sequential", i), width, c.adapter_rank, width);
      }
    }
  }

  /// `place`: of the layer among the hybrid ones.
  AttentionOutputs operator()(const Tensor& argument, const PositionEmbeddings& positions, const Tensor& mask,
                              std::size_t place) const {
    ModuleCall self(argument.context(), module);
    const Tensor hidden_states = self.argument(argument);
    AttentionInputs states{q_proj(hidden_states), k_proj(hidden_states), v_proj(hidden_states)};
    if (!q_adapters.empty())
      for (auto [projected, adapters] : {std::pair{&states.query, &q_adapters}, std::pair{&states.key, &k_adapters},
                                         std::pair{&states.value, &v_adapters}}) {
        const Tensor adapted = (*(*adapters)[place])(hidden_states);
        *projected = add(*projected, adapted);
      }
    for (Tensor* heads : {&states.query, &states.key, &states.value}) *heads = heads_of(*heads, head_dim);
    if (use_mem_rope) std::tie(states.query, states.key) = rotate_halves(states.query, states.key, positions);
    AttentionOutputs attention = attend(call, place, states, positions, mask);
    attention.output = self.result(o_proj(attention.output));
    for (Tensor* name : {&states.query, &states.key, &states.value}) name->reset();  // as a frame lets its names go
    return attention;
  }

  Linear q_proj, k_proj, v_proj, o_proj;
  Adapters q_adapters, k_adapters, v_adapters;
  std::int64_t head_dim;
  AttentionCall call;
  bool use_mem_rope;
  ModuleId module;
};

struct Zamba2MLP {
  Zamba2MLP(const Builder& builder, const Zamba2Config& c, std::int64_t block_id)
      : gate_up_proj(builder.child("gate_up_proj", "Linear"), c.hidden_size, 2 * c.intermediate_size, false),
        down_proj(builder.child("down_proj", "Linear"), c.intermediate_size, c.hidden_size, false),
        adapters(
            make_adapters(builder, "gate_up_proj_adapter_list", c, block_id, c.hidden_size, 2 * c.intermediate_size)),
        act_fn(c.hidden_act),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument, std::size_t place) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_state = call.argument(argument);
    Tensor gate_up_state = gate_up_proj(hidden_state);
    {
      const Tensor adapted = (*adapters[place])(hidden_state);
      gate_up_state = add(gate_up_state, adapted);
    }
    const std::int64_t half = gate_up_state.size(-1) / 2;
    const TensorList halves = split(gate_up_state, {half, half}, -1);
    gate_up_state.reset();
    {
      const Tensor activated = activate(act_fn, halves[0]);
      hidden_state = mul(activated, halves[1]);
    }
    return call.result(down_proj(hidden_state));
  }

  Linear gate_up_proj, down_proj;
  Adapters adapters;
  Activation act_fn;
  ModuleId module;
};

/// Zamba2AttentionDecoderLayer, one of a few that the hybrid layers share.
struct SharedTransformer {
  SharedTransformer(const Builder& builder, const Zamba2Config& c, const ModelOptions& options, std::int64_t block_id)
      : self_attn(builder.child("self_attn", kNames.attention), c, options, block_id),
        feed_forward(builder.child("feed_forward", kNames.mlp), c, block_id),
        input_layernorm(builder.child("input_layernorm", kNames.rms_norm), rms_norm, {c.attention_hidden_size()}),
        pre_ff_layernorm(builder.child("pre_ff_layernorm", kNames.rms_norm), rms_norm, {c.hidden_size}),
        module(builder.module) {}

  Tensor operator()(const Tensor& hidden_in, const Tensor& original_hidden_states, const PositionEmbeddings& positions,
                    const Tensor& attention_mask, std::size_t place) const {
    ModuleCall call(hidden_in.context(), module);
    Tensor hidden_states = cat({call.argument(hidden_in), original_hidden_states}, -1);
    hidden_states = input_layernorm(hidden_states);
    AttentionOutputs attention = self_attn(hidden_states, positions, attention_mask, place);
    hidden_states = std::move(attention.output);  // the weights stay in `_` until the layer returns
    hidden_states = pre_ff_layernorm(hidden_states);
    return call.result(feed_forward(hidden_states, place));
  }

  /// Its parameters, in their order, with the module of each.
  std::vector<std::pair<Tensor*, ModuleId>> parameters() {
    std::vector<std::pair<Tensor*, ModuleId>> all;
    const auto add = [&](Linear& linear) { all.emplace_back(&linear.weight, linear.module); };
    for (Linear* linear : {&self_attn.q_proj, &self_attn.k_proj, &self_attn.v_proj, &self_attn.o_proj,
                           &feed_forward.gate_up_proj, &feed_forward.down_proj})
      add(*linear);
    for (Adapters* adapters :
         {&self_attn.q_adapters, &self_attn.k_adapters, &self_attn.v_adapters, &feed_forward.adapters})
      for (std::optional<Adapter>& adapter : *adapters)
        if (adapter) {
          add(adapter->first);
          add(adapter->second);
        }
    for (Norm* norm : {&input_layernorm, &pre_ff_layernorm}) all.emplace_back(&norm->weight, norm->module);
    return all;
  }

  Zamba2Attention self_attn;
  Zamba2MLP feed_forward;
  Norm input_layernorm, pre_ff_layernorm;
  ModuleId module;
};

struct Zamba2MambaDecoderLayer {
  Zamba2MambaDecoderLayer(const Builder& builder, const Zamba2Config& c, std::size_t layer_idx)
      : mamba(builder.child("mamba", "Zamba2MambaMixer"), c, Activation::silu, layer_idx,
              {.norm_type = "Zamba2RMSNormGated"}),
        input_layernorm(builder.child("input_layernorm", kNames.rms_norm), rms_norm, {c.hidden_size}),
        module(builder.module) {}

  /// `transformer_hidden_states`: of a hybrid layer; else null.
  Tensor operator()(const Tensor& residual, const Tensor& attention_mask,
                    const Tensor& transformer_hidden_states) const {
    const ModuleScope scope(residual.context(), module);
    Tensor hidden_states = transformer_hidden_states ? add(residual, transformer_hidden_states) : residual;
    hidden_states = input_layernorm(hidden_states);
    hidden_states = mamba(hidden_states, attention_mask).output;
    return add(residual, hidden_states);
  }

  Mamba2Mixer mamba;
  Norm input_layernorm;
  ModuleId module;
};

/// What stands before a Mamba-2 layer in a Zamba2HybridLayer.
struct Hybrid {
  Linear linear;
  SharedTransformer shared_transformer;
  std::size_t place;
  ModuleId module;
};

class Zamba2ForCausalLM : public PositionedLM {
 public:
  Zamba2ForCausalLM(Context& context, const Zamba2Config& c, const DataConfig& data, const ModelOptions& options)
      : PositionedLM(context, c, data, options) {
    const Builder model = root_.child("model", kNames.model);
    begin_decoder(model, c, options);
    language_model_.embed_tokens = Embedding(model.child("embed_tokens", "Embedding"), c.vocab_size, c.hidden_size);
    make_layers(model, c, options);
    language_model_.norm = final_norm(rms_norm)(model.child("final_layernorm", kNames.rms_norm), c.hidden_size);
    if (c.use_mem_rope)
      language_model_.rotary_emb = LlamaRotaryEmbedding(model.child("rotary_emb", kNames.rotary_embedding), c);
    if (c.tie_word_embeddings) tie_blocks(c);  // tie_weights does nothing where it is false
    make_head(root_, c);
  }

 private:
  void make_layers(const Builder& model, const Zamba2Config& c, const ModelOptions& options) {
    language_model_.blocks = BlockStack(model);
    std::int64_t hybrids = 0;
    for (std::int32_t i = 0; i < c.num_hidden_layers; ++i) {
      const std::size_t layer = mamba_.size();
      if (c.is_hybrid[layer]) {
        // In the module tree's order, which is that of adapters and gradients; the constructor makes `linear` last.
        const Builder hybrid = model.child("layers", kHybridLayer, i);
        Linear linear(hybrid.child("linear", "Linear"), c.hidden_size, c.hidden_size, false);
        mamba_.emplace_back(hybrid.child("mamba_decoder", kNames.decoder_layer), c, layer);
        SharedTransformer block(hybrid.child("shared_transformer", "Zamba2AttentionDecoderLayer"), c, options,
                                hybrids % c.num_mem_blocks);
        hybrid_.push_back(std::make_unique<Hybrid>(
            Hybrid{std::move(linear), std::move(block), static_cast<std::size_t>(hybrids), hybrid.module}));
        ++hybrids;
      } else {
        mamba_.emplace_back(model.child("layers", kNames.decoder_layer, i), c, layer);
        hybrid_.push_back(nullptr);
      }
      language_model_.blocks.add_block(model);
    }
  }

  /// Zamba2Model._tied_weights_keys: a hybrid layer has the block of the one num_mem_blocks before it.
  void tie_blocks(const Zamba2Config& c) {
    std::vector<SharedTransformer*> blocks;
    for (const std::unique_ptr<Hybrid>& hybrid : hybrid_)
      if (hybrid) blocks.push_back(&hybrid->shared_transformer);
    for (std::size_t i = static_cast<std::size_t>(c.num_mem_blocks); i < blocks.size(); ++i) {
      const auto own = blocks[i]->parameters();
      const auto source = blocks[i % static_cast<std::size_t>(c.num_mem_blocks)]->parameters();
      for (std::size_t p = 0; p < own.size(); ++p) {
        Tensor& weight = *own[p].first;
        parameters.erase(std::find_if(parameters.begin(), parameters.end(),
                                      [&](const Parameter& one) { return one.tensor.get() == weight.get(); }));
        weight = *source[p].first;
        tied.push_back({weight, own[p].second});
      }
    }
  }

  Tensor decode(const Tensor& inputs_embeds, const MaskArguments& given) const override {
    const ModuleScope scope(context_, language_model_.module);
    const Tensor original_hidden_states = clone(inputs_embeds);
    MaskArguments with_positions = given;
    if (!given.position_ids) with_positions.position_ids = language_model_.positions(context_, inputs_embeds.size(1));
    const Tensor mask = causal_mask(inputs_embeds, with_positions);
    const Tensor padding_mask = create_recurrent_attention_mask(inputs_embeds, with_positions);
    PositionEmbeddings positions;
    if (language_model_.rotary_emb.inv_freq)
      positions = language_model_.rotary_emb(inputs_embeds, with_positions.position_ids);
    positions.position_ids = with_positions.position_ids;
    positions.rows = given.rows;
    positions.cu_seq_lens = given.cu_seq_lens;
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&mamba = mamba_[i], hybrid = hybrid_[i].get(), original_hidden_states, positions, mask,
              padding_mask](const Tensor& hidden) {
        if (!hybrid) return mamba(hidden, padding_mask, {});
        const ModuleScope layer(hidden.context(), hybrid->module);
        Tensor transformer_hidden_states =
            hybrid->shared_transformer(hidden, original_hidden_states, positions, mask, hybrid->place);
        transformer_hidden_states = hybrid->linear(transformer_hidden_states);
        return mamba(hidden, padding_mask, transformer_hidden_states);
      };
    };
    // What blocks share gets gradients of several layers, so that no hybrid layer's log is another's.
    const auto kind = [&](std::size_t i) { return hybrid_[i] ? static_cast<int>(i) + 1 : 0; };
    const Tensor hidden_states =
        language_model_.blocks.run(0, mamba_.size(), inputs_embeds, {}, block, {.positional = true, .kind = kind});
    return language_model_.norm(hidden_states);
  }

  std::vector<Zamba2MambaDecoderLayer> mamba_;
  std::vector<std::unique_ptr<Hybrid>> hybrid_;  ///< by layer; null: it is a Mamba-2 layer alone
};

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = recurrent_traits(config.as<Zamba2Config>());
  t.generates = false;
  t.refuse(Feature::inference, "not-modelled", "inference is not supported yet with " + t.class_name);
  t.refuse(Feature::checkpointing, "not-modelled",
           "checkpoints within checkpoints, as hybrid layers have them, are not supported yet: expected \"none\"");
  return t;
}

}  // namespace

namespace family {
extern const Family zamba2 = positioned_family<Zamba2Config, read, Zamba2ForCausalLM>(kClasses, kBlocks, traits);
}  // namespace family

}  // namespace oometer
