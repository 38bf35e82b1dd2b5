#include "importers/import.h"

#include <catch2/catch_test_macros.hpp>

#include "importers/question.h"
#include "job/parse.h"

using nlohmann::json;
using namespace oometer;
using namespace oometer::importers;

namespace {

const char* const kFactory = R"({"model_name_or_path": "Qwen/Qwen3-0.6B", "stage": "sft", "finetuning_type": "full",
                                 "bf16": true, "cutoff_len": 512, "deepspeed": "examples/deepspeed/ds_z2.json"})";
const char* const kZero2 = R"({"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
                               "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2}})";
const char* const kAccelerate = R"({"distributed_type": "DEEPSPEED", "num_processes": 8, "mixed_precision": "bf16",
                                    "deepspeed_config": {"zero_stage": 3, "zero3_init_flag": true}})";

}  // namespace

TEST_CASE("a file that a key names is asked for, and taken when it is given", "[importers]") {
  const Ledger alone = ask({file_of("train.yaml", kFactory)}, 4);
  REQUIRE(alone.missing.size() == 1);
  CHECK(alone.missing[0].kind == "file");
  CHECK(alone.missing[0].name == "examples/deepspeed/ds_z2.json");
  CHECK(alone.missing[0].key == "deepspeed");
  const Ledger both = ask({file_of("train.yaml", kFactory), file_of("ds_z2.json", kZero2)}, 4);
  INFO(to_json(both));
  CHECK(both.missing.empty());
  CHECK_FALSE(both.refused);
  CHECK(at(both, "/parallel/strategy") == "deepspeed");
  CHECK(at(both, "/parallel/data") == 4);
  CHECK(at(both, "/training/precision") == "bf16");  // the engine keeps the weights in half precision
  CHECK(taken_at(both, "/parallel/ds_config")->key == "deepspeed");
  const Result<Job> job = parse_job(both.job.dump());
  REQUIRE(job);
  CHECK(job->parallel.world_size() == 4);
  const Ledger uncounted = ask({file_of("train.yaml", kFactory), file_of("ds_z2.json", kZero2)});
  REQUIRE(uncounted.missing.size() == 1);
  CHECK(uncounted.missing[0].kind == "gpus");
}

TEST_CASE("an argument that contradicts another is refused by its own name", "[importers]") {
  const Ledger batches = ask({file_of("train.yaml", kFactory), file_of("ds_z2.json", R"({
      "train_micro_batch_size_per_gpu": 3, "zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}})")},
                             4);
  REQUIRE(batches.refused);
  CHECK(batches.refused->key == "deepspeed");
  CHECK(batches.refused->file == "train.yaml");
  CHECK(batches.refused->pointer == "/parallel/ds_config/train_micro_batch_size_per_gpu");
  const Ledger strategies = ask({file_of("train.yaml", kFactory), file_of("ds_z2.json", kZero2),
                                 file_of("acc.yaml", R"({"distributed_type": "FSDP", "num_processes": 2})")});
  REQUIRE(strategies.refused);
  CHECK(strategies.refused->key == "deepspeed");
}

TEST_CASE("accelerate's file and options say how many GPUs and which strategy", "[importers]") {
  const std::string line =
      "accelerate launch --config_file zero3.yaml --num_processes 4 run.py "
      "--model_name_or_path Qwen/Qwen3-0.6B --per_device_train_batch_size 1 --bf16 "
      "--deepspeed= ";
  const Ledger ledger = ask({file_of("run.sh",
                                     "accelerate launch --config_file zero3.yaml --num_processes 4 run.py "
                                     "--model_name_or_path Qwen/Qwen3-0.6B --bf16 True "
                                     "--per_device_train_batch_size 1"),
                             file_of("zero3.yaml", kAccelerate)});
  INFO(to_json(ledger));
  CHECK_FALSE(ledger.refused);
  CHECK(at(ledger, "/parallel/accelerate_config/num_processes") == 4);
  const Result<Job> job = parse_job(ledger.job.dump());
  REQUIRE(job);
  CHECK(job->parallel.strategy == Strategy::deepspeed);
  CHECK(job->parallel.world_size() == 4);
  const Ledger asks = ask({file_of("run.sh", line)});
  REQUIRE_FALSE(asks.missing.empty());
  CHECK(asks.missing[0].name == "zero3.yaml");
}

TEST_CASE("launchers count processes", "[importers]") {
  const auto gpus = [](const std::string& line) {
    const Ledger ledger = ask({file_of("run.sh", line)});
    INFO(to_json(ledger));
    return at(ledger, "/parallel/data");
  };
  const std::string program = " train.py --model_name_or_path Qwen/Qwen3-0.6B --per_device_train_batch_size 1";
  CHECK(gpus("torchrun --nproc_per_node=4 --nnodes 2 --master_port 1234" + program) == 8);
  CHECK(gpus("python -m torch.distributed.run --nproc-per-node 2" + program) == 2);
  CHECK(gpus("CUDA_VISIBLE_DEVICES=0,1,2 torchrun --nproc_per_node gpu" + program) == 3);
  CHECK(gpus("deepspeed --num_gpus 4" + program) == 4);
  CHECK(gpus("deepspeed --include localhost:0,1,5 --master_port 1" + program) == 3);
  CHECK(gpus("accelerate launch --num_processes 2 --multi_gpu --mixed_precision bf16" + program) == 2);
  CHECK(gpus("python -u" + program) == "absent");
  const Ledger ddp = ask({file_of("run.sh", "torchrun --nproc_per_node 4" + program)});
  CHECK(at(ddp, "/parallel/strategy") == "ddp");
  CHECK(taken_at(ddp, "/parallel/data")->key == "nproc_per_node");
}

TEST_CASE("variables that a script does not set are asked for", "[importers]") {
  const Ledger ledger = ask({file_of("run.sh",
                                     "L=2048\ntrl sft --model_name_or_path $MODEL --dataset_name a/b \\\n"
                                     "  --max_length $L --output_dir out-$(date +%s)")});
  REQUIRE(ledger.missing.size() >= 2);
  CHECK(ledger.missing[0].kind == "variable");
  CHECK(ledger.missing[0].name == "MODEL");
  CHECK(ledger.missing[1].name == "$(date +%s)");
  CHECK(at(ledger, "/training/loop/args/max_length") == 2048);
}

TEST_CASE("a key whose variable nobody sets has its default", "[importers]") {
  const Ledger ledger = ask({file_of("run.sh",
                                     "trl sft --model_name_or_path Qwen/Qwen3-0.6B --dataset_name a/b "
                                     "--per_device_train_batch_size $N --max_length=${L} --bf16 $(bf16) --seed 1")});
  CHECK(ledger.missing.size() == 3);
  CHECK(at(ledger, "/data/micro_batch_size") == 8);
  CHECK(taken_at(ledger, "/data/micro_batch_size")->is_default);
  CHECK(at(ledger, "/training/loop/args/max_length") == 1024);
  CHECK(at(ledger, "/training/precision") == "amp-bf16");
  CHECK_FALSE(ledger.refused);
}

TEST_CASE("a command's own file is read, and its words go over it", "[importers]") {
  const Ledger ledger = ask({file_of("run.sh",
                                     "FORCE_TORCHRUN=1 NPROC_PER_NODE=2 llamafactory-cli train a/b/train.yaml "
                                     "cutoff_len=1024 learning_rate=1e-5"),
                             file_of("train.yaml", R"({"model_name_or_path": "Qwen/Qwen3-0.6B", "stage": "sft",
                                                       "cutoff_len": 512, "bf16": true})")});
  INFO(to_json(ledger));
  CHECK(at(ledger, "/data/sequence_length") == 1024);
  CHECK(taken_at(ledger, "/data/sequence_length")->file == "run.sh");
  CHECK(taken_at(ledger, "/training/precision/autocast")->file == "train.yaml");
  CHECK(at(ledger, "/parallel/data") == 2);
  CHECK_FALSE(ledger.refused);
  const Ledger script = ask({file_of("run.sh", "torchrun --nproc_per_node 2 src/train.py train.yaml"),
                             file_of("train.yaml", R"({"model_name_or_path": "Qwen/Qwen3-0.6B", "stage": "sft",
                                                       "finetuning_type": "full", "bf16": true})")});
  CHECK(script.trainer == "llamafactory 0.9.5");
  CHECK(at(script, "/parallel/data") == 2);
  CHECK_FALSE(script.refused);
  const Ledger prepared = ask({file_of("run.sh", "axolotl preprocess c.yaml\naxolotl train c.yaml"),
                               file_of("c.yaml", R"({"base_model": "Qwen/Qwen3-0.6B"})")});
  CHECK(left_out(prepared, "train") == nullptr);  // one training
  CHECK_FALSE(prepared.refused);
  const Ledger alone = ask({file_of("run.sh", "axolotl train c.yaml")});
  REQUIRE(alone.missing.size() == 1);
  CHECK(alone.missing[0].name == "c.yaml");
}

TEST_CASE("models are found by their names, else their config is asked for", "[importers]") {
  const auto ask_model = [](const std::string& name) { return ask_one(R"({"base_model": ")" + name + R"("})"); };
  CHECK(at(ask_model("Qwen/Qwen3-8B"), "/model/preset") == "qwen3-8b");
  CHECK(at(ask_model("meta-llama/Llama-3.1-8B"), "/model/config/model_type") == "llama");
  const Ledger open = ask_model("NousResearch/Llama-3.2-1B");  // a copy that is known
  CHECK(at(open, "/model/config/model_type") == "llama");
  CHECK(left_out(open, "base_model") == nullptr);
  const Ledger mirror = ask_model("someone/Llama-3.2-1B");
  CHECK(at(mirror, "/model/config/model_type") == "llama");
  REQUIRE(left_out(mirror, "base_model") != nullptr);
  CHECK(left_out(mirror, "base_model")->text.find("meta-llama/Llama-3.2-1B") != std::string::npos);
  const Ledger own = ask_model("me/my-model");
  REQUIRE(own.missing.size() == 1);
  CHECK(own.missing[0].kind == "config.json");
  CHECK(own.missing[0].name == "me/my-model");
  CHECK(at(own, "/data/sequence_length") == 512);  // what could be read is there
  const Ledger unknown = ask({file_of("a.yaml", R"({"base_model": "me/my-model"})"),
                              file_of("config.json", R"({"model_type": "no_family", "hidden_size": 64})")});
  REQUIRE(unknown.refused);
  CHECK(unknown.refused->pointer.starts_with("/model"));
  CHECK(unknown.refused->key == "model_type");
}

TEST_CASE("what is no trainer's file is said to be none", "[importers]") {
  CHECK(ask_one("{}").refused);
  CHECK(ask_one("echo hello").refused);
  CHECK(ask_one("[1, 2]").refused);
  CHECK(ask({}).refused);
  const Ledger other = ask_one(R"({"actor_rollout_ref": {}, "data": {}})");
  REQUIRE(other.refused);
  CHECK(other.refused->message.find("verl") != std::string::npos);
  const Ledger half = ask({file_of("ds.json", kZero2)});
  CHECK_FALSE(half.missing.empty());
  const Ledger two = ask({file_of("a.yaml", kFactory), file_of("b.yaml", R"({"base_model": "Qwen/Qwen3-8B"})")});
  REQUIRE(two.refused);
  CHECK(two.refused->message.find("both a.yaml and b.yaml") != std::string::npos);
  const Ledger scripts = ask({file_of("run.sh", "axolotl train a.yaml\naxolotl train b.yaml"),
                              file_of("a.yaml", R"({"base_model": "Qwen/Qwen3-8B"})")});
  CHECK(scripts.unmodelled[0].text.find("line 2 starts another training") != std::string::npos);
}

TEST_CASE("values of any type are read without harm", "[importers]") {
  // Whole, the hub's list is most of the time that a question takes.
  json models = json::array();
  for (const json& model : hub())
    if (model["id"] == "Qwen/Qwen3-0.6B" || model["id"] == "Qwen/Qwen2.5-VL-3B-Instruct") models.push_back(model);
  REQUIRE(models.size() == 2);
  const char* values[] = {"null",
                          "true",
                          "-1",
                          "1e300",
                          "\"\"",
                          "\"x\"",
                          "[]",
                          "[1, \"a\", null]",
                          "{}",
                          R"({"a": {"b": [1]}})",
                          "9223372036854775807",
                          "18446744073709551615"};
  const char* keys[] = {"model_name_or_path",
                        "stage",
                        "finetuning_type",
                        "cutoff_len",
                        "per_device_train_batch_size",
                        "bf16",
                        "fp16",
                        "lora_target",
                        "lora_rank",
                        "quantization_bit",
                        "deepspeed",
                        "fsdp",
                        "fsdp_config",
                        "optim",
                        "gradient_checkpointing_kwargs",
                        "eval_strategy",
                        "neat_packing"};
  // Each key meets a third of the values, and each value a third of the keys: what reads them is the same.
  auto a_third = [turn = std::size_t{0}](std::span<const char* const> all) mutable {
    std::vector<const char*> its;
    for (std::size_t i = turn++ % 3; i < all.size(); i += 3) its.push_back(all[i]);
    return its;
  };
  for (const char* key : keys)
    for (const char* value : a_third(values)) {
      json tree = *parse_json(kFactory);
      tree[key] = *parse_json(value);
      const std::string answer =
          import_json(json({{"files", {{{"name", "a"}, {"content", tree}}}}, {"hub", models}}).dump());
      CHECK(parse_json(answer).has_value());
    }
  const char* axolotl[] = {"base_model",
                           "sequence_len",
                           "micro_batch_size",
                           "batch_size",
                           "bf16",
                           "sample_packing",
                           "adapter",
                           "load_in_4bit",
                           "bnb_config_kwargs",
                           "lora_target_modules",
                           "plugins",
                           "rl",
                           "gradient_checkpointing",
                           "val_set_size",
                           "fsdp_version",
                           "fsdp_config",
                           "optimizer",
                           "liger_rope",
                           "cut_cross_entropy",
                           "attn_implementation",
                           "deepspeed",
                           "test_datasets"};
  for (const char* key : axolotl)
    for (const char* value : a_third(values)) {
      json tree = {{"base_model", "Qwen/Qwen3-0.6B"},
                   {"adapter", "qlora"},
                   {"load_in_4bit", true},
                   {"lora_r", 8},
                   {"sample_packing", true},
                   {"plugins", {"axolotl.integrations.liger.LigerPlugin"}}};
      tree[key] = *parse_json(value);
      CHECK(parse_json(import_json(json({{"files", {{{"name", "a"}, {"content", tree}}}}, {"hub", models}}).dump()))
                .has_value());
    }
  // Numbers that do not fit.
  const std::string most = "9223372036854775807";
  for (const std::string& line :
       {"NPROC_PER_NODE=" + most + " swift sft --model Qwen/Qwen3-0.6B --per_device_train_batch_size " + most,
        "llamafactory-cli train model_name_or_path=Qwen/Qwen3-0.6B neat_packing=true cutoff_len=" + most +
            " lora_rank=" + most + " per_device_train_batch_size=" + most,
        "torchrun --nproc_per_node " + most + " train.py --model_name_or_path Qwen/Qwen3-0.6B --num_train_epochs " +
            most})
    CHECK(parse_json(to_json(ask({file_of("run.sh", line)}))).has_value());
  const char* swift[] = {"model",
                         "tuner_type",
                         "max_length",
                         "torch_dtype",
                         "bf16",
                         "target_modules",
                         "quant_method",
                         "quant_bits",
                         "deepspeed",
                         "freeze_vit",
                         "max_pixels",
                         "per_device_train_batch_size",
                         "gradient_accumulation_steps",
                         "attn_impl",
                         "lora_bias",
                         "rlhf_type"};
  for (const char* key : swift)
    for (const char* value : a_third(values)) {
      json tree = {{"model", "Qwen/Qwen2.5-VL-3B-Instruct"}, {"tuner_type", "full"}, {"attn_impl", "sdpa"}};
      tree[key] = *parse_json(value);
      CHECK(parse_json(import_json(json({{"files", {{{"name", "a"}, {"content", tree}}}}, {"hub", models}}).dump()))
                .has_value());
    }
  const char* accelerate[] = {"distributed_type", "num_processes", "mixed_precision", "fsdp_config",
                              "deepspeed_config"};
  for (const char* key : accelerate)
    for (const char* value : a_third(values)) {
      json config = *parse_json(kAccelerate), tree = *parse_json(kFactory);
      tree.erase("deepspeed");
      config[key] = *parse_json(value);
      const json files = {{{"name", "a"}, {"content", tree}}, {{"name", "b"}, {"content", config}}};
      CHECK(parse_json(import_json(json({{"files", files}, {"hub", models}}).dump())).has_value());
    }
  for (const char* text : {"", "[", "{}", R"({"files": 1})", R"({"files": [1]})", R"({"files": []})"})
    CHECK(parse_json(import_json(text)).has_value());
}

TEST_CASE("The allocator's settings are the script's, or else those of the trainer's command", "[importers][shell]") {
  const auto expands = [](const Ledger& ledger) {
    const json::json_pointer place("/runtime/expandable_segments");
    return ledger.job.contains(place) && ledger.job[place] == true;
  };
  const std::string axolotl = R"({"base_model": "Qwen/Qwen3-0.6B", "sequence_len": 64})";
  const std::string factory = R"({"model_name_or_path": "Qwen/Qwen3-0.6B", "stage": "sft", "template": "qwen3"})";
  CHECK(expands(ask({file_of("a.yaml", axolotl)})));
  CHECK_FALSE(expands(ask({file_of("a.yaml", axolotl), {"a.sh", "accelerate launch -m axolotl.cli.train a.yaml"}})));
  const Ledger other = ask({file_of("a.yaml", axolotl),
                            {"a.sh", "export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64\naxolotl train a.yaml"}});
  CHECK_FALSE(expands(other));
  CHECK(left_out(other, "PYTORCH_CUDA_ALLOC_CONF") != nullptr);
  CHECK_FALSE(expands(ask({file_of("f.yaml", factory)})));
  CHECK(expands(ask({file_of("f.yaml", factory)}, 2)));
  CHECK(expands(ask({{"t.sh",
                      "PYTORCH_ALLOC_CONF=expandable_segments:True trl sft --model_name_or_path "
                      "Qwen/Qwen3-0.6B --max_length 64"}})));
}
