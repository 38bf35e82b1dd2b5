#include "config/reader.h"
#include "models/kit/mixture.h"
#include "nn/quantizer.h"

/// transformers 5.23, models/mixtral/modeling_mixtral.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"MixtralForCausalLM",    "MixtralModel",   "MixtralDecoderLayer",   "MixtralAttention",
                                 "MixtralSparseMoeBlock", "MixtralRMSNorm", "MixtralRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"mixtral", kNames.causal_lm},
                                   {"mixtral", "MixtralForSequenceClassification"},
                                   {"mixtral", "MixtralForTokenClassification"},
                                   {"mixtral", "MixtralForQuestionAnswering"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.intermediate_size = 14336;
  d.num_key_value_heads = 8;
  d.max_position_embeddings = 131'072;
  TextConfig c = read_text_sizes(reader, d);
  c.sliding_window = reader.optional_integer("sliding_window").value_or(0);
  check_llama_heads(reader, c);
  read_experts(reader, c, "num_local_experts", "num_experts",
               {.num_experts = 8, .num_experts_per_tok = 2, .balances = true});
  c.experts.intermediate_size = c.intermediate_size;
  if (reader.number("router_jitter_noise", 0, 0, 1) != 0)
    reader.fail_found("router_jitter_noise", "not-modelled", "noise on what the router gets is not supported yet");
  return c;
}

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t) {
  return pre_norm_layer(builder, c, options, {}, [&](const Builder& layer) {
    const Builder at = layer.child("mlp", kNames.mlp);
    if (at.quantizer) at.quantizer->renames(at.module, "block_sparse_moe");
    SparseMoeBlock block(at);
    block.gate = Router(at.child("gate", "MixtralTopKRouter"), c, best_in_float32);
    block.experts = make_experts(at, "MixtralExperts", c,
                                 {.checkpoint = kNumberedProjections, .loop = ExpertsLoop::masks_one_more});
    block.experts.liger = options.liger.swiglu;
    return block;
  });
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  return parts_of(config, options, make_layer);
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = traits_with<Feature::quantization, Feature::zero3, Feature::fsdp, Feature::liger>(config);
  t.liger.experts = true;
  return t;
}

}  // namespace

namespace family {
extern const Family mixtral = mixture_family<read, parts>(kClasses, kBlocks, convert_mixtral_targets, traits);
}  // namespace family

}  // namespace oometer
