#include "models/llama/family.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "config/reader.h"
#include "models/llama/llama.h"
#include "models/sizes.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"llama", "LlamaForCausalLM"},
                                   {"llama", "LlamaForSequenceClassification"},
                                   {"llama", "LlamaForTokenClassification"},
                                   {"llama", "LlamaForQuestionAnswering"}};
constexpr const char* kBlocks[] = {kLlamaClassNames.decoder_layer};

/// A usual length of fine-tuning data, and the original LLaVA code's model_max_length (scripts/v1_5/finetune.sh).
constexpr std::int64_t kUsualLength = 2048;

/// mp_headinfer (headinfer/mp.py) knows Llama's and Qwen2's classes; Mistral's attention is Llama's.
[[gnu::noinline]] void refuse_headinfer(const LlamaConfig& c, ModelTraits& t) {
  if (c.qkv_bias && c.output_bias)
    t.refuse(Feature::headinfer, "inconsistent",
             "HeadInfer cuts a Llama's weights by heads and leaves its biases whole: it cannot run a model with "
             "attention_bias");
  else if (c.sliding_window != 0)
    t.refuse(Feature::headinfer, "not-modelled",
             "HeadInfer of a model with a sliding_window is not supported yet; expected another cache");
}

/// What was not compared with the real classes.
void check_classifier(ModelTraits& t) {
  t.ties_embeddings = false;
  t.oldest_transformers = {5, 23, 0};
  for (const Feature feature :
       {Feature::inference, Feature::packing, Feature::liger, Feature::quantization, Feature::chunked_cross_entropy})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
}

}  // namespace

// PreTrainedConfig.__init__ (configuration_utils.py): two labels where nobody says; and what
// ForSequenceClassificationLoss (loss/loss_utils.py) takes the problem for, of labels as data sets have them.
ClassifierConfig read_classifier(ConfigReader& reader, const ModelClass& of, double dropout) {
  const std::string_view name = of.class_name;
  if (name.ends_with("ForQuestionAnswering")) return {.class_name = of.class_name, .of_tokens = true};
  const bool of_tokens = name.ends_with("ForTokenClassification");
  if (!of_tokens && !name.ends_with("ForSequenceClassification")) return {};
  ClassifierConfig c{.class_name = of.class_name, .of_tokens = of_tokens};
  if (const nlohmann::json* labels = reader.find("id2label"); labels && labels->is_object())
    c.num_labels = static_cast<std::int64_t>(labels->size());
  c.num_labels = reader.integer("num_labels", c.num_labels, {1, 1 << 20});
  if (of_tokens) {  // GenericForTokenClassification.__init__ (modeling_layers.py)
    // GPT-Neo and GPT-NeoX take the first alone.
    const bool has_own = reader.has("classifier_dropout") || name.starts_with("GPTNeo");
    const char* const key = has_own ? "classifier_dropout" : "hidden_dropout";
    c.dropout = reader.has(key) ? reader.number(key, dropout, 0, 1) : dropout;
    c.has_bias = reader.boolean("token_classification_bias", true);
    return c;
  }
  c.problem =
      reader.choice("problem_type", c.num_labels == 1 ? Problem::regression : Problem::single_label_classification,
                    {{"regression", Problem::regression},
                     {"single_label_classification", Problem::single_label_classification},
                     {"multi_label_classification", Problem::multi_label_classification}});
  return c;
}

ModelTraits llama_traits(const LlamaConfig& c) {
  ModelTraits t = transformers_traits(c.classifier ? c.classifier.class_name : c.names->causal_lm);
  t.takes_text = true;
  t.generates = !c.classifier;
  t.allow({Feature::finetune, Feature::liger, Feature::chunked_cross_entropy, Feature::quantization,
           Feature::generate_options, Feature::turn_images, Feature::lengths, Feature::packing,
           Feature::flash_attention_2});
  if (c.sliding_window == 0) t.allow({Feature::quantized_cache});
  if (c.names->norms_heads) {
    // its code would leave the norms out
  } else if ((c.qkv_bias && c.output_bias) || c.sliding_window != 0) {
    refuse_headinfer(c, t);
  } else {
    t.allow({Feature::headinfer});
  }
  if (c.names != &kLlamaClassNames) t.oldest_transformers = {5, 0, 0};
  t.has_pad_token = c.has_pad_token;
  t.ties_embeddings = c.tie_word_embeddings;
  t.hidden_size = c.hidden_size;
  t.language = "model";
  t.default_sequence_length = std::min(kUsualLength, c.max_position_embeddings);
  t.text = {c.max_position_embeddings, c.num_key_value_heads, c.head_dim, c.sliding_window, {}};
  if (c.sliding_window != 0)
    for (std::int64_t i = 0; i < c.num_hidden_layers; ++i)
      t.text.windows.push_back(c.window_of(static_cast<std::size_t>(i)));
  // TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING and its like for IA3 (peft 0.21, utils/constants.py)
  t.lora_targets = {"q_proj", "v_proj"};
  t.ia3_targets = {"k_proj", "v_proj", "down_proj"};
  t.ia3_feedforward = {"down_proj"};
  t.ln_tuning_targets = {"input_layernorm", "post_attention_layernorm", "norm"};
  t.quantization_skips = {"lm_head"};
  t.liger.swiglu = c.hidden_act == Activation::silu;
  t.liger.widest_row = std::max(c.hidden_size, c.intermediate_size);
  t.no_split_modules = {c.names->decoder_layer};
  t.classifies = static_cast<bool>(c.classifier);
  if (c.classifier && !c.classifier.of_tokens) t.labels = c.classifier.num_labels;
  if (c.classifier) check_classifier(t);
  return t;
}

double largest_tensor_of(const LlamaConfig& c, const DataConfig& data) {
  const std::int64_t batch = data.micro_batch_size;
  const std::int64_t length = data.sequence_length;
  const std::int64_t query = c.num_attention_heads * c.head_dim;
  return std::max(
      {bytes_of_layer(batch, length, c.hidden_size, std::max(c.intermediate_size, query), c.num_attention_heads),
       bytes_of({batch, length, c.vocab_size}), bytes_of({c.vocab_size, c.hidden_size}),
       bytes_of({c.max_position_embeddings})});
}

std::unique_ptr<Model> build_llama_family(Context& context, const FamilyConfig& config, const DataConfig& data,
                                          const ModelOptions& options) {
  return build_llama(context, config.as<LlamaConfig>(), data, options);
}

Version oldest_with_llama_code(const ModelTraits& traits, Version of_class) {
  return traits.text.sliding_window == 0 ? of_class : Version{4, 53, 0};
}

ModelTraits traits_of_llama_family(const FamilyConfig& config) { return llama_traits(config.as<LlamaConfig>()); }

ModelTraits traits_of_llama_copy(const FamilyConfig& config, const char* name) {
  ModelTraits t = traits_of_llama_family(config);
  t.oldest_transformers = {5, 23, 0};
  t.has_no_peft_targets();
  t.has_no_liger();
  t.refuse(Feature::headinfer, "not-modelled", "this is not supported yet with " + std::string(name));
  return t;
}

double largest_tensor_of_llama_family(const FamilyConfig& config, const DataConfig& data) {
  return largest_tensor_of(config.as<LlamaConfig>(), data);
}

namespace family {
extern const Family llama = llama_family<read_llama_config>(kClasses, kBlocks);
}  // namespace family

}  // namespace oometer
