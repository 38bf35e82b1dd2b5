#include "config/reader.h"
#include "models/kit/text_family.h"

/// transformers 5.23, models/nemotron/modeling_nemotron.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"NemotronForCausalLM",    "NemotronModel", "NemotronDecoderLayer",
                                 "NemotronAttention",      "NemotronMLP",   "NemotronLayerNorm1P",
                                 "NemotronRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"nemotron", kNames.causal_lm},
                                   {"nemotron", "NemotronForSequenceClassification"},
                                   {"nemotron", "NemotronForTokenClassification"},
                                   {"nemotron", "NemotronForQuestionAnswering"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 256000;
  d.hidden_size = 6144;
  d.intermediate_size = 24576;
  d.num_attention_heads = 48;
  d.max_position_embeddings = 4096;
  d.hidden_act = Activation::relu2;
  TextConfig c = read_text_sizes(reader, d);
  if (!reader.has("num_key_value_heads"))
    reader.fail("num_key_value_heads", "inconsistent", "found none; Nemotron's attention needs a number");
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  c.mlp_bias = reader.boolean("mlp_bias", false);
  reader.ignore({"norm_eps"});
  read_partial_rotary(reader, c, 0.5);
  check_llama_heads(reader, c);
  return c;
}

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t) {
  auto layer = std::make_unique<TextLayer>(builder, pre_norm);
  const auto norm = [&](const char* name) {
    return Norm(builder.child(name, kNames.rms_norm), layer_norm_one_plus, {c.hidden_size}, true);
  };
  AttentionParts its;
  its.rotate = rotate_first_joined;
  layer->self_attn = TextAttention(builder.child("self_attn", kNames.attention), c, options, its);
  PlainMLP mlp(builder.child("mlp", kNames.mlp), c, "up_proj", "down_proj", c.mlp_bias);
  mlp.liger = options.liger.swiglu;
  layer->mlp = mlp;
  layer->input_norm = norm("input_layernorm");
  layer->feedforward_norm = norm("post_attention_layernorm");
  return layer;
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  DecoderParts parts = parts_of(config, options, make_layer);
  parts.norm = final_norm(layer_norm_one_plus, true);
  parts.hands_bounds = false;
  return parts;
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = traits_with<Feature::zero3, Feature::fsdp, Feature::liger>(config);
  t.liger.usual.rope = t.liger.usual.rms_norm = false;
  t.liger.lacks.rope = t.liger.lacks.rms_norm = true;
  t.liger.swiglu = config.as<TextConfig>().hidden_act == Activation::relu2;  // LigerReLUSquared
  t.liger.ignores.cross_entropy = true;  // modeling_nemotron.py has no CrossEntropyLoss that it could replace
  t.allow({Feature::quantization});
  return t;
}

}  // namespace

namespace family {
extern const Family nemotron = text_family<read, parts>(kClasses, kBlocks, traits);
}  // namespace family

}  // namespace oometer
