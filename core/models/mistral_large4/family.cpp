#include "models/family.h"

#include <algorithm>
#include <string>
#include <vector>

#include "config/reader.h"
#include "models/deepseek/family.h"
#include "models/mistral3/mistral3.h"
#include "models/sizes.h"
#include "models/vision_language.h"

/// transformers 5.23, models/mistral_large4: Mistral 3's parts around a text model of GLM-5's classes, without
/// compressed queries, with layers that are not turned, and with queries that are scaled by what is learnt of their
/// positions.
namespace oometer {

namespace {

constexpr DeepseekClassNames kNames{
    {"MistralLarge4ForConditionalGeneration", "MistralLarge4TextModel", "MistralLarge4TextDecoderLayer",
     "MistralLarge4TextAttention", "MistralLarge4TextMLP", "MistralLarge4RMSNorm", "MistralLarge4TextRotaryEmbedding"},
    "MistralLarge4TextMoE",
    "MistralLarge4TextExperts",
    "MistralLarge4TextTopkRouter",
    {.is_v3 = true,
     .has_layer_types = true,
     .has_softmax = true,
     .indexer = IndexerRotary::pairs,
     .learns_scaling = true,
     .shares_topk = true},
    "MistralLarge4TextIndexer"};
constexpr ModelClass kClasses[] = {{kMistralLarge4.model_type, kMistralLarge4.class_name}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

/// no_rope_layers: 1 where a layer has rotary embeddings; else every fourth has none.
std::vector<bool> read_turns(ConfigReader& reader, std::size_t layers) {
  const std::vector<std::int64_t> given = reader.integers("no_rope_layers", {0, 1});
  const std::int64_t interval = reader.integer("no_rope_layer_interval", 4);
  std::vector<bool> turns;
  if (given.empty())
    for (std::size_t i = 0; i < layers; ++i) turns.push_back((static_cast<std::int64_t>(i) + 1) % interval != 0);
  for (const std::int64_t one : given) turns.push_back(one != 0);
  if (turns.size() < layers) reader.fail("no_rope_layers", "inconsistent", "expected a number for each layer");
  turns.resize(layers);
  return turns;
}

DeepseekConfig read_text(ConfigReader& reader) {
  DeepseekConfig d;
  d.names = &kNames;
  d.vocab_size = 204'800;
  d.hidden_size = 6144;
  d.intermediate_size = 24'576;
  d.moe_intermediate_size = 6144;
  d.num_hidden_layers = 72;
  d.num_attention_heads = 64;
  d.n_routed_experts = reader.integer("num_local_experts", 128);  // attribute_map
  d.n_shared_experts = 1;
  d.num_experts_per_tok = 4;
  d.first_k_dense_replace = 1;
  d.q_lora_rank = 0;
  d.qk_nope_head_dim = 64;
  d.max_position_embeddings = 1'048'576;
  d.index_n_heads = 32;
  if (reader.has("q_lora_rank"))
    reader.fail("q_lora_rank", "inconsistent", "the class does not compress queries: leave it out");
  if (reader.has("norm_topk_prob")) reader.ignore({"norm_topk_prob"});
  DeepseekConfig c = read_deepseek_config(reader, d);
  c.turns = read_turns(reader, static_cast<std::size_t>(c.num_hidden_layers));
  const std::vector<std::int64_t> sources = reader.integers("kv_source_layers", non_negative);
  for (std::size_t i = 0; i < sources.size(); ++i)
    if (sources[i] != static_cast<std::int64_t>(i)) {
      reader.fail("kv_source_layers", "not-modelled",
                  "layers that take another's keys and values are not supported yet: leave it out");
      break;
    }
  reader.ignore({"model_type", "final_logit_softcapping", "rope_parameters", "rope_theta", "rope_scaling"});
  return c;
}

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) {
  for (const char* part : {"vision_config", "text_config"})
    if (!reader.is_object(part))
      reader.fail(part, "not-modelled", "the class's own one is not supported yet: expected an object");
  Mistral3Config c = read_mistral3_config(reader, kMistralLarge4);
  ConfigReader text = reader.object("text_config");
  c.deepseek = read_text(text);
  text.finish();
  static_cast<LlamaConfig&>(c.text) = c.deepseek->as_llama(c.deepseek->intermediate_size);
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_mistral3(context, config.as<Mistral3Config>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<Mistral3Config>();
  ModelTraits t = vision_language_traits(c.of->class_name, c.text, c.tie_word_embeddings);
  t.set_parts(c.of->tower, c.of->projector, "language_model");
  t.image_keys = {"image_size", "image_sizes"};
  t.has_experts = t.has_idle_parts = true;  // idle: the indexer, whose choice passes no gradient
  t.oldest_transformers = {5, 23, 0};
  t.no_split_modules = {kNames.decoder_layer};
  for (const Feature feature :
       {Feature::deepspeed, Feature::zero3, Feature::fsdp, Feature::inference, Feature::quantization,
        Feature::headinfer, Feature::quantized_cache, Feature::turn_images})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  for (const Feature feature : {Feature::flash_attention, Feature::flash_attention_2})
    t.refuse(feature, "inconsistent", "its indexer chooses tokens by a mask: use sdpa or eager");
  t.allow({Feature::image_preferences, Feature::packing});
  t.generates = false;
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<Mistral3Config>();
  return std::max(
      {largest_tensor_of_deepseek(FamilyConfig(*c.deepseek), data), largest_tensor_of_pixtral(c, data),
       bytes_of({data.micro_batch_size, data.sequence_length, data.sequence_length, c.deepseek->index_n_heads})});
}

}  // namespace

namespace family {
extern const Family mistral_large4{.classes = kClasses,
                                   .blocks = kBlocks,
                                   .read = read,
                                   .build = build,
                                   .traits = traits,
                                   .largest_tensor = largest_tensor,
                                   .read_images = read_pixtral_images};
}  // namespace family

}  // namespace oometer
