#include "models/llama/family.h"

#include <string>

#include "config/reader.h"

/// transformers 5.23, models/internlm3: a config of its own; its classes are Llama's, whatever published files call
/// theirs.
namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"internlm3", "LlamaForCausalLM"}, {"internlm3", "InternLM3ForCausalLM"}};
constexpr const char* kBlocks[] = {kLlamaClassNames.decoder_layer};

LlamaConfig read(ConfigReader& reader) {
  LlamaConfig d;
  d.vocab_size = 128512;
  d.intermediate_size = 10240;
  d.num_hidden_layers = 48;
  d.num_key_value_heads = 2;
  d.max_position_embeddings = 32768;
  d.has_pad_token = true;
  LlamaConfig c = read_llama_sizes(reader, d);
  if (!reader.has("head_dim") && !reader.is_null("head_dim")) c.head_dim = 128;
  if (!reader.has("pad_token_id") && !reader.is_null("pad_token_id")) c.has_pad_token = true;
  c.qkv_bias = c.output_bias = reader.boolean("qkv_bias", reader.boolean("attention_bias", false));
  c.mlp_bias = reader.boolean("bias", reader.boolean("mlp_bias", false));
  if (c.qkv_bias != c.mlp_bias)
    reader.fail_found(reader.has("qkv_bias") ? "qkv_bias" : "attention_bias", "inconsistent",
                      "expected the same as bias: Llama's classes have one setting for all projections of attention");
  check_llama_heads(reader, c);
  return c;
}

ModelTraits traits(const FamilyConfig& config) { return traits_of_llama_copy(config, "an InternLM3"); }

}  // namespace

namespace family {
extern const Family internlm3 = llama_family<read>(kClasses, kBlocks, traits);
}  // namespace family

}  // namespace oometer
