#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <string>

#include "jobs.h"

/// Families made from core/models/kit.
namespace oometer {
namespace {

TEST_CASE("Every preset of the kit has as many parameters as the published model", "[models]") {
  struct Row {
    const char* preset;
    std::int64_t parameters;
  };
  const Row row = GENERATE(
      Row{"gemma-3-270m", 268'098'176}, Row{"gemma-3-1b", 999'885'952}, Row{"phi-3-mini", 3'821'079'552},
      Row{"phi-3-medium", 13'960'238'080}, Row{"phi-4", 14'659'507'200}, Row{"olmo2-1b", 1'484'916'736},
      Row{"olmo2-13b", 13'716'198'400}, Row{"olmo2-32b", 32'234'279'936}, Row{"gemma-2-2b", 2'614'341'888},
      Row{"gemma-2-9b", 9'241'705'984}, Row{"gemma-2-27b", 27'227'128'320}, Row{"granite-3.3-2b", 2'533'539'840},
      Row{"granite-3.3-8b", 8'170'864'640}, Row{"gemma-2b", 2'506'172'416}, Row{"gemma-7b", 8'537'680'896},
      Row{"smollm3-3b", 3'075'098'624}, Row{"olmo-3-7b", 7'298'011'136}, Row{"olmo-3-32b", 32'233'522'176},
      Row{"glm-4-9b-0414", 9'400'279'040}, Row{"command-r7b", 8'028'033'024}, Row{"exaone-4.0-1.2b", 1'279'391'488},
      Row{"exaone-4.0-32b", 32'003'216'384}, Row{"glm-4-9b", 9'399'951'360}, Row{"starcoder2-3b", 3'030'371'328},
      Row{"starcoder2-7b", 7'173'923'840}, Row{"starcoder2-15b", 15'957'889'024}, Row{"aya-expanse-8b", 8'028'033'024},
      Row{"command-r", 34'980'831'232}, Row{"ernie-4.5-0.3b", 360'748'032}, Row{"seed-oss-36b", 36'151'104'512},
      Row{"helium-1-preview-2b", 2'172'643'840}, Row{"helium-1-2b", 2'023'868'416}, Row{"ministral-8b", 8'019'808'256},
      Row{"minitron-4b", 4'190'509'056}, Row{"minitron-8b", 8'271'699'968}, Row{"stablelm-2-1.6b", 1'644'515'328},
      Row{"stablelm-3b", 2'795'443'200}, Row{"phi-1.5", 1'418'270'720}, Row{"phi-2", 2'779'683'840},
      Row{"pythia-410m", 405'334'016}, Row{"pythia-1.4b", 1'414'647'808}, Row{"pythia-6.9b", 6'857'302'016},
      Row{"pythia-12b", 11'846'072'320}, Row{"gpt2", 124'439'808}, Row{"gpt2-medium", 354'823'168},
      Row{"gpt2-large", 774'030'080}, Row{"gpt2-xl", 1'557'611'200}, Row{"opt-125m", 125'239'296},
      Row{"opt-1.3b", 1'315'758'080}, Row{"opt-6.7b", 6'658'473'984}, Row{"apertus-8b", 8'053'338'176},
      Row{"gpt-j-6b", 6'050'882'784}, Row{"bloom-560m", 559'214'592}, Row{"bloom-7b1", 7'069'016'064},
      Row{"qwen3-next-80b-a3b", 79'674'391'296}, Row{"qwen3.5-27b-text", 26'895'998'464},
      Row{"qwen3.5-35b-a3b-text", 34'660'610'688}, Row{"lfm2-350m", 354'483'968}, Row{"lfm2-700m", 742'489'344},
      Row{"lfm2-1.2b", 1'170'340'608}, Row{"lfm2-8b-a1b", 8'339'929'856},
      Row{"nemotron-3-nano-30b-a3b", 31'577'937'344}, Row{"granite-4.0-h-tiny", 6'939'037'248});
  CAPTURE(row.preset);
  CHECK(simulation_of(std::string(R"({"model": {"preset": ")") + row.preset + R"("}})").parameters == row.parameters);
}

std::string tiny(const std::string& model_type, const std::string& more) {
  const auto usual = [&](const std::string& key, const char* value) {
    return more.find(key) == std::string::npos ? ", " + key + ": " + value : "";
  };
  return R"({"model": {"config": {"model_type": ")" + model_type + R"(", "hidden_size": 64, "intermediate_size": 176,
            "vocab_size": 512, "num_hidden_layers": 4)" +
         usual("\"num_attention_heads\"", "4") + usual("\"num_key_value_heads\"", "2") + more +
         R"(}}, "data": {"sequence_length": 64}})";
}

std::string refusal_of(const std::string& job) {
  const Result<Job> parsed = parse_job(job);
  return parsed ? "" : parsed.error().pointer + ": " + parsed.error().message;
}

TEST_CASE("Heads of a config's own class stand in place of lm_head", "[models]") {
  const auto simulated = [](const char* more) { return simulation_of(tiny("llama", more)).parameters; };
  const std::int64_t decoder = simulated("") - 512 * 64;
  CHECK(simulated(R"(, "architectures": ["LlamaForTokenClassification"], "num_labels": 5)") == decoder + 5 * 64 + 5);
  CHECK(simulated(R"(, "architectures": ["LlamaForSequenceClassification"], "num_labels": 5, "pad_token_id": 0)") ==
        decoder + 5 * 64);
}

TEST_CASE("Layers that training leaves out at random are counted, and said", "[models]") {
  const std::string usual = tiny("opt", R"(, "ffn_dim": 176, "word_embed_proj_dim": 64)");
  const std::string dropped = tiny("opt", R"(, "ffn_dim": 176, "word_embed_proj_dim": 64, "layerdrop": 0.1)");
  CHECK(estimate(job_of(dropped))->report.peak.allocated == estimate(job_of(usual))->report.peak.allocated);
  CHECK(job_of(usual).assumptions.size() + 1 == job_of(dropped).assumptions.size());
  CHECK(job_of(dropped).assumptions.back().find("/model/config/layerdrop") == 0);
}

TEST_CASE("A class without SDPA generates with eager attention", "[models]") {
  const auto job = [](const std::string& training) {
    return R"({"task": "inference", "model": {"config": {"model_type": "gptj", "n_embd": 64, "n_layer": 2, "n_head": 4,
              "rotary_dim": 8, "vocab_size": 512}}, "data": {"sequence_length": 64}, "training": {)" +
           training + "}}";
  };
  CHECK(job_of(job("")).training.attention == AttentionKind::eager);
  CHECK(refusal_of(job(R"("attention": "sdpa")")).find("/training/attention: found \"sdpa\"") == 0);
  CHECK(job_of(tiny("llama", R"(, "pad_token_id": 0)")).training.attention == AttentionKind::sdpa);
}

TEST_CASE("What a head cannot be asked is refused", "[models]") {
  CHECK(refusal_of(tiny("bert", R"(, "architectures": ["BertForQuestionAnswering"], "num_labels": 3)"))
            .find("/model/config/num_labels: found 3; expected 2") != std::string::npos);
  std::string all_linear = tiny("llama", R"(, "architectures": ["LlamaForTokenClassification"])");
  all_linear.back() = ',';
  all_linear += R"("training": {"lora": {"target_modules": "all-linear"}}})";
  CHECK(refusal_of(all_linear).find("it reaches score") != std::string::npos);
}

TEST_CASE("layer_types that the class would not take are refused", "[models]") {
  CHECK(refusal_of(tiny("gemma3_text", R"(, "head_dim": 16, "layer_types": ["full_attention"])"))
            .find("found 1 types for 4 layers") != std::string::npos);
  CHECK(refusal_of(tiny("gemma3_text", R"(, "head_dim": 16, "layer_types": ["full_attention", "full_attention",
                        "sliding_attention", "linear_attention"])"))
            .find("\"linear_attention\"") != std::string::npos);
  CHECK(refusal_of(tiny("gemma3_text", R"(, "head_dim": 16, "sliding_window": 0)")).find("sliding_window") !=
        std::string::npos);
  CHECK(refusal_of(tiny("gemma3_text", R"(, "head_dim": 16)")).empty());
}

TEST_CASE("Of layers with linear attention, a state space or a convolution, what is not supported is refused",
          "[models]") {
  struct Row {
    const char *model_type, *more, *says;
  };
  const Row row = GENERATE(
      Row{"qwen3_5_text", R"(, "layer_types": ["linear_attention"])", "found 1 types for 4 layers"},
      Row{"qwen3_5_text", R"(, "layer_types": ["linear_attention", "conv", "conv", "full_attention"])", "\"conv\""},
      Row{"qwen3_next", R"(, "linear_num_value_heads": 3, "linear_num_key_heads": 2)", "linear_num_value_heads"},
      Row{"lfm2_moe", "", "layer_types"}, Row{"bamba", R"(, "mamba_n_heads": 7)", "mamba_n_heads"},
      Row{"bamba", R"(, "mamba_n_heads": 8, "mamba_n_groups": 3)", "mamba_n_groups"},
      Row{"nemotron_h", R"(, "hybrid_override_pattern": "MX")", "\"X\""},
      Row{"granitemoehybrid", R"(, "mamba_n_heads": 8, "layer_types": ["mamba", "conv", "mamba", "mamba"])",
          "\"conv\""});
  CAPTURE(row.model_type, row.more);
  CHECK(refusal_of(tiny(row.model_type, row.more)).find(row.says) != std::string::npos);
  std::string inference = tiny("bamba", "");
  inference.insert(1, R"("task": "inference", )");
  CHECK(refusal_of(inference).find("BambaForCausalLM") != std::string::npos);
}

TEST_CASE("What a class itself could not build is refused", "[models]") {
  struct Row {
    const char *model_type, *more, *at;
  };
  const Row row = GENERATE(
      Row{"ministral", "", "/model/config/head_dim"},  // its attention takes no None
      Row{"ministral", R"(, "head_dim": 16, "sliding_window": null)", "/model/config/sliding_window"},  // nor its masks
      Row{"ministral3", R"(, "rope_parameters": {"rope_type": "default"})", "/model/config/rope_parameters"},
      Row{"helium", R"(, "head_dim": 32)", "/model/config/hidden_size"},  // o_proj is as wide as hidden_size
      Row{"nemotron", R"(, "num_attention_heads": 4, "num_key_value_heads": null)",
          "/model/config/num_key_value_heads"},
      Row{"stablelm", R"(, "num_attention_heads": 6)", "/model/config/hidden_size"},
      Row{"phi", R"(, "embd_pdrop": 0.1)", "/model/config/embd_pdrop"},
      Row{"gpt_neox", R"(, "num_attention_heads": 6)", "/model/config/hidden_size"},
      Row{"gpt2", R"(, "num_attention_heads": 6)", "/model/config/hidden_size"},
      Row{"gpt2", R"(, "add_cross_attention": true)", "/model/config/add_cross_attention"},
      Row{"gpt2", R"(, "n_positions": 32)", "/data/sequence_length"},  // one embedding for each position
      Row{"opt", R"(, "max_position_embeddings": 63)", "/data/sequence_length"},
      Row{"apertus", R"(, "hidden_act": "silu")", "/model/config/hidden_act"},
      Row{"gptj", R"(, "rotary_dim": 24)", "/model/config/rotary_dim"},
      Row{"bloom", R"(, "slow_but_exact": true)", "/model/config/slow_but_exact"},
      Row{"bloom", R"(, "num_attention_heads": 6)", "/model/config/hidden_size"});
  CAPTURE(row.model_type, row.more);
  CHECK(refusal_of(tiny(row.model_type, row.more)).find(row.at) == 0);
}

TEST_CASE("GPT-2's Conv1D takes the adapters that were compared alone", "[models]") {
  const std::string gpt2 = R"({"model": {"preset": "gpt2"}, "data": {"sequence_length": 64}, "training": )";
  CHECK(refusal_of(gpt2 + R"({"peft": {"peft_type": "LOHA"}}})").find("/training/peft") == 0);
  CHECK(refusal_of(gpt2 + R"({"lora": {}}})").empty());
  CHECK(refusal_of(gpt2 + R"({"ia3": {}}})").empty());
}

TEST_CASE("GPT-J has no SDPA, and its blocks' weights no reentrant checkpointing", "[models]") {
  const auto with = [](const char* training) {
    return R"({"model": {"config": {"model_type": "gptj", "n_embd": 64, "n_head": 4, "n_layer": 2, "rotary_dim": 8,
               "vocab_size": 512, "n_positions": 64}}, "data": {"sequence_length": 64}, "training": )" +
           std::string(training) + "}";
  };
  CHECK(refusal_of(with(R"({"attention": "sdpa"})")).find("/training/attention") == 0);
  CHECK(parse_job(with("{}"))->training.attention == AttentionKind::eager);
  const Simulation refused = simulation_of(with(R"({"activation_checkpointing": "reentrant"})"));
  REQUIRE(refused.refusal);
  CHECK(refused.refusal->pointer == "/training/activation_checkpointing");
  CHECK_FALSE(simulation_of(with(R"({"activation_checkpointing": "non-reentrant"})")).refusal);
}

TEST_CASE("An odd number of rotated elements is refused", "[models]") {
  CHECK(refusal_of(tiny("phi3", R"(, "partial_rotary_factor": 0.32)")).find("expected an even number") !=
        std::string::npos);
  CHECK(refusal_of(tiny("phi3", R"(, "rope_parameters": {"partial_rotary_factor": 0.5})")).empty());
}

TEST_CASE("Attention weights with a cap go without SDPA", "[models]") {
  const std::string capped = tiny("gemma3_text", R"(, "head_dim": 16, "attn_logit_softcapping": 50.0)");
  CHECK(parse_job(capped)->training.attention == AttentionKind::eager);  // as from_pretrained chooses
  CHECK(job_of(R"({"model": {"preset": "gemma-2-2b"}})").training.attention == AttentionKind::eager);
  std::string with_sdpa = capped;
  with_sdpa.insert(1, R"("training": {"attention": "sdpa"}, )");
  CHECK(refusal_of(with_sdpa).find("/training/attention") == 0);
}

TEST_CASE("Layers of two kinds are written where they repeat, and are what executing them gives", "[models]") {
  for (const char* types : {"6", "2", "3"}) {
    CAPTURE(types);
    const std::string job = R"({"model": {"config": {"model_type": "gemma3_text", "hidden_size": 64, "vocab_size": 512,
        "intermediate_size": 176, "num_hidden_layers": 29, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 16, "sliding_window": 24, "sliding_window_pattern": )" +
                            std::string(types) + R"(}}, "data": {"sequence_length": 64}})";
    const Result<Job> parsed = parse_job(job);
    REQUIRE(parsed);
    const Behaviours behaviours = resolve_behaviours(parsed->runtime);
    const Simulation written = simulate(*parsed, behaviours), executed = simulate(*parsed, behaviours, false);
    REQUIRE(written.log.events.size() == executed.log.events.size());
    std::size_t same = 0;
    for (std::size_t i = 0; i < written.log.events.size(); ++i)
      same += written.log.events[i].kind == executed.log.events[i].kind &&
              written.log.events[i].storage == executed.log.events[i].storage;
    CHECK(same == executed.log.events.size());
  }
}

}  // namespace
}  // namespace oometer
