#include "models/opt/opt.h"

#include <utility>

#include "nn/activation.h"
#include "nn/kv_cache.h"
#include "ops/cub.h"
#include "ops/ops.h"

namespace oometer {

namespace {

constexpr std::int64_t kOffset = 2;  ///< OPTLearnedPositionalEmbedding.offset

struct OPTAttention {
  OPTAttention(const Builder& builder, const OptConfig& c, const ModelOptions& options)
      : head_dim(c.head_dim),
        call(attention_call(c, options)),
        layer_idx(layer_index(builder)),
        module(builder.module) {
    for (auto [projection, name] : {std::pair{&k_proj, "k_proj"}, std::pair{&v_proj, "v_proj"},
                                    std::pair{&q_proj, "q_proj"}, std::pair{&out_proj, "out_proj"}})
      *projection = Linear(builder.child(name, "Linear"), c.hidden_size, c.hidden_size, c.enable_bias);
  }

  AttentionOutputs operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                              const Tensor& attention_mask) const {
    ModuleCall self(hidden_states.context(), module);
    AttentionInputs states;
    states.query = mul_scalar(q_proj(hidden_states));
    states.query = heads_of(states.query, head_dim);
    states.key = k_proj(hidden_states);
    states.value = v_proj(hidden_states);
    for (Tensor* heads : {&states.key, &states.value}) *heads = heads_of(*heads, head_dim);
    AttentionOutputs attention = attend(call, layer_idx, states, positions, attention_mask);
    attention.output = self.result(out_proj(attention.output));
    return attention;
  }

  Linear k_proj, v_proj, q_proj, out_proj;
  std::int64_t head_dim;
  AttentionCall call;
  std::size_t layer_idx;
  ModuleId module;
};

class OPTDecoderLayer : public DecoderLayer {
 public:
  OPTDecoderLayer(const Builder& builder, const OptConfig& c, const ModelOptions& options)
      : self_attn_(builder.child("self_attn", c.names->attention), c, options),
        norms_before_(c.do_layer_norm_before),
        dropout_(c.layer_dropout),
        activation_fn_(c.hidden_act),
        module_(builder.module) {
    const auto norm = [&](const char* name) {
      return Norm(builder.child(name, c.names->rms_norm), torch_layer_norm, {c.hidden_size}, true);
    };
    self_attn_layer_norm_ = norm("self_attn_layer_norm");
    fc1_ = Linear(builder.child("fc1", "Linear"), c.hidden_size, c.intermediate_size, c.enable_bias);
    fc2_ = Linear(builder.child("fc2", "Linear"), c.intermediate_size, c.hidden_size, c.enable_bias);
    final_layer_norm_ = norm("final_layer_norm");
  }

  Tensor operator()(const Tensor& hidden_in, const PositionEmbeddings& positions,
                    const Tensor& attention_mask) const override {
    const ModuleScope scope(hidden_in.context(), module_);
    Tensor residual = hidden_in, hidden_states = hidden_in;
    if (norms_before_) hidden_states = self_attn_layer_norm_(hidden_states);
    AttentionOutputs attention = self_attn_(hidden_states, positions, attention_mask);
    hidden_states = std::move(attention.output);  // the weights stay in `_` until the layer returns
    hidden_states = dropout(hidden_states, dropout_);
    hidden_states = add(residual, hidden_states);
    if (!norms_before_) hidden_states = self_attn_layer_norm_(hidden_states);
    const Shape hidden_states_shape = hidden_states.sizes();
    hidden_states = view(hidden_states, {hidden_states_shape[0] * hidden_states_shape[1], hidden_states_shape[2]});
    residual = hidden_states;
    if (norms_before_) hidden_states = final_layer_norm_(hidden_states);
    hidden_states = fc1_(hidden_states);
    hidden_states = activate(activation_fn_, hidden_states);
    hidden_states = fc2_(hidden_states);
    hidden_states = dropout(hidden_states, dropout_);
    hidden_states = view(add(residual, hidden_states), hidden_states_shape);
    if (!norms_before_) hidden_states = final_layer_norm_(hidden_states);
    return hidden_states;
  }

 private:
  OPTAttention self_attn_;
  Norm self_attn_layer_norm_, final_layer_norm_;
  Linear fc1_, fc2_;
  bool norms_before_;
  double dropout_;
  Activation activation_fn_;
  ModuleId module_;
};

}  // namespace

void OptLanguageModel::make_causal_lm(const Builder& causal_lm, const OptConfig& c, const ModelOptions& options) {
  const Builder decoder = causal_lm.child("model", "OPTModel").child("decoder", c.names->model);
  begin_decoder(decoder, c, options);
  const std::int64_t width = c.word_embed_proj_dim;
  language_model_.embed_tokens = Embedding(decoder.child("embed_tokens", "Embedding"), c.vocab_size, width);
  embed_positions_ = Embedding(decoder.child("embed_positions", "OPTLearnedPositionalEmbedding"),
                               c.max_position_embeddings + kOffset, c.hidden_size);
  if (width != c.hidden_size) {
    project_out_ = Linear(decoder.child("project_out", "Linear"), c.hidden_size, width, false);
    project_in_ = Linear(decoder.child("project_in", "Linear"), width, c.hidden_size, false);
  }
  if (c.has_final_layer_norm)
    language_model_.norm =
        final_norm(torch_layer_norm, true)(decoder.child("final_layer_norm", "LayerNorm"), c.hidden_size);
  make_layers(decoder, "layers", c,
              [&](const Builder& layer) { return std::make_unique<OPTDecoderLayer>(layer, c, options); });
  LlamaConfig of_head = c;
  of_head.hidden_size = width;
  make_head(causal_lm, of_head);
}

Tensor OptLanguageModel::decode(const Tensor& embeddings, const MaskArguments& given) const {
  const ModuleScope scope(context_, language_model_.module);
  Tensor inputs_embeds = embeddings;
  const KvCache* const cache = context_.past_key_values;
  const std::int64_t seen = cache ? cache->length() : 0, length = inputs_embeds.size(1);
  const Shape tokens{inputs_embeds.size(0), seen + length};
  Tensor position_attention_mask = given.attention_mask;
  if (!position_attention_mask) position_attention_mask = empty(context_, Op::fill, tokens, DType::float32);
  Tensor position_ids = given.position_ids;
  if (!position_ids) {
    const DType dtype = position_attention_mask.dtype();
    position_ids = empty(context_, Op::cumsum, tokens, dtype);
    if (tokens[0] == 1) const Workspace scan(context_, Op::cumsum, cub_scan_bytes(tokens[1]));
    Tensor shifted = mul(position_ids, position_attention_mask);
    shifted = add_scalar(shifted);
    position_ids = slice(to(shifted, DType::int64), 1, seen, length);
  }
  MaskArguments without_positions = given;
  without_positions.position_ids = {};
  const Tensor mask = causal_mask(inputs_embeds, without_positions);
  Tensor pos_embeds;
  {
    ModuleCall call(context_, embed_positions_.module);
    const Tensor offset = add_scalar(position_ids);
    pos_embeds = call.result(embedding(embed_positions_.weight, offset));
  }
  if (project_in_.weight) inputs_embeds = project_in_(inputs_embeds);
  PositionEmbeddings positions;
  positions.position_ids = position_ids;
  positions.rows = given.rows;
  Tensor hidden_states = add(inputs_embeds, pos_embeds);
  hidden_states = run_layers(std::move(hidden_states), positions, mask);
  if (language_model_.norm) hidden_states = language_model_.norm(hidden_states);
  if (project_out_.weight) hidden_states = project_out_(hidden_states);
  return hidden_states;
}

}  // namespace oometer
