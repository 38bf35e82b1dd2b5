#include "models/deepseek/family.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "config/reader.h"
#include "models/deepseek/deepseek.h"
#include "models/kit/classifier_head.h"
#include "models/kit/text_layer.h"
#include "models/llama/family.h"
#include "ops/ops.h"

/// transformers 5.23, models/minicpm3/modeling_minicpm3.py: DeepSeek-V2's attention with Llama's rotary embedding, in
/// Llama's layers; embeddings, residuals and what the head gets are scaled.
namespace oometer {

namespace {

constexpr DeepseekClassNames kNames{{"MiniCPM3ForCausalLM", "MiniCPM3Model", "MiniCPM3DecoderLayer",
                                     "MiniCPM3Attention", "MiniCPM3MLP", "MiniCPM3RMSNorm", "MiniCPM3RotaryEmbedding"},
                                    "",
                                    "",
                                    "",
                                    {.is_v3 = true}};
constexpr ModelClass kClasses[] = {{"minicpm3", kNames.causal_lm}, {"minicpm3", "MiniCPM3ForSequenceClassification"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) {
  DeepseekConfig d;
  d.names = &kNames;
  d.vocab_size = 73'448;
  d.hidden_size = 2560;
  d.intermediate_size = 6400;
  d.num_hidden_layers = 62;
  d.num_attention_heads = 40;
  d.kv_lora_rank = 256;
  d.q_lora_rank = 768;
  d.qk_nope_head_dim = 64;
  d.qk_rope_head_dim = 32;
  d.max_position_embeddings = 32'768;
  d.num_experts_per_tok = 1;
  d.first_k_dense_replace = 1 << 20;
  const std::int64_t heads = reader.integer("num_attention_heads", d.num_attention_heads),
                     hidden = reader.integer("hidden_size", d.hidden_size);
  if (hidden % heads != 0)
    reader.fail_found("hidden_size", "inconsistent",
                      "expected a multiple of num_attention_heads (" + std::to_string(heads) + ")");
  d.v_head_dim = hidden / heads;
  const bool has_width = !reader.is_null("v_head_dim");
  DeepseekConfig c = read_deepseek_config(reader, d);
  if (!has_width) c.v_head_dim = d.v_head_dim;
  c.mlp_bias = reader.boolean("mlp_bias", false);
  c.rope_interleave = false;
  if (!reader.has("tie_word_embeddings")) c.tie_word_embeddings = true;
  c.first_k_dense_replace = c.num_hidden_layers;
  c.n_routed_experts = c.n_shared_experts = c.num_experts_per_tok = 0;
  reader.ignore({"scale_emb", "scale_depth", "dim_model_base"});
  return c;
}

/// The class's own config.
struct MiniCPM3Config : DeepseekConfig {
  bool scale_is_integer = true;  ///< scale_emb, and so is the buffer that is made of it

  bool operator==(const MiniCPM3Config&) const = default;
};

FamilyConfig read_with_scale(ConfigReader& reader, const ModelClass& of, Framework framework) {
  MiniCPM3Config c{read(reader, of, framework).as<DeepseekConfig>()};
  c.classifier = read_classifier(reader, of);
  if (const nlohmann::json* scale = reader.find("scale_emb")) c.scale_is_integer = scale->is_number_integer();
  return c;
}

/// MiniCPM3ScaledWordEmbedding's buffer, an integer. `layer`: the first one, which stands behind the embeddings.
Tensor make_embed_scale(const Builder& layer) {
  Builder embed_tokens = layer;
  const auto& modules = layer.context->log.modules;
  while (embed_tokens.module == layer.module || modules[embed_tokens.module].parent != modules[layer.module].parent)
    --embed_tokens.module;
  return embed_tokens.buffer({}, DType::int64);
}

/// MiniCPM3ForSequenceClassification: the kit's, of which only the buffer differs.
class MiniCPM3Classifier : public LanguageModel {
 public:
  MiniCPM3Classifier(Context& context, const LlamaConfig& config, const DataConfig& data, const ModelOptions& options,
                     DecoderParts parts, const std::shared_ptr<Tensor>& embed_scale)
      : LanguageModel(context, config.classifier.class_name, Modality::language, data, options) {
    make_decoder(root_.child("model", kNames.model), config, options, std::move(parts));
    if (*embed_scale) language_model_.embed_scale = *embed_scale;
    head_ = ClassifierHead(root_, config.classifier, config.hidden_size);
    has_pad_token = config.has_pad_token;
    loss_type = head_.loss_type();
  }

  Tensor embed(const Tensor& input_ids) const override { return language_model_.embed(input_ids); }
  ModelOutputs forward(const ModelInputs& inputs) override {
    const Tensor hidden_states = run_text_model(inputs);
    return head_(hidden_states, inputs, has_pad_token, loss_function);
  }

 private:
  Tensor make_labels() override { return head_.make_labels(context_, data_); }

  ClassifierHead head_;
};

/// MiniCPM3ForCausalLM: the head gets what the decoder gives divided by a number.
class MiniCPM3 : public CausalLM {
 public:
  MiniCPM3(Context& context, const LlamaConfig& config, const DataConfig& data, const ModelOptions& options,
           DecoderParts parts, const std::shared_ptr<Tensor>& embed_scale)
      : CausalLM(context, config, data, options, std::move(parts)) {
    if (*embed_scale) language_model_.embed_scale = *embed_scale;
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    const Tensor last_hidden_state = run_text_model(inputs), hidden_states = div_scalar(last_hidden_state);
    return causal_lm_outputs(hidden_states, lm_head_, inputs, loss_function);
  }
};

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config_in, const DataConfig& data,
                             const ModelOptions& options) {
  const auto config = std::make_shared<const MiniCPM3Config>(config_in.as<MiniCPM3Config>());
  const auto embed_scale = std::make_shared<Tensor>();
  DecoderParts parts;
  parts.layer = [config, options, embed_scale](const Builder& builder, std::size_t index) {
    if (index == 0 && config->scale_is_integer) *embed_scale = make_embed_scale(builder);
    auto layer = std::make_unique<TextLayer>(builder, pre_norm);
    const auto attention =
        std::make_shared<const DeepseekAttention>(builder.child("self_attn", kNames.attention), *config, options);
    layer->self_attn = [config, attention](const Tensor& x, const PositionEmbeddings& positions, const Tensor& mask) {
      return (*attention)(x, positions, mask);
    };
    layer->mlp = LlamaMLP(builder.child("mlp", kNames.mlp), config->as_llama(config->intermediate_size));
    layer->input_norm = Norm(builder.child("input_layernorm", kNames.rms_norm), rms_norm, {config->hidden_size});
    layer->feedforward_norm =
        Norm(builder.child("post_attention_layernorm", kNames.rms_norm), rms_norm, {config->hidden_size});
    layer->scales_residual = true;
    return layer;
  };
  parts.scales_embeddings = !config->scale_is_integer;
  const LlamaConfig text = config->as_llama(config->intermediate_size);
  if (config->classifier)
    return std::make_unique<MiniCPM3Classifier>(context, text, data, options, std::move(parts), embed_scale);
  return std::make_unique<MiniCPM3>(context, text, data, options, std::move(parts), embed_scale);
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = deepseek_traits(config);
  t.has_experts = false;
  for (const Feature feature : {Feature::mtla, Feature::chunked_cross_entropy})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

}  // namespace

namespace family {
extern const Family minicpm3 = [] {
  Family its = deepseek_family<read_with_scale>(kClasses, kBlocks, nullptr, traits);
  its.build = build;
  return its;
}();
}  // namespace family

}  // namespace oometer
