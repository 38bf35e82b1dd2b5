#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <string>

#include "jobs.h"
#include "models/gemma4/config.h"

namespace oometer {
namespace {

/// The published totals (safetensors) less clip bounds, scales of layers and the like, which are buffers, and less the
/// keys and values of layers that share those of others, which transformers 5.23 does not load.
TEST_CASE("Gemma 4's presets have as many parameters as the published models", "[models][gemma4]") {
  struct Row {
    const char* preset;
    std::int64_t parameters;
  };
  const Row row =
      GENERATE(Row{"gemma-4-e2b", 5'104'297'504}, Row{"gemma-4-e4b", 7'941'100'832},
               Row{"gemma-4-31b", 31'273'088'876 - 60 - 2 * 1152},
               Row{"gemma-4-26b-a4b", 25'805'936'206 - 30 - 2 * 1152}, Row{"gemma-4-12b", 11'959'730'224 - 48});
  CAPTURE(row.preset);
  CHECK(simulation_of(std::string(R"({"model": {"preset": ")") + row.preset + R"("}})").parameters == row.parameters);
}

std::string gemma4_text(const std::string& more, const std::string& lora = "") {
  return R"({"model": {"config": {"model_type": "gemma4_text", "hidden_size": 64, "intermediate_size": 96,
             "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
             "vocab_size": 512, "vocab_size_per_layer_input": 512)" +
         more + R"(}}, "data": {"sequence_length": 64}, "training": {)" + lora + "}}";
}

std::string pointer_of(const std::string& job) {
  const Result<Job> parsed = parse_job(job);
  return parsed ? "" : parsed.error().pointer;
}

TEST_CASE("Gemma 4's heads of full attention are read as save_pretrained writes them", "[models][gemma4]") {
  // Of six layers the last one does not slide.
  const auto peak = [](const char* more) { return estimate(job_of(gemma4_text(more)))->report.peak.reserved; };
  const std::int64_t named = peak(R"(, "global_head_dim": 40)");
  CHECK(peak(R"(, "per_layer_config": {"5": {"head_dim": 40}})") == named);
  CHECK(peak(R"(, "per_layer_config": {"05": {"head_dim": 40, "num_key_value_heads": 2}})") == named);
  for (const char* wrong : {R"({"4": {"head_dim": 40}})", R"({"4": {"head_dim": 40}, "5": {"head_dim": 40}})", "{}",
                            "[]", R"({"9": {"head_dim": 40}})", R"({"x": {"head_dim": 40}})"})
    CHECK(pointer_of(gemma4_text(std::string(R"(, "per_layer_config": )") + wrong)) ==
          "/model/config/per_layer_config");
  CHECK(pointer_of(gemma4_text(R"(, "per_layer_config": {"5": {"head_dim": "x"}})")) ==
        "/model/config/per_layer_config/5/head_dim");
}

TEST_CASE("What Gemma 4's text model cannot be is refused by name", "[models][gemma4]") {
  CHECK(pointer_of(gemma4_text("")).empty());
  struct Row {
    const char *more, *key;
  };
  for (const Row& row :
       {Row{R"(, "use_bidirectional_attention": "all")", "use_bidirectional_attention"},
        Row{R"(, "global_head_dim": 33)", "global_head_dim"},
        Row{R"(, "attention_k_eq_v": true, "num_global_key_value_heads": 3)", "num_global_key_value_heads"},
        Row{R"(, "num_kv_shared_layers": 2)", "num_kv_shared_layers"},  // none of them has keys for the last layer
        Row{R"(, "num_kv_shared_layers": 1, "hidden_size_per_layer_input": 0)", "num_kv_shared_layers"},
        Row{R"(, "enable_moe_block": true)", "num_experts"},
        Row{R"(, "enable_moe_block": true, "num_experts": 2, "top_k_experts": 3, "moe_intermediate_size": 8)",
            "top_k_experts"},
        Row{R"(, "layer_types": ["full_attention"])", "layer_types"}}) {
    CAPTURE(row.more);
    CHECK(pointer_of(gemma4_text(row.more)) == std::string("/model/config/") + row.key);
  }
}

TEST_CASE("peft cannot adapt the layers of Gemma 4's towers by their names", "[models][gemma4]") {
  const auto job = [](const std::string& targets) {
    return R"({"model": {"preset": "gemma-4-e2b"}, "training": {"lora": {"rank": 8, "target_modules": )" + targets +
           "}}}";
  };
  CHECK(pointer_of(job(R"(["q_proj", "v_proj"])")) == "/training/lora/target_modules");
  CHECK(pointer_of(job(R"--(".*\\.(q_proj|v_proj)")--")) == "/training/lora/target_modules");
  CHECK(pointer_of(job(R"--(".*language_model.*\\.(q_proj|v_proj)")--")).empty());
  CHECK(pointer_of(job(R"("all-linear")")).empty());
}

TEST_CASE("A picture keeps its shape in Gemma 4's patches", "[models][gemma4]") {
  Gemma4Config config;
  config.vision.emplace();
  using Patches = std::pair<std::int64_t, std::int64_t>;
  CHECK(gemma4_patches(672, 960, config) == Patches{42, 60});
  CHECK(gemma4_patches(1000, 1000, config) == Patches{48, 48});
  CHECK(gemma4_patches(10, 4000, config) == Patches{3, 840});  // no higher than a token
  CHECK(gemma4_patches(1, 1, config) == Patches{48, 48});
}

}  // namespace
}  // namespace oometer
