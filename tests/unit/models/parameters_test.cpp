#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "jobs.h"

namespace oometer {
namespace {

TEST_CASE("Every preset has as many parameters as the published model", "[models]") {
  struct Row {
    const char* preset;
    std::int64_t parameters;
  };
  const Row row = GENERATE(
      Row{"llava-1.5-7b", 7'063'427'072}, Row{"llava-1.5-13b", 13'351'494'656}, Row{"vicuna-7b-v1.5", 6'738'415'616},
      Row{"vicuna-13b-v1.5", 13'015'864'320}, Row{"llama-2-7b", 6'738'415'616}, Row{"llama-3-8b", 8'030'261'248},
      Row{"qwen2.5-7b", 7'615'616'512}, Row{"qwen3-0.6b", 596'049'920}, Row{"qwen3-8b", 8'190'735'360},
      Row{"qwen3-14b", 14'768'307'200}, Row{"qwen3-32b", 32'762'123'264}, Row{"qwen2-vl-2b", 2'208'985'600},
      Row{"qwen2-vl-7b", 8'291'375'616}, Row{"qwen2.5-vl-3b", 3'754'622'976}, Row{"qwen2.5-vl-7b", 8'292'166'656},
      Row{"qwen2.5-vl-72b", 73'410'777'344}, Row{"clip-vit-l-14", 427'616'513}, Row{"clip-vit-l-14-336", 427'944'193},
      Row{"smolvlm-256m", 256'484'928}, Row{"smolvlm-500m", 507'482'304}, Row{"smolvlm-2.2b", 2'246'272'880},
      Row{"idefics3-8b", 8'462'086'384}, Row{"llava-v1.6-vicuna-7b", 7'063'431'168},
      Row{"llava-v1.6-mistral-7b", 7'566'747'648}, Row{"deepseek-v2-lite", 15'706'484'224},
      Row{"qwen3-vl-2b", 2'127'532'032}, Row{"qwen3-vl-4b", 4'437'815'808}, Row{"qwen3-vl-8b", 8'767'123'696},
      Row{"qwen3-vl-32b", 33'357'390'064}, Row{"qwen3-vl-30b-a3b", 31'070'754'032},
      // Qwen3.5: the checkpoints' published totals less their head of more tokens, which transformers does not load.
      Row{"qwen3.5-0.8b", 873'438'784 - 20'452'864}, Row{"qwen3.5-2b", 2'274'069'824 - 60'828'160},
      Row{"qwen3.5-4b", 4'659'865'088 - 120'599'552}, Row{"qwen3.5-9b", 9'653'104'368 - 243'290'624},
      Row{"qwen3.5-27b", 27'781'427'952 - 424'699'392}, Row{"qwen3-vl-235b-a22b", 235'670'022'896},
      Row{"gemma-3-4b", 4'300'079'472}, Row{"gemma-3-12b", 12'187'325'040}, Row{"gemma-3-27b", 27'432'406'640},
      Row{"internvl3-1b", 938'193'024}, Row{"internvl3-2b", 2'088'957'440}, Row{"internvl3-8b", 7'944'373'760},
      Row{"internvl3-14b", 15'117'256'704}, Row{"internvl3.5-4b", 4'732'489'216}, Row{"internvl3.5-8b", 8'528'318'464},
      Row{"mistral-small-3.1-24b", 24'011'361'280}, Row{"gemma-3n-e2b", 5'418'464'192},
      Row{"gemma-3n-e4b", 7'818'517'072}, Row{"video-llava-7b", 7'366'279'168},
      Row{"mistral-large-4", 1'051'822'421'504});
  const Simulation s = simulation_of(std::string(R"({"model": {"preset": ")") + row.preset + R"("}})");
  CAPTURE(row.preset);
  CHECK(s.parameters == row.parameters);
  CHECK(s.trainable == row.parameters);
}

TEST_CASE("LLaVA's stages train what the paper says", "[models]") {
  const auto trainable = [](const std::string& stage) {
    return simulation_of(R"({"model": {"preset": "llava-1.5-7b"}, "training": {"stage": ")" + stage + R"("}})")
        .trainable;
  };
  constexpr std::int64_t kProjector = 1024 * 4096 + 4096 + 4096 * 4096 + 4096, kTower = 303'507'456;
  CHECK(trainable("pretrain") == kProjector);
  CHECK(trainable("finetune") == 7'063'427'072 - kTower);
  CHECK(trainable("full") == 7'063'427'072);
}

TEST_CASE("Tied embeddings are one parameter", "[models]") {
  const auto parameters = [](const std::string& tie) {
    return simulation_of(
               R"({"model": {"config": {"model_type": "llama", "hidden_size": 64, "intermediate_size": 176, "vocab_size": 512,
                  "num_hidden_layers": 2, "num_attention_heads": 4, "tie_word_embeddings": )" +
               tie + "}}}")
        .parameters;
  };
  CHECK(parameters("false") - parameters("true") == 512 * 64);
}

TEST_CASE("Modules carry Hugging Face's names", "[models]") {
  const Log log = run_log(tiny_llava());
  std::vector<std::string> paths;
  for (ModuleId i = 0; i < log.modules.size(); ++i) paths.push_back(module_path(log, i));
  for (const char* path : {"model.vision_tower.encoder.layers.2.self_attn.q_proj", "model.vision_tower.pre_layrnorm",
                           "model.multi_modal_projector.linear_1", "model.language_model.layers.1.mlp.down_proj",
                           "model.language_model.embed_tokens", "lm_head"}) {
    CAPTURE(path);
    CHECK(std::find(paths.begin(), paths.end(), path) != paths.end());
  }
}

TEST_CASE("Samples without images leave the tower alone", "[models]") {
  const Log log = run_log(tiny_llava(R"("precision": "bf16")", "",
                                     R"("micro_batch_size": 2, "sequence_length": 64, "images_per_sample": 0)"));
  const auto first = log.phases[1].first_event;
  for (std::size_t e = first; e < log.events.size(); ++e) {
    const Event& event = log.events[e];
    if (event.kind == EventKind::alloc)
      CHECK(module_path(log, log.storages[event.storage].module).find("vision_tower") == std::string::npos);
  }
}

}  // namespace
}  // namespace oometer
