#include <algorithm>

#include "models/gemma3n_text/gemma3n_text.h"
#include "models/gemma4_text/gemma4_text.h"
#include "models/kit/text_family.h"
#include "models/sizes.h"

/// transformers 5.23, models/gemma3n/modeling_gemma3n.py.
namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"gemma3n_text", kGemma3nNames.causal_lm}};
constexpr const char* kBlocks[] = {kGemma3nNames.decoder_layer};

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) { return read_gemma3n_text_config(reader); }

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  const auto& text = config.as<Gemma3nTextConfig>();
  return make_language_model(context, text, data, options, gemma3n_text_parts(text, options));
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<Gemma3nTextConfig>();
  ModelTraits t = text_traits(c);
  t.has_no_peft_targets();
  for (const Feature feature : {Feature::inference, Feature::flash_attention_2, Feature::no_grad})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  t.generates = false;
  t.allow({Feature::fsdp});
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<Gemma3nTextConfig>();
  return std::max(largest_tensor_of_gemma4_text(c, data),
                  bytes_of({c.altup_num_inputs, data.micro_batch_size, data.sequence_length, c.hidden_size}));
}

}  // namespace

namespace family {
extern const Family gemma3n_text{.classes = kClasses,
                                 .blocks = kBlocks,
                                 .read = read,
                                 .build = build,
                                 .traits = traits,
                                 .largest_tensor = largest_tensor};
}  // namespace family

}  // namespace oometer
