#include "models/deepseek/family.h"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

#include "models/deepseek/deepseek.h"
#include "models/kit/mixture.h"
#include "models/llama/family.h"
#include "models/sizes.h"

namespace oometer {

void refuse_flash_of_other_widths(ModelTraits& t, const DeepseekConfig& c) {
  if (c.qk_head_dim() != c.v_head_dim)
    t.refuse(Feature::flash_attention, "inconsistent",
             "this kernel wants values as wide as keys, which the model's are not: use sdpa, sdpa-efficient or "
             "sdpa-math");
}

namespace {

constexpr ModelClass kClasses[] = {{"deepseek_v2", kDeepseekV2.causal_lm},
                                   {"deepseek_v2", "DeepseekV2ForSequenceClassification"},
                                   {"deepseek_v3", kDeepseekV3.causal_lm},
                                   {"deepseek_v3", "DeepseekV3ForSequenceClassification"},
                                   {"deepseek_v3", "DeepseekV3ForTokenClassification"}};
constexpr const char* kBlocks[] = {kDeepseekV2.decoder_layer, kDeepseekV3.decoder_layer};

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  const bool is_v2 = std::string_view(of.model_type) == kClasses[0].model_type;
  DeepseekConfig c = read_deepseek_config(reader, is_v2 ? DeepseekConfig() : deepseek_v3_defaults());
  c.classifier = read_classifier(reader, of);
  return c;
}

}  // namespace

std::unique_ptr<Model> build_deepseek_family(Context& context, const FamilyConfig& config, const DataConfig& data,
                                             const ModelOptions& options) {
  DeepseekConfig c = config.as<DeepseekConfig>();
  c.temporal_stride = options.temporal_stride;
  return build_deepseek(context, c, data, options);
}

ModelTraits deepseek_traits(const FamilyConfig& config) {
  const auto& c = config.as<DeepseekConfig>();
  ModelTraits t = transformers_traits(c.classifier ? c.classifier.class_name : c.names->causal_lm);
  t.takes_text = t.has_experts = true;
  t.generates = !c.classifier;
  t.allow({Feature::finetune, Feature::chunked_cross_entropy, Feature::generate_options, Feature::turn_images,
           Feature::quantization, Feature::mtla, Feature::lengths, Feature::packing, Feature::zero3, Feature::fsdp,
           Feature::flash_attention_2});
  t.has_no_liger();
  if (c.names->its.has_softmax)  // a buffer has another type in zero.Init
    t.refuse(Feature::zero3, "not-modelled", "this is not supported yet with " + t.class_name);
  if (c.chooses_tokens()) {
    t.has_idle_parts = true;  // no gradient reaches the indexer
    for (const Feature feature :
         {Feature::deepspeed, Feature::fsdp, Feature::inference, Feature::mtla, Feature::quantization})
      t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
    t.refuse(Feature::flash_attention, "inconsistent", "its indexer chooses tokens by a mask: use sdpa or eager");
    t.refuse(Feature::flash_attention_2, "inconsistent", "its indexer chooses tokens by a mask: use sdpa or eager");
    t.generates = false;
  }
  refuse_flash_of_other_widths(t, c);
  t.oldest_transformers = {5, 23, 0};
  t.ties_embeddings = c.tie_word_embeddings;
  t.has_pad_token = c.has_pad_token;
  t.hidden_size = c.hidden_size;
  t.language = "model";
  t.default_sequence_length = std::min<std::int64_t>(2048, c.max_position_embeddings);
  t.text.max_position_embeddings = c.max_position_embeddings;
  t.quantization_skips = {"lm_head"};
  t.no_split_modules = {c.names->decoder_layer};
  if (!c.classifier) return t;
  t.classifies = true;
  if (!c.classifier.of_tokens) t.labels = c.classifier.num_labels;
  t.ties_embeddings = false;
  for (const Feature feature : {Feature::inference, Feature::mtla, Feature::packing, Feature::quantization,
                                Feature::zero3, Feature::fsdp, Feature::chunked_cross_entropy})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

double largest_tensor_of_deepseek(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<DeepseekConfig>();
  const std::int64_t batch = data.micro_batch_size, length = data.sequence_length;
  const std::int64_t heads = c.num_attention_heads * (c.qk_head_dim() + c.v_head_dim);
  return std::max(
      {bytes_of_layer(batch, length, std::max({c.hidden_size, c.kv_lora_rank, c.q_lora_rank}),
                      std::max({c.intermediate_size, c.moe_intermediate_size * c.n_shared_experts, heads}),
                      c.num_attention_heads),
       bytes_of({batch, length, c.num_experts_per_tok, std::max(c.hidden_size, 2 * c.moe_intermediate_size)}),
       bytes_of({c.n_routed_experts, 2 * c.moe_intermediate_size, c.hidden_size}),
       bytes_of({batch, length, c.n_routed_experts}), bytes_of({batch, length, c.vocab_size}),
       bytes_of({c.vocab_size, c.hidden_size})});
}

namespace {

constexpr const char* kProjections[] = {"gate_proj", "up_proj", "down_proj"};

/// Of the Linear layers, and those that the experts' had before transformers 5 made parameters of them.
std::vector<std::string> projection_paths(const DeepseekConfig& config) {
  std::vector<std::string> paths{"lm_head"};
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    const auto add = [&](const char* module, std::initializer_list<const char*> names) {
      for (const char* name : names) paths.push_back(layer + module + name);
    };
    if (config.q_lora_rank == 0)
      add("self_attn.", {"q_proj"});
    else
      add("self_attn.", {"q_a_proj", "q_b_proj"});
    add("self_attn.", {"kv_a_proj_with_mqa", "kv_b_proj", "o_proj"});
    const bool has_experts = i >= config.first_k_dense_replace;
    if (has_experts) add("mlp.", {"gate"});
    for (const char* module : {"mlp.experts.", "mlp.shared_experts."})
      if (has_experts) add(module, {"gate_proj", "up_proj", "down_proj"});
    if (!has_experts) add("mlp.", {"gate_proj", "up_proj", "down_proj"});
  }
  return paths;
}

}  // namespace

void convert_deepseek_targets(ConfigReader& reader, const FamilyConfig& config, LoraConfig& lora) {
  convert_expert_targets(reader, lora, projection_paths(config.as<DeepseekConfig>()), kProjections);
}

namespace {

/// apply_liger_kernel_to_deepseek_v2 and _v3. Their kin have none.
ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = deepseek_traits(config);
  const auto& c = config.as<DeepseekConfig>();
  if (c.classifier) {
    t.leave_liger_out();
    return t;
  }
  t.allow({Feature::liger});
  t.liger.usual.rope = false;
  t.liger.ignores.rope = true;  // interleaved pairs
  t.liger.experts = true;
  t.liger.swiglu = c.hidden_act == Activation::silu;
  t.liger.widest_row = std::max({c.hidden_size, c.intermediate_size, c.moe_intermediate_size * c.n_shared_experts});
  return t;
}

}  // namespace

namespace family {
extern const Family deepseek = deepseek_family<read>(kClasses, kBlocks, convert_deepseek_targets, traits);
}  // namespace family

}  // namespace oometer
