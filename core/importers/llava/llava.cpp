#include "importers/llava/llava.h"

#include "config/reader.h"
#include "importers/transformers/training_arguments.h"

namespace oometer::importers {

using nlohmann::json;

namespace {

constexpr const char* kLlavaModel = "llava/train/train.py: ModelArguments";
constexpr const char* kLlavaTrain = "llava/train/train.py: TrainingArguments";

constexpr Key kLlavaKeys[] = {
    {"model_name_or_path", "", kLlavaModel, ""},
    {"vision_tower", "", kLlavaModel, ""},
    {"mm_projector_type", "\"linear\"", kLlavaModel, ""},
    {"mm_vision_select_layer", "-1", kLlavaModel, ""},
    {"freeze_backbone", "false", kLlavaModel, ""},
    {"tune_mm_mlp_adapter", "false", kLlavaModel, ""},
    {"freeze_mm_mlp_adapter", "false", kLlavaTrain, ""},
    {"mm_use_im_start_end", "false", kLlavaModel, ""},
    {"mm_use_im_patch_token", "true", kLlavaModel, ""},
    {"image_aspect_ratio", "\"square\"", "llava/train/train.py: DataArguments", ""},
    {"model_max_length", "512", kLlavaTrain, "/data/sequence_length"},
    {"optim", "\"adamw_torch\"", kLlavaTrain, ""},
    {"mm_projector_lr", "", kLlavaTrain, ""},
    {"gradient_checkpointing", "false", kLlavaTrain, ""},
    {"bits", "16", kLlavaTrain, ""},
    {"double_quant", "true", kLlavaTrain, ""},
    {"quant_type", "\"nf4\"", kLlavaTrain, ""},
    {"lora_enable", "false", kLlavaTrain, ""},
    {"lora_r", "64", kLlavaTrain, "/training/lora/rank"},
    {"lora_alpha", "16", kLlavaTrain, "/training/lora/alpha"},
    {"lora_dropout", "0.05", kLlavaTrain, "/training/lora/dropout"},
    {"lora_bias", "\"none\"", kLlavaTrain, "/training/lora/bias"},
};

constexpr Gap kLlavaGaps[] = {
    {"mm_patch_merge_type", "\"flat\"", Effect::more, "an image in several pieces"},
    {"image_grid_pinpoints", "", Effect::more, "an image in several pieces"},
    {"lora_weight_path", "", Effect::either, "adapters that are loaded"},
};

constexpr std::string_view kLlavaHarmless =
    "version pretrain_mm_mlp_adapter mm_vision_select_feature data_path lazy_preprocess is_multimodal image_folder "
    "cache_dir mpt_attn_impl group_by_modality_length eval_steps save_steps evaluation_strategy "
    "eval_strategy max_steps per_device_eval_batch_size weight_decay";

constexpr Table kLlava = {"LLaVA 1.2.2", kLlavaKeys, kLlavaGaps, kLlavaHarmless};

std::string last_part_of(const std::string& path) {
  return path.substr(path.find_last_of('/') == std::string::npos ? 0 : path.find_last_of('/') + 1);
}

/// The models of the paper, which are a language model, CLIP and a projector of two layers.
void take_llava_model(Context& context, Keys& keys) {
  const std::string language = lower_case(last_part_of(keys.text("model_name_or_path")));
  const std::string tower = lower_case(last_part_of(keys.text("vision_tower")));
  const bool is_7b = is_word_of(language, "vicuna-7b-v1.5 llava-v1.5-7b");
  const bool is_13b = is_word_of(language, "vicuna-13b-v1.5 llava-v1.5-13b");
  const bool whole = language.starts_with("llava-");  // its config says the rest
  if (!(is_7b || is_13b) || (tower != "clip-vit-large-patch14-336" && !(whole && tower.empty()))) {
    context.ledger.missing.push_back({"config.json", keys.text("model_name_or_path"), keys.file(), "model_name_or_path",
                                      "only LLaVA-1.5's language models with clip-vit-large-patch14-336 are known by "
                                      "name: give the whole model's config.json to another importer"});
    return;
  }
  keys.take("model_name_or_path", "/model/preset", is_7b ? "llava-1.5-7b" : "llava-1.5-13b");
  keys.note("vision_tower", "/model/preset");
  // Its projector comes with it, in bf16 as all of it; train.py makes that of a language model in float32.
  if (whole) context.ledger.put("/training/float32_modules", json::array());
  if (!whole && keys.text("mm_projector_type") != "mlp2x_gelu")
    keys.refuse("mm_projector_type",
                "found " + quote(keys.text("mm_projector_type")) + ", which is not supported yet; expected mlp2x_gelu");
  if (!whole && keys.integer("mm_vision_select_layer") != -2)
    keys.refuse("mm_vision_select_layer", "others than -2 are not supported yet");
  for (const char* key : {"mm_use_im_start_end", "mm_use_im_patch_token"})
    if (keys.truth(key)) keys.leave_out(key, Effect::more, "rows of the embeddings and of the head for new tokens");
}

}  // namespace

void read_llava(Context& context, Keys& keys, const std::string& program) {
  keys.know(training_arguments());
  keys.know(kLlava);
  Ledger& ledger = context.ledger;
  ledger.trainer = kLlava.project;
  ledger.put("/runtime/framework", "llava");
  take_llava_model(context, keys);
  keys.take("model_max_length");
  const Autocast autocast = autocast_of(context, keys);
  if (keys.integer("bits") != 16)
    keys.refuse("bits", "found " + std::to_string(keys.integer("bits")) + ": LLaVA's QLoRA is not supported yet");
  // from_pretrained is given bfloat16 with bf16, else nothing: float32; the tower too is converted.
  context.take_precision(keys, "bf16", autocast.dtype == "bf16" ? "bf16" : "fp32", autocast.key, autocast.dtype);
  const bool is_known_loop = autocast.dtype == "bf16";  // else the tower is in float16
  if (is_known_loop) {
    ledger.put("/training/loop/name", "llava.LLaVATrainer");
    ledger.put("/training/loop/args/bf16", true);
    for (const char* key : {"mm_projector_lr", "save_strategy"})
      keys.take_given(key, std::string("/training/loop/args/") + key);
  } else {
    keys.ignore("save_strategy");
    if (keys.has("mm_projector_lr"))
      keys.leave_out("mm_projector_lr", Effect::either, "two more parameter groups, of the projector");
  }
  // train_mem.py calls train(attn_implementation="flash_attention_2"), which keeps what SDPA's kernel does; train.py
  // leaves it to transformers.
  const char* const attention = program == "train_mem" && !is_known_loop ? "sdpa-flash" : "sdpa";
  ledger.put("/training/attention", attention);
  ledger.taken.push_back({context.launch.file, program, "/training/attention", attention, true,
                          "LLaVA 1.2.2, llava/train/" + program + ".py"});
  if (program == "train_xformers")
    ledger.unmodelled.push_back(
        {keys.file(), program, json(), "attention of xformers; taken as SDPA", Effect::either, {}});
  take_checkpointing(keys, true);  // torch.utils.checkpoint's own default
  for (const char* name : {"per_device_train_batch_size", "gradient_accumulation_steps"}) keys.take(name);
  take_data_workers(keys);
  const std::string optim = keys.text("optim");
  keys.take("optim", "/training/optimizer",
            optim == "adamw_torch" ? json({{"implementation", "foreach"}}) : json(optim));
  if (keys.has("deepspeed"))
    keys.ignore("max_grad_norm");  // the engine clips, where its own file says so
  else
    keys.take("max_grad_norm");
  if (keys.truth("tune_mm_mlp_adapter")) {
    keys.take("tune_mm_mlp_adapter", "/training/stage", "pretrain");
    keys.ignore("freeze_backbone");
  } else {
    keys.take("tune_mm_mlp_adapter", "/training/stage", "finetune");
    if (keys.truth("freeze_backbone")) keys.refuse("freeze_backbone", "not supported yet without tune_mm_mlp_adapter");
    if (keys.truth("freeze_mm_mlp_adapter")) keys.refuse("freeze_mm_mlp_adapter", "not supported yet: leave it out");
  }
  if (keys.truth("lora_enable")) {
    for (const char* key : {"lora_r", "lora_alpha", "lora_dropout", "lora_bias"}) keys.take(key);
    // find_all_linear_names: the language model's; the tower is made after the adapters, and the projector trains
    // whole.
    keys.take("lora_enable", "/training/lora/target_modules",
              "(?!.*vision_tower).*\\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)");
    ledger.put("/training/lora/also_train", {"mm_projector"});
  } else {
    for (const char* key : {"lora_r", "lora_alpha", "lora_dropout", "lora_bias"}) keys.ignore(key);
  }
  if (const std::string ratio = keys.text("image_aspect_ratio"); ratio == "anyres")
    keys.leave_out("image_aspect_ratio", Effect::more, "an image in several pieces");
  ledger.unmodelled.push_back(
      {"",
       "",
       json(),
       is_known_loop ? "LLaVA pins torch 2.1; answered for the torch of `runtime`"
                     : "LLaVA pins torch 2.1, transformers 4.37 and DeepSpeed 0.12; answered for the versions of "
                       "`runtime`, without LLaVATrainer's evaluation and checkpoints",
       Effect::either,
       {}});
}

}  // namespace oometer::importers
