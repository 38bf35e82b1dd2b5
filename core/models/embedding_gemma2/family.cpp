#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "config/reader.h"
#include "models/kit/encoder.h"
#include "models/kit/norms.h"
#include "models/kit/text_attention.h"
#include "models/llama/llama.h"
#include "models/masking.h"
#include "models/sizes.h"
#include "nn/activation.h"
#include "nn/block_stack.h"
#include "ops/ops.h"
#include "ops/vision.h"

/// transformers 5.23, models/embedding_gemma2/modeling_embedding_gemma2.py: what reads text.
namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"embedding_gemma2_text", "EmbeddingGemma2TextModel"}};
constexpr const char *kNorm = "EmbeddingGemma2RMSNorm", *kLayer = "EmbeddingGemma2EncoderLayer";
constexpr const char* kBlocks[] = {kLayer};

struct EmbeddingGemma2Config : EncoderConfig {
  std::int64_t num_key_value_heads = 2, num_global_key_value_heads = 1;
  std::int64_t sliding_head_dim = 256, global_head_dim = 512;
  std::int64_t sliding_window = 512;  ///< tokens on either side
  std::int64_t hidden_size_per_layer_input = 512, embedding_dim = 768;
  double attention_dropout = 0;
  bool attention_bias = false;
  std::vector<bool> slides{};

  std::int64_t head_dim_of(std::size_t layer) const { return slides[layer] ? sliding_head_dim : global_head_dim; }
  std::int64_t key_value_heads_of(std::size_t layer) const {
    return slides[layer] ? num_key_value_heads : num_global_key_value_heads;
  }
  bool operator==(const EmbeddingGemma2Config&) const = default;
};

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  EmbeddingGemma2Config c;
  c.vocab_size = 262'144;
  c.max_position_embeddings = 262'144;
  read_encoder(reader, of, c);
  c.hidden_size = reader.integer("hidden_size", 512);
  c.intermediate_size = reader.integer("intermediate_size", 2048);
  c.num_hidden_layers = reader.integer("num_hidden_layers", 24, layer_count);
  c.num_attention_heads = reader.integer("num_attention_heads", 4);
  c.hidden_act = reader.activation("hidden_activation", Activation::gelu_tanh);
  struct Field {
    const char* key;
    std::int64_t& value;
  };
  for (const Field& field :
       {Field{"num_key_value_heads", c.num_key_value_heads},
        Field{"num_global_key_value_heads", c.num_global_key_value_heads}, Field{"head_dim", c.sliding_head_dim},
        Field{"global_head_dim", c.global_head_dim}, Field{"sliding_window", c.sliding_window},
        Field{"hidden_size_per_layer_input", c.hidden_size_per_layer_input}, Field{"embedding_dim", c.embedding_dim}})
    field.value = reader.integer(field.key, field.value);
  c.attention_bias = reader.boolean("attention_bias", false);
  c.attention_dropout = reader.number("attention_dropout", 0, 0, 1);
  reader.refuse("per_layer_config", "sizes of heads by layer are not supported yet: expected global_head_dim");
  const std::int64_t pattern = reader.integer("sliding_window_pattern", 6);
  const std::vector<std::string> types = reader.texts_of_layers("layer_types", c.num_hidden_layers);
  for (std::size_t i = 0; i < static_cast<std::size_t>(c.num_hidden_layers); ++i)
    c.slides.push_back(i < types.size() ? types[i] == "sliding_attention"
                                        : (static_cast<std::int64_t>(i) + 1) % pattern != 0);
  c.slides.back() = false;  // __post_init__ forces it
  for (const std::int64_t heads : {c.num_key_value_heads, c.num_global_key_value_heads})
    if (c.num_attention_heads % heads != 0)
      reader.fail("num_attention_heads", "inconsistent",
                  "found " + std::to_string(c.num_attention_heads) + "; expected a multiple of " +
                      std::to_string(heads) + ", as many as there are heads of keys");
  if (c.sliding_head_dim % 2 != 0 || c.global_head_dim % 2 != 0)
    reader.fail("head_dim", "inconsistent", "rotary embeddings need an even size of heads");
  return c;
}

Norm rms_norm_of(const Builder& parent, const char* name, std::int64_t size) {
  return Norm(parent.child(name, kNorm), rms_norm_by_pow, {size});
}

struct EmbeddingGemma2Attention {
  EmbeddingGemma2Attention(const Builder& builder, const EmbeddingGemma2Config& c, const ModelOptions& options,
                           std::size_t layer)
      : head_dim(c.head_dim_of(layer)),
        call{.kind = options.attention, .dropout = c.attention_dropout},
        module(builder.module) {
    const std::int64_t width = c.num_attention_heads * head_dim, kv_width = c.key_value_heads_of(layer) * head_dim;
    const auto projection = [&](const char* name, std::int64_t in, std::int64_t out) {
      return Linear(builder.child(name, "Linear"), in, out, c.attention_bias);
    };
    q_proj = projection("q_proj", c.hidden_size, width);
    k_proj = projection("k_proj", c.hidden_size, kv_width);
    v_proj = projection("v_proj", c.hidden_size, kv_width);
    o_proj = projection("o_proj", width, c.hidden_size);
    q_norm = rms_norm_of(builder, "q_norm", head_dim);
    k_norm = rms_norm_of(builder, "k_norm", head_dim);
    v_norm = Norm(builder.child("v_norm", kNorm), rms_norm_by_pow);
  }

  AttentionOutputs operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                              const Tensor& attention_mask) const {
    ModuleCall self(hidden_states.context(), module);
    AttentionInputs states = project(hidden_states, q_proj, k_proj, v_proj, head_dim, false);
    states.query = q_norm(states.query);
    states.key = k_norm(states.key);
    states.value = v_norm(states.value);
    std::tie(states.query, states.key) = rotate_halves(states.query, states.key, positions);
    AttentionOutputs attention = attend(call, 0, states, positions, attention_mask);
    attention.output = self.result(o_proj(attention.output));
    return attention;
  }

  Linear q_proj, k_proj, v_proj, o_proj;
  Norm q_norm, k_norm, v_norm;
  std::int64_t head_dim;
  AttentionCall call;
  ModuleId module;
};

/// EmbeddingGemma2TextPLEBlock.
struct PerLayerBlock {
  PerLayerBlock(const Builder& builder, const EmbeddingGemma2Config& c)
      : act_fn(c.hidden_act),
        per_layer_input_gate(builder.child("per_layer_input_gate", "Linear"), c.hidden_size,
                             c.hidden_size_per_layer_input, false),
        per_layer_projection(builder.child("per_layer_projection", "Linear"), c.hidden_size_per_layer_input,
                             c.hidden_size, false),
        post_per_layer_input_norm(rms_norm_of(builder, "post_per_layer_input_norm", c.hidden_size)),
        module(builder.module) {}

  Tensor operator()(const Tensor& residual, const Tensor& per_layer_input) const {
    ModuleCall call(residual.context(), module);
    Tensor hidden_states = per_layer_input_gate(residual);
    hidden_states = activate(act_fn, hidden_states);
    hidden_states = mul(hidden_states, per_layer_input);
    hidden_states = per_layer_projection(hidden_states);
    hidden_states = post_per_layer_input_norm(hidden_states);
    return call.result(add(residual, hidden_states));
  }

  Activation act_fn;
  Linear per_layer_input_gate, per_layer_projection;
  Norm post_per_layer_input_norm;
  ModuleId module;
};

LlamaConfig mlp_config(const EmbeddingGemma2Config& c) {
  LlamaConfig its;
  its.hidden_size = c.hidden_size;
  its.intermediate_size = c.intermediate_size;
  its.hidden_act = c.hidden_act;
  return its;
}

struct EmbeddingGemma2EncoderLayer {
  EmbeddingGemma2EncoderLayer(const Builder& builder, const EmbeddingGemma2Config& c, const ModelOptions& options,
                              std::size_t layer)
      : self_attn(builder.child("self_attn", "EmbeddingGemma2Attention"), c, options, layer),
        mlp(builder.child("mlp", "EmbeddingGemma2MLP"), mlp_config(c)),
        input_layernorm(rms_norm_of(builder, "input_layernorm", c.hidden_size)),
        post_attention_layernorm(rms_norm_of(builder, "post_attention_layernorm", c.hidden_size)),
        pre_feedforward_layernorm(rms_norm_of(builder, "pre_feedforward_layernorm", c.hidden_size)),
        post_feedforward_layernorm(rms_norm_of(builder, "post_feedforward_layernorm", c.hidden_size)),
        layer_scalar(builder.buffer({1}, builder.dtype)),
        ple_block(builder.child("ple_block", "EmbeddingGemma2TextPLEBlock"), c),
        module(builder.module) {}

  Tensor operator()(const Tensor& hidden_in, const Tensor& per_layer_input, const PositionEmbeddings& positions,
                    const Tensor& attention_mask) const {
    const ModuleScope scope(hidden_in.context(), module);
    Tensor residual = hidden_in;
    Tensor hidden_states = input_layernorm(hidden_in);
    AttentionOutputs attention = self_attn(hidden_states, positions, attention_mask);
    hidden_states = std::move(attention.output);  // the weights stay in `_` until the layer returns
    hidden_states = post_attention_layernorm(hidden_states);
    hidden_states = add(residual, hidden_states);
    residual = hidden_states;
    hidden_states = pre_feedforward_layernorm(hidden_states);
    hidden_states = mlp(hidden_states);
    hidden_states = post_feedforward_layernorm(hidden_states);
    hidden_states = add(residual, hidden_states);
    hidden_states = ple_block(hidden_states, per_layer_input);
    return mul_in_place(hidden_states, layer_scalar);
  }

  EmbeddingGemma2Attention self_attn;
  LlamaMLP mlp;
  Norm input_layernorm, post_attention_layernorm, pre_feedforward_layernorm, post_feedforward_layernorm;
  Tensor layer_scalar;
  PerLayerBlock ple_block;
  ModuleId module;
};

class EmbeddingGemma2TextModel : public EncoderModel {
 public:
  EmbeddingGemma2TextModel(Context& context, const EmbeddingGemma2Config& c, const DataConfig& data,
                           const ModelOptions& options)
      : EncoderModel(context, c, data, options),
        slides_(c.slides),
        sliding_window_(c.sliding_window),
        width_(c.hidden_size_per_layer_input),
        masked_(masked_by(options.attention)),
        checkpointing_(options.checkpointing) {
    const Builder embedding = root_.child("embed_tokens", "EmbeddingGemma2TextScaledWordEmbedding");
    embed_tokens_ = Embedding(embedding, c.vocab_size, c.hidden_size);
    embed_scale_ = embedding.buffer({}, embedding.dtype);
    blocks_ = BlockStack(root_);
    layers_.reserve(slides_.size());
    for (std::size_t i = 0; i < slides_.size(); ++i) {
      layers_.emplace_back(root_.child("layers", kLayer, static_cast<std::int32_t>(i)), c, options, i);
      blocks_.add_block(root_);
    }
    norm_ = rms_norm_of(root_, "norm", c.hidden_size);
    const Builder rotary = root_.child("rotary_emb", "EmbeddingGemma2RotaryEmbedding");
    const auto tables = [&](std::int64_t head_dim) {
      LlamaConfig rotated;
      rotated.head_dim = head_dim;
      return LlamaRotaryEmbedding(rotary, rotated);
    };
    full_rotary_ = tables(c.global_head_dim);
    if (slides()) sliding_rotary_ = tables(c.sliding_head_dim);
    const Builder ple = root_.child("ple", "EmbeddingGemma2TextPLE");
    ple_ = ple.module;
    per_layer_model_projection_ =
        Linear(ple.child("per_layer_model_projection", "Linear"), c.hidden_size, c.num_hidden_layers * width_, false);
    per_layer_projection_norm_ = rms_norm_of(ple, "per_layer_projection_norm", width_);
    embedding_projection_ =
        Linear(root_.child("embedding_projection", "Linear"), c.hidden_size, c.embedding_dim, false);
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    const ModuleScope scope(context_, root_.module);
    const Tensor inputs_embeds = embed_tokens_(inputs.input_ids, [this](Tensor& embedded) {
      {
        const ModuleScope inner(context_, embed_tokens_.module);
        const Tensor scale = to(embed_scale_, embed_tokens_.weight.dtype());
        embedded = mul(embedded, scale);
      }
      require_input_grad(checkpointing_, embedded, embed_tokens_.module);
    });
    const Tensor per_layer_inputs = project(inputs_embeds);
    Tensor position_ids = inputs.position_ids;
    if (!position_ids) position_ids = unsqueeze(empty(context_, Op::arange, {inputs_embeds.size(1)}, DType::int64), 0);
    const MaskArguments given{{}, inputs.attention_mask, inputs.rows};
    const Tensor full_attention = create_bidirectional_mask(inputs_embeds, given, masked_);
    const Tensor sliding_attention = create_bidirectional_mask(inputs_embeds, given, masked_, sliding_window_);
    PositionEmbeddings sliding_positions;
    if (slides()) sliding_positions = sliding_rotary_(inputs_embeds, position_ids);
    PositionEmbeddings full_positions = full_rotary_(inputs_embeds, position_ids);
    sliding_positions.rows = full_positions.rows = inputs.rows;
    std::shared_ptr<Tensor> per_layer_input;  // of the layer that is run
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      per_layer_input = std::make_shared<Tensor>(select(per_layer_inputs, 2, static_cast<std::int64_t>(i)));
      return [&layer = layers_[i], per_layer_input, attention_mask = slides_[i] ? sliding_attention : full_attention,
              positions = slides_[i] ? sliding_positions : full_positions](const Tensor& hidden) {
        return layer(hidden, *per_layer_input, positions, attention_mask);
      };
    };
    // Backward begins with the last one, whose gradient of the per-layer embeddings the others' are added to.
    const auto kind = [this](std::size_t i) { return i + 1 == slides_.size() ? 2 : int{slides_[i]}; };
    Tensor hidden_states = blocks_.run(0, layers_.size(), inputs_embeds, checkpointing_, block,
                                       {.kind = kind, .second = &per_layer_input});
    hidden_states = norm_(hidden_states);
    hidden_states = embedding_projection_(hidden_states);
    return {{}, {}, {hidden_states}};
  }

 private:
  bool slides() const { return std::find(slides_.begin(), slides_.end(), true) != slides_.end(); }

  /// EmbeddingGemma2TextPLE.
  Tensor project(const Tensor& inputs_embeds) const {
    ModuleCall call(context_, ple_);
    Tensor per_layer_projection;
    {
      const Tensor projected = per_layer_model_projection_(inputs_embeds);
      per_layer_projection = mul_scalar(projected);
    }
    per_layer_projection = view(per_layer_projection, {inputs_embeds.size(0), inputs_embeds.size(1),
                                                       static_cast<std::int64_t>(slides_.size()), width_});
    return call.result(per_layer_projection_norm_(per_layer_projection));
  }

  std::vector<bool> slides_;
  std::int64_t sliding_window_, width_;
  MaskedBy masked_;
  CheckpointingConfig checkpointing_;
  Embedding embed_tokens_;
  Tensor embed_scale_;
  std::vector<EmbeddingGemma2EncoderLayer> layers_;
  BlockStack blocks_;
  Norm norm_, per_layer_projection_norm_;
  LlamaRotaryEmbedding full_rotary_, sliding_rotary_;
  Linear per_layer_model_projection_, embedding_projection_;
  ModuleId ple_ = 0;
};

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<EmbeddingGemma2Config>();
  ModelTraits t = encoder_traits(c, "");
  t.allow({Feature::zero3, Feature::fsdp});
  t.no_split_modules = {kLayer};
  t.refuse(Feature::lengths, "not-modelled", "this is not supported yet with " + t.class_name);
  if (std::max(c.sliding_head_dim, c.global_head_dim) > 256)
    t.refuse(Feature::flash_attention_2, "inconsistent", "flash-attn has heads of at most 256, this model wider ones");
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<EmbeddingGemma2Config>();
  const std::int64_t width = c.num_hidden_layers * c.hidden_size_per_layer_input;
  return std::max({largest_tensor_of_encoder(c, data),
                   bytes_of({data.micro_batch_size, data.sequence_length, width, 2}), bytes_of({c.hidden_size, width}),
                   bytes_of({data.micro_batch_size, data.sequence_length, c.num_attention_heads, c.global_head_dim})});
}

}  // namespace

namespace family {
extern const Family embedding_gemma2{.classes = kClasses,
                                     .blocks = kBlocks,
                                     .read = read,
                                     .build = [](Context& context, const FamilyConfig& config, const DataConfig& data,
                                                 const ModelOptions& options) -> std::unique_ptr<Model> {
                                       return std::make_unique<EmbeddingGemma2TextModel>(
                                           context, config.as<EmbeddingGemma2Config>(), data, options);
                                     },
                                     .traits = traits,
                                     .largest_tensor = largest_tensor};
}  // namespace family

}  // namespace oometer
