#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <string>

#include "jobs.h"

/// Families with experts made from core/models/kit.
namespace oometer {
namespace {

TEST_CASE("Every preset with experts has as many parameters as the published model", "[models]") {
  struct Row {
    const char* preset;
    std::int64_t parameters;
  };
  const Row row = GENERATE(Row{"qwen3-30b-a3b", 30'532'122'624}, Row{"qwen3-235b-a22b", 235'093'634'560},
                           Row{"qwen1.5-moe-a2.7b", 14'315'784'192}, Row{"mixtral-8x7b", 46'702'792'704},
                           Row{"mixtral-8x22b", 140'620'634'112}, Row{"olmoe-1b-7b", 6'919'161'856},
                           Row{"gpt-oss-20b", 20'914'757'184}, Row{"gpt-oss-120b", 116'829'156'672},
                           Row{"granite-3.1-1b-a400m", 1'334'628'352}, Row{"granite-3.1-3b-a800m", 3'298'793'472},
                           Row{"glm-4.5-air", 106'852'245'504}, Row{"glm-4.5", 352'797'814'784},
                           Row{"ernie-4.5-21b-a3b", 21'825'437'888}, Row{"dots.llm1", 142'774'373'888},
                           Row{"minimax-m2.5", 228'689'748'992});
  CAPTURE(row.preset);
  CHECK(simulation_of(std::string(R"({"model": {"preset": ")") + row.preset + R"("}})").parameters == row.parameters);
}

std::string mixture(const std::string& model_type, const std::string& more) {
  return R"({"model": {"config": {"model_type": ")" + model_type + R"(", "hidden_size": 64, "intermediate_size": 176,
            "vocab_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2)" +
         more + R"(}}, "data": {"sequence_length": 64}})";
}

std::string refusal_of_mixture(const std::string& job) {
  const Result<Job> parsed = parse_job(job);
  return parsed ? "" : parsed.error().pointer + ": " + parsed.error().message;
}

TEST_CASE("What experts are not modelled with is refused by name", "[models]") {
  const auto job = [](const std::string& type, const std::string& more, const std::string& members = "") {
    std::string text = mixture(type, R"(, "num_experts_per_tok": 3)" + more);
    return text.insert(1, members);
  };
  struct Row {
    std::string job;
    const char* pointer;
  };
  for (const Row& row :
       {Row{job("glm4_moe", R"(, "output_router_logits": true)"), "/model/config/output_router_logits"},
        Row{job("qwen3_moe", R"(, "num_experts": 2)"), "/model/config/num_experts_per_tok"},
        Row{job("mixtral", R"(, "num_local_experts": 2)"), "/model/config/num_experts_per_tok"},
        Row{job("mixtral", R"(, "router_jitter_noise": 0.1)"), "/model/config/router_jitter_noise"},
        Row{job("olmoe", R"(, "clip_qkv": 8)"), "/model/config/clip_qkv"},
        Row{job("qwen2_moe", R"(, "layer_types": ["sliding_attention"])"), "/model/config/layer_types"},
        Row{job("granitemoe", R"(, "output_router_logits": true)", R"("task": "inference", )"), "/model"},
        Row{job("glm4_moe", R"(, "n_routed_experts": 12, "n_group": 8)"), "/model/config/n_group"},
        Row{job("dots1", ""), "/model/config/n_routed_experts"},
        Row{job("minimax_m2", R"(, "router_jitter_noise": 0.1)"), "/model/config/router_jitter_noise"},
        Row{job("gpt_oss", R"(, "quantization_config": {"quant_method": "mxfp4"})"),
            "/model/config/quantization_config"},
        Row{job("gpt_oss", "", R"("training": {"attention": "sdpa"}, )"), "/training/attention"},
        Row{job("mixtral", "", R"("runtime": {"experts": "batched_mm"}, )"), "/runtime/experts"},
        Row{job("mixtral", "", R"("training": {"loop": "trl.KTOTrainer"}, )"), "/training/loop"},
        Row{job("mixtral", "", R"("training": {"lora": {"target_modules": ["q_proj", "w1"]}}, )"),
            "/training/lora/target_modules"},
        Row{job("qwen3_moe", "", R"x("training": {"lora": {"target_modules": ".*(q_proj|experts.*up_proj)"}}, )x"),
            "/training/lora/target_modules"}}) {
    CAPTURE(row.job);
    CHECK(refusal_of_mixture(row.job).find(std::string(row.pointer) + ":") == 0);
  }
  CHECK(refusal_of_mixture(job("mixtral", R"(, "router_jitter_noise": 0.0, "output_router_logits": false)")).empty());
  CHECK(refusal_of_mixture(job("gpt_oss", R"(, "quantization_config": {"quant_method": "mxfp4", "dequantize": true})"))
            .empty());
  CHECK(refusal_of_mixture(job("granitemoe", R"(, "output_router_logits": true)")).empty());
  CHECK(refusal_of_mixture(job("mixtral", "", R"("training": {"loop": "trl.SFTTrainer"}, )")).empty());
  const std::string attention = R"x("training": {"lora": {"target_modules": ".*self_attn.(q|v)_proj"}}, )x";
  CHECK(refusal_of_mixture(job("qwen2_moe", "", attention)).empty());
}

}  // namespace
}  // namespace oometer
