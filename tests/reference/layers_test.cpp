#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "models/clip/clip.h"
#include "models/llama/llama.h"
#include "nn/activation.h"
#include "process.h"
#include "train/objectives/causal_lm.h"

/// What each single layer of layers.json keeps for backward, storage by storage: held against the graph that PyTorch
/// leaves behind. Recorded under FakeTensor, which is a dispatch mode.
namespace oometer {
namespace {

struct Outputs {
  std::vector<Tensor> tensors;
};

/// One layer: builds it and its inputs, then runs it. What it returns is alive when the layer is looked at.
using Layer = std::function<std::function<Outputs()>(Process&)>;

LlamaConfig vicuna() { return {}; }

LlamaConfig llama3() {
  LlamaConfig config;
  config.intermediate_size = 14336;
  config.num_key_value_heads = 8;
  return config;
}

LlamaConfig qwen2() {
  LlamaConfig config;
  config.hidden_size = 3584;
  config.intermediate_size = 18944;
  config.num_attention_heads = 28;
  config.num_key_value_heads = 4;
  config.qkv_bias = true;
  return config;
}

struct Options {
  AttentionKind attention = AttentionKind::sdpa;
  DType dtype = kBf16;
  bool frozen = false;
};

void freeze(Process& p) {
  for (Parameter& parameter : p.parameters) parameter.tensor->leaf_requires_grad = false;
}

struct LlamaInputs {
  Tensor hidden_states, mask;
  PositionEmbeddings positions;

  LlamaInputs(Process& p, const LlamaConfig& config, const Options& options)
      : hidden_states(p.input({1, 1024, config.hidden_size}, options.dtype, true)),
        positions{p.input({1, 1024, config.head_dim}, options.dtype),
                  p.input({1, 1024, config.head_dim}, options.dtype)} {
    if (options.attention == AttentionKind::eager) mask = p.input({1, 1, 1024, 1024}, options.dtype);
  }
};

ModelOptions model_options(const Options& options) {
  ModelOptions result;
  result.dtype = options.dtype;
  result.attention = options.attention;
  return result;
}

Layer llama_layer(const LlamaConfig& config, const Options& options = {}) {
  return [=](Process& p) {
    LlamaDecoderLayer layer(p.builder(options.dtype), config, model_options(options));
    if (options.frozen) freeze(p);
    const LlamaInputs in(p, config, options);
    return [=] { return Outputs{{layer(in.hidden_states, in.positions, in.mask)}}; };
  };
}

Layer llama_attention(const Options& options) {
  return [=](Process& p) {
    const LlamaAttention layer(p.builder(), vicuna(), model_options(options));
    const LlamaInputs in(p, vicuna(), options);
    return [=] {
      const AttentionOutputs outputs = layer(in.hidden_states, in.positions, in.mask);
      return Outputs{{outputs.output, outputs.weights}};
    };
  };
}

/// A module of one input that wants a gradient.
template <class Make>
Layer module_of(const Shape& sizes, const Options& options, Make make) {
  return [=](Process& p) {
    const auto module = make(p.builder(options.dtype));
    if (options.frozen) freeze(p);
    const Tensor x = p.input(sizes, options.dtype, true);
    return [=] { return Outputs{{module(x)}}; };
  };
}

template <class Function>
Layer function_of_x(Function function) {
  return module_of({1, 1024, 4096}, {}, [=](const Builder&) { return function; });
}

Layer linear_layer(bool bias, const Options& options = {}) {
  return module_of({1, 1024, 4096}, options, [=](const Builder& b) { return Linear(b, 4096, 4096, bias); });
}

Layer loss_of(std::int64_t vocabulary) {
  return [=](Process& p) {
    const Tensor logits = p.input({1, 1024, vocabulary}, kBf16, true), labels = p.input({1, 1024}, DType::int64);
    return [=] { return Outputs{{causal_lm_loss(logits, labels)}}; };
  };
}

// apply_rotary_pos_emb
Tensor rotated(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  const Tensor straight = mul(x, cos);
  const Tensor first = slice(x, -1, 0, x.size(-1) / 2), second = slice(x, -1, x.size(-1) / 2, x.size(-1) / 2);
  Tensor turned;
  {
    const Tensor negative = neg(second);
    turned = cat({negative, first}, -1);
  }
  turned = mul(turned, sin);
  return add(straight, turned);
}

Layer rotary() {
  return [](Process& p) {
    const Tensor q = p.input({1, 32, 1024, 128}, kBf16, true), k = p.input({1, 32, 1024, 128}, kBf16, true);
    const Tensor cos = p.input({1, 1024, 128}), sin = p.input({1, 1024, 128});
    return [=] {
      const Tensor wide_cos = unsqueeze(cos, 1), wide_sin = unsqueeze(sin, 1);
      return Outputs{{rotated(q, wide_cos, wide_sin), rotated(k, wide_cos, wide_sin)}};
    };
  };
}

Layer clip_layer(AttentionKind attention) {
  return module_of({16, 577, 1024}, {}, [=](const Builder& b) {
    const ClipEncoderLayer layer(b, {1024, 4096, 16, Activation::quick_gelu, {attention, false, 0}});
    return [=](const Tensor& x) { return layer(x, {}); };
  });
}

Layer clip_embeddings() {
  return [](Process& p) {
    ClipVisionConfig config;
    config.hidden_size = 1024;
    config.image_size = 336;
    config.patch_size = 14;
    const ClipVisionEmbeddings embeddings(p.builder(), config);
    const Tensor pixels = p.input({16, 3, 336, 336});
    return [=] { return Outputs{{embeddings(pixels)}}; };
  };
}

Layer projector() {
  return [](Process& p) {
    const Linear linear_1(p.builder(), 1024, 4096, true), linear_2(p.builder(), 4096, 4096, true);
    const Tensor features = p.input({16, 576, 1024});
    return [=] {
      Tensor hidden_states = linear_1(features);
      hidden_states = activate(Activation::gelu, hidden_states);
      return Outputs{{linear_2(hidden_states)}};
    };
  };
}

const std::map<std::string, Layer>& layers() {
  const Shape hidden{1, 1024, 4096};
  const auto rms_norm = [](const Builder& b) { return LlamaRMSNorm(b, 4096); };
  const auto mlp = [](const Builder& b) { return LlamaMLP(b, vicuna()); };
  const Options fp32{AttentionKind::sdpa, kFp32, false}, frozen{AttentionKind::sdpa, kBf16, true};
  static const std::map<std::string, Layer> all{
      {"llama7b_layer_flash", llama_layer(vicuna())},
      {"llama7b_layer_efficient", llama_layer(vicuna(), {AttentionKind::sdpa_efficient})},
      {"llama7b_layer_math", llama_layer(vicuna(), {AttentionKind::sdpa_math})},
      {"llama7b_layer_eager", llama_layer(vicuna(), {AttentionKind::eager})},
      {"llama3_8b_layer_gqa_flash", llama_layer(llama3())},
      {"llama3_8b_layer_gqa_eager", llama_layer(llama3(), {AttentionKind::eager})},
      {"llama7b_layer_flash_frozen", llama_layer(vicuna(), frozen)},
      {"llama7b_layer_flash_amp", llama_layer(vicuna(), fp32)},
      {"llama7b_layer_fp32", llama_layer(vicuna(), fp32)},
      {"llama_rmsnorm", module_of(hidden, {}, rms_norm)},
      {"llama_rmsnorm_frozen", module_of(hidden, frozen, rms_norm)},
      {"llama_rmsnorm_fp32_amp", module_of(hidden, fp32, rms_norm)},
      {"torch_nn_layernorm", module_of({16, 577, 1024}, {}, [](const Builder& b) { return LayerNorm(b, 1024); })},
      {"llama_mlp", module_of(hidden, {}, mlp)},
      {"llama_mlp_frozen", module_of(hidden, frozen, mlp)},
      {"llama_attention_sdpa", llama_attention({})},
      {"llama_attention_eager", llama_attention({AttentionKind::eager})},
      {"llama_rotary", rotary()},
      {"linear_bf16_nobias", linear_layer(false)},
      {"linear_bf16_bias_contig", linear_layer(true)},
      {"linear_bf16_frozen", linear_layer(true, frozen)},
      {"linear_amp", linear_layer(true, fp32)},
      {"embedding_32064",
       [](Process& p) {
         const Embedding embedding(p.builder(), 32064, 4096);
         const Tensor ids = p.input({1, 1024}, DType::int64);
         return [=] { return Outputs{{embedding(ids)}}; };
       }},
      {"causal_lm_loss_v32000", loss_of(32000)},
      {"causal_lm_loss_v128256", loss_of(128256)},
      {"lm_head_plus_loss_32064",
       [](Process& p) {
         const Linear head(p.builder(), 4096, 32064, false);
         const Tensor x = p.input({1, 1024, 4096}, kBf16, true), labels = p.input({1, 1024}, DType::int64);
         return [=] { return Outputs{{causal_lm_loss(head(x), labels)}}; };
       }},
      {"clip_l336_encoder_layer_sdpa_b16", clip_layer(AttentionKind::sdpa)},
      {"clip_l336_encoder_layer_eager_b16", clip_layer(AttentionKind::eager)},
      {"clip_embeddings_b16", clip_embeddings()},
      {"llava_projector_b16", projector()},
      {"qwen2_7b_layer_sdpa", llama_layer(qwen2())},
      {"act_gelu_none", function_of_x([](const Tensor& x) { return activate(Activation::gelu, x); })},
      {"act_gelu_tanh", function_of_x([](const Tensor& x) { return activate(Activation::gelu_tanh, x); })},
      {"act_silu", function_of_x([](const Tensor& x) { return activate(Activation::silu, x); })},
      {"act_relu", function_of_x([](const Tensor& x) { return activate(Activation::relu, x); })},
      {"act_quick_gelu", function_of_x([](const Tensor& x) { return activate(Activation::quick_gelu, x); })},
      {"act_gelu_new", function_of_x([](const Tensor& x) { return activate(Activation::gelu_new, x); })},
      {"act_dropout", function_of_x([](const Tensor& x) { return dropout(x, 0.1); })},
      {"act_softmax", function_of_x([](const Tensor& x) { return softmax(x, x.dtype()); })},
      {"act_softmax_fp32_from_bf16", function_of_x([](const Tensor& x) {
         const Tensor probabilities = softmax(x, kFp32);
         return to(probabilities, x.dtype());
       })},
  };
  return all;
}

/// Modules that no supported model has.
const std::set<std::string> kNotSupported{"gpt2_block_sdpa", "bert_layer_sdpa", "gemma3_rmsnorm", "t5_layernorm",
                                          "torch_nn_rmsnorm"};

DType dtype_of(const std::string& name) {
  if (name == "float32") return kFp32;
  if (name == "int64") return DType::int64;
  REQUIRE(name == "bfloat16");
  return kBf16;
}

TEST_CASE("Every layer keeps for backward what PyTorch keeps", "[reference]") {
  std::ifstream file(std::string(OOMETER_SOURCE_DIR) + "/tests/reference/layers.json");
  const nlohmann::json recorded = nlohmann::json::parse(file);
  std::size_t compared = 0;
  for (const nlohmann::json& truth : recorded) {
    const std::string name = truth["name"];
    INFO(name);
    const auto layer = layers().find(name);
    if (layer == layers().end()) {
      CHECK(kNotSupported.contains(name));
      continue;
    }
    ++compared;
    Process p(recorded_behaviours(true));
    const auto forward = layer->second(p);
    p.mark();
    Outputs outputs;
    {
      const AutocastRegion region(p.context, name.ends_with("_amp"));
      outputs = forward();
    }
    if (!outputs.tensors.back()) outputs.tensors.pop_back();

    // What the graph holds: the results of operators (FakeTensor counts buffers with them), and the layer's inputs.
    std::vector<std::int64_t> activations, inputs;
    std::int64_t unique = 0;
    for (const nlohmann::json& saved : truth["saved"]) {
      const std::int64_t bytes = saved["bytes"];
      const bool activation = saved["kind"] == "activation";
      (activation ? activations : inputs).push_back(bytes);
      if (activation) unique += bytes;
    }
    std::sort(activations.begin(), activations.end());
    std::sort(inputs.begin(), inputs.end());
    std::vector<std::int64_t> ours = p.saved();
    for (const std::int64_t buffer : p.saved(Role::buffer)) ours.push_back(buffer);
    std::sort(ours.begin(), ours.end());
    CHECK(ours == activations);
    CHECK(p.saved(Role::input) == inputs);
    CHECK(unique == truth["unique_activation_bytes"]);
    CHECK(p.alive(Role::tensor) == truth["held_after_forward_bytes"]);
    CHECK(p.alive(Role::parameter) == truth["param_bytes"]);

    REQUIRE(outputs.tensors.size() == truth["outputs"].size());
    for (std::size_t i = 0; i < outputs.tensors.size(); ++i) {
      const Tensor& output = outputs.tensors[i];
      CHECK(std::vector<std::int64_t>(output.sizes().begin(), output.sizes().end()) == truth["outputs"][i][0]);
      CHECK(output.dtype() == dtype_of(truth["outputs"][i][1]));
    }

    // Nothing but the graph held it.
    outputs.tensors.clear();
    CHECK(p.alive(Role::tensor) == 0);
  }
  CHECK(compared == layers().size());
  CHECK(compared + kNotSupported.size() == recorded.size());
}

}  // namespace
}  // namespace oometer
