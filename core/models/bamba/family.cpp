#include <algorithm>
#include <string>

#include "config/reader.h"
#include "models/kit/mamba2.h"
#include "models/kit/text_family.h"
#include "models/llama/llama.h"

/// transformers 5.23, models/bamba/modeling_bamba.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"BambaForCausalLM", "BambaModel",   "BambaDecoderLayer",   "BambaAttention",
                                 "BambaMLP",         "BambaRMSNorm", "BambaRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"bamba", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 128'000;
  d.intermediate_size = 14336;
  d.num_key_value_heads = 8;
  d.max_position_embeddings = 262'144;
  d.has_pad_token = true;
  TextConfig c = read_text_sizes(reader, d);
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  c.mlp_bias = reader.boolean("mlp_bias", false);
  c.rotary_dim = c.head_dim / 2;  // partial_rotary_factor is always 0.5
  check_llama_heads(reader, c);
  read_mamba2_sizes(reader, c, {.key_head_dim = 256});
  if (reader.number("z_loss_coefficient", 0, 0, 1e9) > 0)
    reader.fail_found("z_loss_coefficient", "not-modelled", "this loss is not supported yet: expected 0");
  const std::vector<std::int64_t> attends = reader.integers("attn_layer_indices", non_negative);
  for (std::int64_t i = 0; i < c.num_hidden_layers; ++i)
    c.mixer.layers.push_back(std::find(attends.begin(), attends.end(), i) == attends.end());
  reader.ignore({"partial_rotary_factor", "attn_rotary_emb", "num_logits_to_keep", "layers_block_type", "layer_types"});
  return c;
}

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t index) {
  auto layer = std::make_unique<TextLayer>(builder, pre_norm);
  layer->mlp = LlamaMLP(builder.child("feed_forward", kNames.mlp), c);
  layer->input_norm = Norm(builder.child("input_layernorm", kNames.rms_norm), rms_norm, {c.hidden_size});
  layer->feedforward_norm = Norm(builder.child("pre_ff_layernorm", kNames.rms_norm), rms_norm, {c.hidden_size});
  if (c.mixer.is_in(index)) {
    layer->self_attn = [mamba = Mamba2Mixer(builder.child("mamba", "BambaMixer"), c, c.hidden_act, index,
                                            {.norm_type = "BambaRMSNormGated"})](
                           const Tensor& x, const PositionEmbeddings&, const Tensor& mask) { return mamba(x, mask); };
  } else {
    if (options.attention == AttentionKind::eager && options.checkpointing.mode != CheckpointMode::none)
      builder.context->refusal = Error{
          "not-modelled", "/training/attention",
          "found eager attention with activation checkpointing, which is not supported yet with " +
              std::string(kNames.causal_lm) + ", whose layers return the weights of attention; expected \"sdpa\""};
    AttentionParts its;
    its.rotate = rotate_first_halves;
    layer->self_attn = TextAttention(builder.child("self_attn", kNames.attention), c, options, its);
  }
  return layer;
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  DecoderParts parts = parts_of(config, options, make_layer);
  parts.last_norm = "final_layernorm";
  parts.offsets_positions = false;
  return parts;
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = recurrent_traits(config.as<TextConfig>());
  t.generates = false;  // a layer's eager weights live until the next one returns
  t.refuse(Feature::inference, "not-modelled", "inference is not supported yet with " + t.class_name);
  allow_compared(t, {Feature::fsdp});
  return t;
}

}  // namespace

namespace family {
extern const Family bamba = text_family<read, parts>(kClasses, kBlocks, traits);
}  // namespace family

}  // namespace oometer
