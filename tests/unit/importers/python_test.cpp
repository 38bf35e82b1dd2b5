#include "importers/python.h"

#include <catch2/catch_test_macros.hpp>

#include "importers/question.h"

using nlohmann::json;
using namespace oometer::importers;

TEST_CASE("Calls of a script are read with their literals", "[importers][python]") {
  const std::vector<PythonCall> calls = read_python(R"py(
import torch  # a comment with f(x)
SIZE = 8
"""f(0)"""
def f(x): return g(x)
a = trl.SFTConfig(output_dir="x", n=SIZE, rate=2e-5, steps=1_000, more=SIZE * 2, kinds=["a", 'b'], deep=h(1), dtype=torch.bfloat16,
                  options={"use_reentrant": False}, none=None,)
)py");
  REQUIRE(calls.size() == 3);
  CHECK(calls[0].name == "g");
  CHECK(calls[1].name == "h");
  const PythonCall& config = calls[2];
  CHECK(config.name == "trl.SFTConfig");
  CHECK(config.line == 6);
  CHECK(config.named == json({{"output_dir", "x"},
                              {"n", 8},
                              {"rate", 2e-5},
                              {"steps", 1000},
                              {"kinds", {"a", "b"}},
                              {"dtype", "bfloat16"},
                              {"options", {{"use_reentrant", false}}},
                              {"none", nullptr}}));
  CHECK(config.unknown == std::vector<std::string>{"more", "deep"});
}

TEST_CASE("A script of TRL is its command's keys, with peft's own defaults", "[importers][python]") {
  const Ledger ledger = ask({{"train.py", R"py(
from trl import SFTConfig, SFTTrainer
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-0.6B", dtype=torch.bfloat16)
lora = LoraConfig(r=16, target_modules="all-linear")
for epoch in range(3):
    print(epoch)
args = SFTConfig(output_dir="out", per_device_train_batch_size=2, max_length=512, gradient_checkpointing=False)
trainer = SFTTrainer(model, args=args, train_dataset=load_dataset("x"), peft_config=lora)
)py"}});
  INFO(to_json(ledger));
  CHECK_FALSE(ledger.refused);
  CHECK(at(ledger, "/training/loop/name") == "trl.SFTTrainer");
  CHECK(at(ledger, "/model/preset") == "qwen3-0.6b");
  CHECK(at(ledger, "/data/micro_batch_size") == 2);
  CHECK(at(ledger, "/training/precision/weights") == "bf16");
  CHECK(at(ledger, "/training/lora/rank") == 16);
  CHECK(at(ledger, "/training/lora/alpha") == 8);
  CHECK(at(ledger, "/training/lora/dropout") == 0.0);
  CHECK(ledger.missing.empty());
}

TEST_CASE("A script quantizes with bitsandbytes' own defaults, for either trainer", "[importers][python]") {
  const std::string model = R"py(
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
bnb = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-0.6B", quantization_config=bnb, dtype=torch.bfloat16)
)py";
  const Ledger sft = ask({{"a.py", model + "args = SFTConfig(max_length=512, bf16=True)\n"
                                           "SFTTrainer(model, args, peft_config=LoraConfig(r=4))\n"}});
  INFO(to_json(sft));
  CHECK_FALSE(sft.refused);
  CHECK(at(sft, "/training/quantization") == json({{"load_in_4bit", true},
                                                   {"bnb_4bit_quant_type", "nf4"},
                                                   {"bnb_4bit_use_double_quant", false},
                                                   {"bnb_4bit_compute_dtype", "bfloat16"},
                                                   {"prepare_model_for_kbit_training", false}}));
  CHECK(at(sft, "/training/lora/autocast_adapter_dtype") == false);
  const Ledger trainer = ask({{"a.py", model + "model = prepare_model_for_kbit_training(model)\n"
                                               "model = get_peft_model(model, LoraConfig(r=4))\n"
                                               "args = TrainingArguments(output_dir=f'{name}', bf16=True)\n"
                                               "Trainer(model, args)\n"}});
  INFO(to_json(trainer));
  CHECK_FALSE(trainer.refused);
  CHECK(trainer.missing.empty());  // what only a run knows of a key without effect is not asked for
  CHECK(at(trainer, "/training/loop/name") == "transformers.Trainer");
  CHECK(at(trainer, "/training/quantization/prepare_model_for_kbit_training") == true);
  CHECK(at(trainer, "/training/lora/rank") == 4);
  CHECK_FALSE(trainer.job.contains("/training/lora/autocast_adapter_dtype"_json_pointer));
}

TEST_CASE("Cells of a notebook are a script, their outputs are not", "[importers][python]") {
  const json notebook = {
      {"nbformat", 4},
      {"cells",
       {{{"cell_type", "markdown"}, {"source", "TrainingArguments(bf16=False)"}},
        {{"cell_type", "code"},
         {"source", {"!pip install trl\n", "args = TrainingArguments(per_device_train_batch_size=batch, bf16=True)\n"}},
         {"outputs", {{{"text", "TrainingArguments(bf16=False)"}}}}},
        {{"cell_type", "code"}, {"source", "m = AutoModelForCausalLM.from_pretrained('Qwen/Qwen3-0.6B')"}}}}};
  const Ledger ledger = ask({{"train.ipynb", notebook}});
  INFO(to_json(ledger));
  CHECK(ledger.trainer.starts_with("transformers"));
  CHECK(at(ledger, "/training/precision/autocast") == "bf16");
  REQUIRE(!ledger.missing.empty());  // what only a run knows
  CHECK(ledger.missing.back().name == "per_device_train_batch_size");
  CHECK(ledger.missing.back().text.starts_with("line 1 gives TrainingArguments"));
}

TEST_CASE("A script that is not understood says so with its line", "[importers][python]") {
  const auto refused = [](const std::string& more) {
    const Ledger ledger = ask({{"a.py", "import trl\nargs = SFTConfig()\n" + more}});
    return ledger.refused ? ledger.refused->message : "";
  };
  const Ledger two = ask({{"a.py", "import trl\nargs = SFTConfig(max_length=64)\nmore = SFTConfig(max_length=128)"}});
  CHECK(at(two, "/training/loop/args/max_length") == 64);  // the first one is answered
  REQUIRE(!two.unmodelled.empty());
  CHECK(two.unmodelled.back().text.find("line 3 starts another training") == 0);
  CHECK(refused("m = FastLanguageModel.from_pretrained('x')").find("training of whole models by Unsloth") == 0);
  CHECK(refused("c = BitsAndBytesConfig(load_in_4bit=True)").find("quantized weights cannot be trained") == 0);
  CHECK(ask({{"a.py", "import trl\nprint(1)\n"}}).refused);
  for (const char* broken :
       {"f(", "f((((", "f(a=[1", "f(a={1:", "f('", "f(\"\"\"", "x = ", "f(a=b=c)", "f(*a, **b)", "f(])"})
    read_python(broken);
  read_python(std::string(100'000, '('));
  read_python("x = " + std::string(100'000, '['));
  std::string deep;
  for (int i = 0; i < 10'000; ++i) deep += "f(";
  read_python(deep);
}

TEST_CASE("A notebook of Unsloth is QLoRA with its defaults, and says what its kernels save", "[importers][unsloth]") {
  const std::string script = R"py(
from unsloth import FastLanguageModel, is_bfloat16_supported
max_seq_length = 1024 # Choose any!
model, tokenizer = FastLanguageModel.from_pretrained(
    model_name = "unsloth/Qwen3-8B-unsloth-bnb-4bit",
    max_seq_length = max_seq_length,
    dtype = None, # auto
)
model = FastLanguageModel.get_peft_model(
    model, r = 32, target_modules = ["q_proj", "v_proj", "lm_head"], lora_dropout = 0,
    use_gradient_checkpointing = "unsloth", random_state = 3407,
)
trainer = SFTTrainer(model = model, tokenizer = tokenizer, train_dataset = dataset, max_seq_length = 512, args = SFTConfig(
    gradient_accumulation_steps = 4, fp16 = not is_bfloat16_supported(), bf16 = is_bfloat16_supported(), report_to = "none"))
if False:
    model, tokenizer = FastLanguageModel.from_pretrained(model_name = "lora_model")
)py";
  const Ledger ledger = ask({{"train.py", script}});
  INFO(to_json(ledger));
  CHECK_FALSE(ledger.refused);
  CHECK(ledger.missing.empty());
  CHECK(ledger.trainer == "unsloth 2026.8.19");
  CHECK(at(ledger, "/model/preset") == "qwen3-8b");
  CHECK(at(ledger, "/data/sequence_length") == 512);  // the trainer's, where it is shorter
  CHECK(at(ledger, "/data/micro_batch_size") == 4);   // rl.py
  CHECK(at(ledger, "/training/gradient_accumulation_steps") == 4);
  CHECK(at(ledger, "/training/quantization/load_in_4bit") == true);
  CHECK(at(ledger, "/training/lora/rank") == 32);
  CHECK(at(ledger, "/training/lora/alpha") == 16);
  CHECK(at(ledger, "/training/lora/target_modules") == json({"q_proj", "v_proj"}));
  CHECK(at(ledger, "/training/lora/modules_to_save") == json({"lm_head"}));
  CHECK(at(ledger, "/training/activation_checkpointing") == "reentrant");
  const LeftOut* offloaded = left_out(ledger, "get_peft_model.use_gradient_checkpointing");
  REQUIRE(offloaded != nullptr);
  CHECK(offloaded->effect == Effect::less);
  CHECK(offloaded->bytes == 4 * 512 * 36 * 4096 * 2);
  CHECK(left_out(ledger, "from_pretrained.model_name")->effect == Effect::either);

  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = script;
    changed.replace(changed.find(from), from.size(), to);
    return ask({{"train.py", changed}});
  };
  const Ledger sixteen = with("dtype = None", "load_in_16bit = True");
  CHECK(at(sixteen, "/training/quantization").is_object());  // its name says that it is in four bits
  CHECK(at(with("-unsloth-bnb-4bit\"", "\", load_in_4bit = False"), "/training/quantization") == "absent");
  REQUIRE(with("SFTConfig", "DPOConfig").refused);
  CHECK(with("dtype = None", "full_finetuning = True").refused->key == "from_pretrained.full_finetuning");
  CHECK(with("max_seq_length = max_seq_length", "max_seq_length = longest(x)").missing[0].name == "max_seq_length");
  // A tower gets adapters unless the script says otherwise.
  const Ledger seeing = with("unsloth/Qwen3-8B-unsloth-bnb-4bit", "unsloth/gemma-3-4b-it");
  REQUIRE(seeing.refused);
  CHECK(seeing.refused->key == "get_peft_model.finetune_vision_layers");
}
