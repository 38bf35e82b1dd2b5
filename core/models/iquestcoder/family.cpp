#include "models/llama/family.h"

#include "config/reader.h"

/// transformers 5.23, models/iquestcoder: a config of its own; its classes are Llama's, whatever published files call
/// theirs.
namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"iquestcoder", "LlamaForCausalLM"}, {"iquestcoder", "IQuestCoderForCausalLM"}};
constexpr const char* kBlocks[] = {kLlamaClassNames.decoder_layer};

LlamaConfig read(ConfigReader& reader) {
  LlamaConfig d;
  d.vocab_size = 76800;
  d.hidden_size = 5120;
  d.intermediate_size = 27648;
  d.num_hidden_layers = 80;
  d.num_attention_heads = 40;
  d.num_key_value_heads = 8;
  d.max_position_embeddings = 131'072;
  LlamaConfig c = read_llama_sizes(reader, d);
  if (!reader.has("head_dim") && !reader.is_null("head_dim")) c.head_dim = 128;
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  c.mlp_bias = reader.boolean("mlp_bias", false);
  check_llama_heads(reader, c);
  if (c.hidden_size % c.num_attention_heads != 0)  // LlamaConfig.validate_architecture
    reader.fail_found("hidden_size", "inconsistent", "expected a multiple of num_attention_heads");
  reader.refuse("use_sliding_window", "the class refuses it: set it to false");
  if (reader.has("clip_qkv")) reader.fail("clip_qkv", "inconsistent", "the class refuses it: expected null");
  return c;
}

ModelTraits traits(const FamilyConfig& config) { return traits_of_llama_copy(config, "an IQuest-Coder"); }

}  // namespace

namespace family {
extern const Family iquestcoder = llama_family<read>(kClasses, kBlocks, traits);
}  // namespace family

}  // namespace oometer
