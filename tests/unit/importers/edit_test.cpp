#include "importers/edit.h"

#include <catch2/catch_test_macros.hpp>

#include "importers/question.h"

using nlohmann::json;
using namespace oometer::importers;

TEST_CASE("A key of YAML is changed where it stands, else added", "[importers][edit]") {
  SourceFile file{"train.yaml", {{"bf16", true}, {"stage", "sft"}}, "bf16: true  # as always\nstage: sft"};
  CHECK(apply(file, {"train.yaml", "bf16", false}));
  CHECK(apply(file, {"train.yaml", "optim", "adamw_8bit"}));
  CHECK(file.text == "bf16: false # as always\nstage: sft\noptim: adamw_8bit\n");
  CHECK(file.content == json({{"bf16", false}, {"stage", "sft"}, {"optim", "adamw_8bit"}}));
  CHECK(apply(file, {"train.yaml", "peft.dim", 8}));  // a group
  CHECK(file.content["peft"] == json({{"dim", 8}}));
  CHECK_FALSE(apply(file, {"train.yaml", "stage.of", 8}));
  CHECK(words_of(file, {"train.yaml", "optim", "adamw_8bit"}) == "optim: adamw_8bit");
}

TEST_CASE("A key of a group of YAML is changed where it stands, else put at its end", "[importers][edit]") {
  SourceFile file{"train.yaml", json::object(),
                  "model:\n    path: m  # mine\n    # later\n    config:\n        path: c\n\ndata: {a: 1}\noptim:\n"};
  const auto after = [&](const char* key, json value) {
    SourceFile changed = file;
    CHECK(apply(changed, {"train.yaml", key, std::move(value)}));
    return changed.text;
  };
  CHECK(after("model.path", "n") ==
        "model:\n    path: n # mine\n    # later\n    config:\n        path: c\n\ndata: {a: 1}\noptim:\n");
  CHECK(after("model.lora", 8) ==
        "model:\n    path: m  # mine\n    # later\n    config:\n        path: c\n    lora: 8\n\n"
        "data: {a: 1}\noptim:\n");
  CHECK(after("optim.lr", 1).ends_with("optim:\n  lr: 1\n"));
  CHECK(after("peft.dim", 8).ends_with("optim:\npeft:\n  dim: 8\n"));
  CHECK(after("data.a", 2) == file.text);  // in one line: no patch
}

TEST_CASE("A word of Hydra's is changed where it stands, else put before the others", "[importers][edit]") {
  SourceFile file{"run.sh", "torchrun -m verl.trainer.sft_trainer model.path=m +engine.strategy=fsdp\n", ""};
  CHECK(apply(file, {"run.sh", "engine.strategy", "fsdp2"}));
  CHECK(apply(file, {"run.sh", "model.use_liger", true}));
  CHECK(file.text == "torchrun -m verl.trainer.sft_trainer model.use_liger=true model.path=m +engine.strategy=fsdp2\n");
  CHECK(words_of(file, {"run.sh", "model.use_liger", true}) == "model.use_liger=true");
}

TEST_CASE("An option of a script is changed where it stands, else put before the others", "[importers][edit]") {
  SourceFile file{"run.sh", "trl sft --model_name_or_path m --max_length=4096 \\\n  --bf16\n", ""};
  CHECK(apply(file, {"run.sh", "max_length", 512}));
  CHECK(apply(file, {"run.sh", "bf16", false}));
  CHECK(apply(file, {"run.sh", "use_peft", true}));
  CHECK(file.text == "trl sft --use_peft true --model_name_or_path m --max_length=512 \\\n  --bf16 false\n");
  CHECK(words_of(file, {"run.sh", "use_peft", true}) == "--use_peft true");
  SourceFile other{"run.sh", "echo", ""};
  CHECK_FALSE(apply(other, {"run.sh", "use_peft", true}));
}

TEST_CASE("A patch is a unified diff", "[importers][edit]") {
  CHECK(patch_of("a", "1\n2\n", "1\n2\n").empty());
  CHECK(patch_of("a", "1\n2\n3\n4\n5\n6\n", "1\n2\n3\n4\nfive\n6\n7\n") ==
        "--- a\n+++ a\n@@ -2,5 +2,6 @@\n 2\n 3\n 4\n-5\n+five\n 6\n+7\n");
  CHECK(patch_of("a", "", "1\n") == "--- a\n+++ a\n@@ -0,0 +1,1 @@\n+1\n");
  CHECK(patch_of("a", "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n", "zero\n1\n2\n3\n4\n5\n6\n7\n8\nnine\n") ==
        "--- a\n+++ a\n@@ -1,4 +1,4 @@\n-0\n+zero\n 1\n 2\n 3\n@@ -7,4 +7,4 @@\n 6\n 7\n 8\n-9\n+nine\n");
}
