#include "job/parse.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <tuple>
#include <type_traits>
#include <utility>

#include "config/pattern.h"
#include "config/reader.h"
#include "graph/job.h"
#include "graph/read.h"
#include "job/accelerate.h"
#include "job/carried.h"
#include "job/catalogue.h"
#include "job/presets.h"
#include "models/mistral/config.h"
#include "sort_by.h"
#include "train/step.h"

namespace oometer {

using nlohmann::json;

namespace {

// --- names: the one place where an enumerator and its spelling meet, for reading and for writing ---------------------

constexpr Name<Task> kTasks[] = {{"train", Task::train}, {"inference", Task::inference}};
constexpr Name<CacheImplementation> kCaches[] = {{"dynamic", CacheImplementation::dynamic_},
                                                 {"static", CacheImplementation::static_},
                                                 {"offloaded", CacheImplementation::offloaded},
                                                 {"paged", CacheImplementation::paged}};
constexpr Name<Logits> kLogits[] = {{"last", Logits::last}, {"all", Logits::all}};
constexpr Name<Stage> kStages[] = {
    {"pretrain", Stage::pretrain}, {"finetune", Stage::finetune}, {"full", Stage::full}, {"custom", Stage::custom}};
constexpr Name<Precision> kPrecisions[] = {{"fp32", Precision::fp32},
                                           {"bf16", Precision::bf16},
                                           {"fp16", Precision::fp16},
                                           {"amp-bf16", Precision::amp_bf16},
                                           {"amp-fp16", Precision::amp_fp16}};
constexpr Name<OptimizerName> kOptimizers[] = {
    {"adamw", OptimizerName::adamw}, {"adam", OptimizerName::adam}, {"sgd", OptimizerName::sgd}};
constexpr Name<OptimizerImplementation> kImplementations[] = {
    {"foreach", OptimizerImplementation::foreach_},    {"fused", OptimizerImplementation::fused},
    {"for-loop", OptimizerImplementation::for_loop},   {"bnb-8bit", OptimizerImplementation::bnb_8bit},
    {"bnb-32bit", OptimizerImplementation::bnb_32bit}, {"deepspeed-fused", OptimizerImplementation::deepspeed_fused}};
constexpr Name<AttentionKind> kAttentions[] = {
    {"eager", AttentionKind::eager},           {"sdpa", AttentionKind::sdpa},
    {"sdpa-flash", AttentionKind::sdpa_flash}, {"sdpa-efficient", AttentionKind::sdpa_efficient},
    {"sdpa-math", AttentionKind::sdpa_math},   {"sdpa-cudnn", AttentionKind::sdpa_cudnn}};
constexpr Name<CheckpointMode> kCheckpointModes[] = {{"none", CheckpointMode::none},
                                                     {"non-reentrant", CheckpointMode::non_reentrant},
                                                     {"reentrant", CheckpointMode::reentrant}};
constexpr Name<SavesOn> kSavesOn[] = {
    {"none", SavesOn::device}, {"pageable", SavesOn::pageable}, {"pinned", SavesOn::pinned}};
constexpr Name<LoraBias> kLoraBiases[] = {
    {"none", LoraBias::none}, {"all", LoraBias::all}, {"lora_only", LoraBias::lora_only}};
constexpr Name<Strategy> kStrategies[] = {{"none", Strategy::none},
                                          {"ddp", Strategy::ddp},
                                          {"deepspeed", Strategy::deepspeed},
                                          {"fsdp1", Strategy::fsdp1},
                                          {"fsdp2", Strategy::fsdp2}};
constexpr Name<Framework> kFrameworks[] = {{"transformers", Framework::transformers}, {"llava", Framework::llava}};
constexpr Name<ExpertsImplementation> kExperts[] = {{"grouped_mm", ExpertsImplementation::grouped_mm},
                                                    {"batched_mm", ExpertsImplementation::batched_mm},
                                                    {"eager", ExpertsImplementation::eager}};

template <typename T, std::size_t N>
std::string name_of(T value, const Name<T> (&names)[N]) {
  for (const Name<T>& name : names) {
    if (name.value == value) return std::string(name.text);
  }
  return "";
}

// --- limits ----------------------------------------------------------------------------------------------------------

constexpr Range kBatch{1, 1 << 20};
constexpr Range kLength{1, 1 << 24};
constexpr Range kNewTokens{1, 1 << 20};
constexpr Range kTurns{1, 100};
constexpr Range kReplicas{1, 1 << 16};
constexpr Range kBucketMegabytes{1, 1 << 20};
constexpr Range kElements{1, std::int64_t{1} << 40}, kElementsOrNone{0, std::int64_t{1} << 40};
constexpr Range kUsableBytes{1 << 20, std::int64_t{1} << 44};
/// No tensor may be larger, so that a sum over any model's tensors fits 64 bits.
constexpr double kLargestTensor = 0x1p44;

// --- model -----------------------------------------------------------------------------------------------------------

/// Lays `patch` over `base`, object by object.
void merge(json& base, const json& patch) {
  for (const auto& [key, value] : patch.items()) {
    json& slot = base[key];
    if (slot.is_object() && value.is_object()) {
      merge(slot, value);
    } else {
      slot = value;
    }
  }
}

/// A model by its operators.
ModelChoice read_graph_model(ConfigReader& reader, const json& given) {
  ModelChoice model;
  for (const char* key : {"preset", "config"})
    if (reader.has(key)) reader.fail_found(key, "inconsistent", "the graph says what the model is: leave it out");
  model.given_name = model.name = reader.text("name", "");
  Result<Graph> graph = read_graph(given, reader.pointer_to("graph"));
  if (graph) {
    model.config = GraphConfig{std::make_shared<const Graph>(*std::move(graph))};
    model.config_json = given.dump();
    if (model.name.empty()) model.name = class_name(model.config);
  } else if (reader.ok()) {
    reader.findings().error = graph.error();
  }
  reader.finish();
  return model;
}

/// The job's model, and the sequence length that its preset is used with (0: no preset or none).
std::pair<ModelChoice, std::int64_t> read_model(ConfigReader reader, Framework framework) {
  ModelChoice model;
  std::int64_t usual_length = 0;
  json config = json::object();
  if (const json* given = reader.find("graph"); given && !given->is_null())
    return {read_graph_model(reader, *given), 0};
  model.preset = reader.text("preset", "");
  model.given_name = reader.text("name", "");
  if (!model.preset.empty()) {
    const std::string_view text = preset_text("models", model.preset);
    if (text.empty()) {
      std::string known;
      std::vector<std::string_view> ids;
      for (const PresetFile& file : preset_files()) {
        if (file.folder != "models") continue;
        ids.push_back(file.id);
        known += (known.empty() ? "" : ", ") + std::string(file.id);
      }
      const std::string_view near = closest(model.preset, ids);
      reader.fail_found(
          "preset", "unknown-preset",
          near.empty() ? "one of these belongs here: " + known : "did you mean \"" + std::string(near) + "\"?");
    } else if (Result<json> preset = parse_json(text)) {
      config = std::move((*preset)["config"]);
      model.name = preset->value("title", model.preset);
      usual_length = preset->value("/defaults/sequence_length"_json_pointer, std::int64_t{0});
    }
  } else if (reader.ok() && !reader.has("config")) {
    reader.fail("", "missing",
                "found neither preset nor config nor graph; {\"preset\": NAME} or {\"config\": {...}} belongs here");
  }
  if (const json* given = reader.find("config"); given && given->is_object()) {
    model.config_json = given->dump();
    merge(config, *given);
  } else if (given) {
    reader.fail_found("config", "wrong-type", "the object of a config.json belongs here");
  }
  if (reader.ok()) {
    ConfigReader config_reader(&config, reader.pointer_to("config"), Mode::lenient, reader.findings());
    model.config = read_model_config(config_reader, framework);
  }
  if (!model.given_name.empty()) model.name = model.given_name;
  if (model.name.empty()) model.name = class_name(model.config);
  reader.finish();
  return {std::move(model), usual_length};
}

// --- runtime ---------------------------------------------------------------------------------------------------------

Version read_version(ConfigReader& reader, const char* key, Version fallback, VersionRange known) {
  const std::string text = reader.text(key, to_string(fallback));
  const Result<Version> version = parse_version(text);
  if (version && *version >= known.first && *version <= known.last) return *version;
  known.last.patch = 0;
  reader.fail_found(
      key, "out-of-range",
      "a version in quotes from \"" + to_string(known.first) + "\" to \"" + to_string(known.last) + "\" belongs here");
  return fallback;
}

Runtime read_runtime(ConfigReader reader) {
  const Framework framework = reader.choice("framework", Framework::transformers, kFrameworks);
  Runtime runtime = default_runtime(framework);
  runtime.torch = read_version(reader, "torch", runtime.torch, known_torch);
  runtime.transformers = read_version(reader, "transformers", runtime.transformers, known_transformers);
  if (framework == Framework::llava &&
      (runtime.transformers < Version{4, 37, 0} || runtime.transformers >= Version{4, 38, 0}))
    reader.fail_found("transformers", "inconsistent",
                      "the original LLaVA code runs on transformers 4.37, which belongs here with this framework");
  runtime.deepspeed = read_version(reader, "deepspeed", runtime.deepspeed, known_deepspeed);
  runtime.peft = read_version(reader, "peft", runtime.peft, known_peft);
  runtime.cudnn = reader.boolean("cudnn", runtime.cudnn);
  runtime.expandable_segments = reader.boolean("expandable_segments", false);
  runtime.experts = reader.choice("experts", runtime.experts, kExperts);
  if (runtime.expandable_segments && runtime.torch < Version{2, 1, 0}) {
    reader.fail_found("expandable_segments", "inconsistent", "torch 2.1 or later has them");
  }
  reader.finish();
  return runtime;
}

Calibration read_calibration(ConfigReader reader) {
  Calibration calibration;
  calibration.reserved = reader.number("reserved", 1, 0.5, 2);
  calibration.outside_allocator = reader.optional_integer("outside_allocator", {0, std::int64_t{64} << 30});
  reader.finish();
  return calibration;
}

/// The language model of a config, if it has one of Llama's kind.
const LlamaConfig* language_of(const ModelConfig& model) {
  if (const auto* language = std::get_if<LlamaConfig>(&model)) return language;
  if (const auto* llava = std::get_if<LlavaConfig>(&model)) return &llava->text;
  if (const auto* idefics3 = std::get_if<Idefics3Config>(&model)) return &idefics3->text;
  return nullptr;
}

/// The classes whose Liger kernels and quantised weights were compared with the libraries' own.
bool is_llava_1_5(const ModelConfig& model) {
  const auto* llava = std::get_if<LlavaConfig>(&model);
  return llava && !llava->is_next() && !llava->has_siglip();
}

// --- data ------------------------------------------------------------------------------------------------------------

DataConfig read_data(ConfigReader reader, const ModelConfig& model, std::int64_t usual_length) {
  const ModelTraits traits = model_traits(model);
  const std::string who = class_name(model);
  DataConfig data;
  data.micro_batch_size = reader.integer("micro_batch_size", 1, kBatch);

  const auto length = reader.optional_integer("sequence_length", kLength);
  if (length && !traits.takes_text) {
    reader.fail_found("sequence_length", "inconsistent", who + " reads no text: leave it out");
  } else if (length && traits.max_sequence_length != 0 && *length > traits.max_sequence_length) {
    reader.fail_found("sequence_length", "inconsistent",
                      "at most " + std::to_string(traits.max_sequence_length) +
                          " (max_position_embeddings) belongs here: the model refuses more");
  }
  data.sequence_length = length.value_or(usual_length != 0 ? usual_length : traits.default_sequence_length);
  if (!traits.takes_text) data.sequence_length = 0;

  data.images_per_sample = reader.optional_integer("images_per_sample", {0, 1 << 16}).value_or(traits.takes_images);
  if (!traits.takes_images && data.images_per_sample != 0) {
    reader.fail_found("images_per_sample", "inconsistent", who + " takes no images: leave it out");
  } else if (std::holds_alternative<ClipConfig>(model) && data.images_per_sample != 1) {
    reader.fail_found("images_per_sample", "inconsistent",
                      "1 belongs here: the contrastive loss pairs texts and images");
  } else if (std::holds_alternative<NanoVlmConfig>(model) && data.images_per_sample != 1) {
    reader.fail_found("images_per_sample", "inconsistent", "1 belongs here: nanoVLM takes an image with each text");
  } else if (std::holds_alternative<ClipVisionConfig>(model) && data.images_per_sample == 0) {
    reader.fail_found("images_per_sample", "inconsistent", "1 or more belongs here: the model reads nothing else");
  } else if (data.images() > kBatch.max) {
    reader.fail_found("images_per_sample", "out-of-range",
                      "a micro-batch may hold at most " + std::to_string(kBatch.max) + " images");
  }

  const auto* qwen = std::get_if<QwenVLConfig>(&model);
  if (qwen) read_grid(reader, *qwen, data);
  const std::vector<std::int64_t> size = reader.integers("image_size", {1, 65'536});
  if (!qwen && data.images_per_sample != 0) data.image_height = data.image_width = traits.image_size;
  if (reader.has("image_size") && !traits.takes_images) {
    reader.fail_found("image_size", "inconsistent", who + " takes no images: leave it out");
  } else if (reader.has("image_size") && traits.cuts_images) {
    if (size.size() != 2)
      reader.fail_found("image_size", "wrong-type", "[height, width] in pixels belongs here");
    else if (data.images_per_sample != 0)
      std::tie(data.image_height, data.image_width) = std::tie(size[0], size[1]);
  } else if (!qwen && reader.has("image_size") &&
             (size.size() != 2 || size[0] != traits.image_size || size[1] != traits.image_size)) {
    // CLIPVisionEmbeddings.forward refuses other sizes: the processor brings images to the config's own.
    const std::string side = std::to_string(traits.image_size);
    reader.fail_found("image_size", "inconsistent", "[" + side + ", " + side + "], the config's own, belongs here");
  }
  if (const auto* graph = std::get_if<GraphConfig>(&model)) read_graph_batch(reader, *graph->graph, data);
  for (const char* key : {"tiles", "target_length", "grid_thw", "frames", "min_pixels", "max_pixels"}) {
    const bool is_tiles = key == std::string_view("tiles");
    if (is_tiles ? traits.cuts_images : qwen && key != std::string_view("target_length")) continue;
    if (reader.has(key)) reader.fail_found(key, "inconsistent", who + " has no use for it: leave it out");
  }
  if (!qwen && data.images_per_sample != 0 && reader.ok()) {
    const std::int64_t tiles = traits.cuts_images ? reader.optional_integer("tiles", {1, 4096}).value_or(0) : 0;
    const ImageCount count = count_image(model, data.image_height, data.image_width, tiles);
    const std::int64_t cut = count_image(model, data.image_height, data.image_width, 0).tiles;
    if (tiles != 0 && tiles != cut && (reader.has("image_size") || count.tiles != tiles))
      reader.fail_found("tiles", "inconsistent",
                        std::to_string(cut) + ", into which the processor cuts an image of image_size, belongs here");
    data.tiles = count.tiles;
    data.tokens_per_image = count.tokens;
  }
  reader.ignore({"tiles"});
  const std::int64_t image_tokens = data.images_per_sample * data.tokens_per_image;
  if (data.sequence_length < image_tokens) {
    const std::string need = std::to_string(image_tokens) + " tokens that " + std::to_string(data.images_per_sample) +
                             " image(s) of " + std::to_string(data.tokens_per_image) + " take";
    const std::string has = std::to_string(data.sequence_length);
    reader.fail(reader.has("sequence_length") ? "sequence_length" : "images_per_sample", "inconsistent",
                "found a sequence of " + has + " tokens; it must hold the " + need);
  }
  reader.finish();
  return data;
}

/// Bytes of about the largest tensor that a model makes of its data. In doubles: it must not overflow.
struct LargestTensor {
  const DataConfig& data;

  static double product(std::initializer_list<std::int64_t> sizes) {
    double bytes = 8;  // the widest element
    for (const std::int64_t size : sizes) bytes *= static_cast<double>(size);
    return bytes;
  }
  static double block(std::int64_t batch, std::int64_t tokens, std::int64_t hidden, std::int64_t inner,
                      std::int64_t heads) {
    return std::max({product({batch, heads, tokens, tokens}), product({batch, tokens, std::max(hidden, inner)}),
                     product({hidden, std::max(hidden, inner)})});
  }
  double operator()(const LlamaConfig& c) const {
    const std::int64_t batch = data.micro_batch_size;
    const std::int64_t length = data.sequence_length;
    const std::int64_t query = c.num_attention_heads * c.head_dim;
    return std::max({block(batch, length, c.hidden_size, std::max(c.intermediate_size, query), c.num_attention_heads),
                     product({batch, length, c.vocab_size}), product({c.vocab_size, c.hidden_size}),
                     product({c.max_position_embeddings})});
  }
  double operator()(const ClipVisionConfig& c) const {
    const std::int64_t images = data.all_tiles();
    return std::max({block(images, c.num_positions(), c.hidden_size, c.intermediate_size, c.num_attention_heads),
                     product({std::max<std::int64_t>(images, 1), c.num_channels, c.image_size, c.image_size}),
                     product({c.hidden_size, c.num_channels, c.patch_size, c.patch_size}),
                     product({images, c.num_patches(), c.num_channels, c.patch_size, c.patch_size}),
                     product({c.num_positions(), c.hidden_size}), product({c.hidden_size, c.projection_dim})});
  }
  double operator()(const ClipConfig& c) const {
    const ClipTextConfig& text = c.text;
    const std::int64_t batch = data.micro_batch_size;
    return std::max(
        {(*this)(c.vision),
         block(batch, data.sequence_length, text.hidden_size, text.intermediate_size, text.num_attention_heads),
         product({text.vocab_size, text.hidden_size}), product({text.max_position_embeddings, text.hidden_size}),
         product({batch, batch}), product({c.projection_dim, std::max(batch, text.hidden_size)}),
         product({c.projection_dim, c.vision.hidden_size})});
  }
  double operator()(const Idefics3Config& c) const {
    const std::int64_t tiles = std::max<std::int64_t>(data.all_tiles(), 1), patches = c.patches_per_tile(),
                       wide = c.vision.hidden_size * c.scale_factor * c.scale_factor;
    return std::max(
        {(*this)(c.vision), (*this)(c.text), product({c.text.hidden_size, wide}),
         block(tiles, patches, c.vision.hidden_size, c.vision.intermediate_size, c.vision.num_attention_heads),
         product({tiles, c.vision.num_channels, c.tile_size, c.tile_size}),
         product({tiles, c.tokens_per_tile(), std::max(c.text.hidden_size, wide)})});
  }
  double operator()(const NanoVlmConfig& c) const {
    const std::int64_t wide = c.vision.hidden_size * c.scale_factor * c.scale_factor;
    return std::max({(*this)(c.vision), (*this)(c.text), product({c.text.hidden_size, wide}),
                     product({data.images(), c.tokens_per_image(), std::max(c.text.hidden_size, wide)})});
  }
  double operator()(const GraphConfig& c) const {
    double largest = 0;
    for (const GraphTensor& input : c.graph->inputs) {
      double bytes = 8;
      for (const GraphNumber& size : input.sizes) bytes *= static_cast<double>(size.at(data.micro_batch_size));
      largest = std::max(largest, bytes);
    }
    return largest;  // of the others, the run says
  }
  double operator()(const LlavaConfig& c) const {
    const std::int64_t widest = std::max(c.projector_input_size(), c.text.hidden_size);
    return std::max({(*this)(c.vision), (*this)(c.text), product({c.text.hidden_size, widest}),
                     product({data.all_tiles(), c.vision.num_positions(), widest})});
  }
  double operator()(const QwenVLConfig& c) const {
    const QwenVisionConfig& v = c.vision;
    const std::int64_t frames = checked_product(data.images(), data.grid_t), merged = v.hidden_size * v.merge_unit();
    return std::max(
        {(*this)(c.text), block(frames, data.grid_h * data.grid_w, 3 * v.hidden_size, v.intermediate_size, v.num_heads),
         product({frames, data.grid_h * data.grid_w, v.patch_elements()}), product({v.hidden_size, v.patch_elements()}),
         product({merged, std::max(merged, v.out_hidden_size)})});
  }
};

// --- training --------------------------------------------------------------------------------------------------------

OptimizerConfig read_optimizer(ConfigReader reader) {
  OptimizerConfig optimizer;
  optimizer.name = reader.choice("name", optimizer.name, kOptimizers);
  optimizer.implementation = reader.choice("implementation", optimizer.implementation, kImplementations);
  optimizer.momentum = reader.number("momentum", 0.0, 0.0, 1.0);
  optimizer.paged = reader.boolean("paged", false);
  if (optimizer.is_bitsandbytes() && optimizer.name == OptimizerName::sgd)
    reader.fail_found("implementation", "inconsistent",
                      "HF Trainer has bitsandbytes' AdamW and no SGD of it: foreach, fused or for-loop belongs here");
  if (optimizer.paged && !optimizer.is_bitsandbytes())
    reader.fail_found(
        "paged", "inconsistent",
        "only bitsandbytes pages its states: set implementation to bnb-8bit or bnb-32bit, or leave it out");
  optimizer.param_groups = reader.integer("param_groups", optimizer.param_groups, {1, 2});
  if (optimizer.momentum > 0.0 && optimizer.name != OptimizerName::sgd) {
    reader.fail_found("momentum", "inconsistent", "only sgd has a momentum: leave it out");
  }
  reader.finish();
  return optimizer;
}

/// {"language_model.layers": [[0, 4], 8]}: ranges of blocks, and single blocks.
std::vector<StackSegments> read_segments(ConfigReader& checkpointing) {
  std::vector<StackSegments> stacks;
  const json* given = checkpointing.find("segments");
  if (!given) return stacks;
  ConfigReader reader = checkpointing.object("segments");
  if (given->is_object() && given->empty()) {
    checkpointing.fail_found(
        "segments", "invalid",
        "stacks of blocks and their regions belong here: {\"language_model.layers\": [[0, 4], 8]}");
    return stacks;
  }
  const auto is_index = [](const json& value) {
    return value.is_number_integer() && value >= 0 && value <= layer_count.max;
  };
  if (!reader.ok()) return stacks;
  for (const auto& [stack, list] : given->items()) {
    StackSegments& segments = stacks.emplace_back(StackSegments{stack, {}});
    if (stack.empty() || !list.is_array()) {
      reader.fail(stack.c_str(), "wrong-type", "found " + describe(list) + "; a list as [[0, 4], 8] belongs here");
      return stacks;
    }
    for (const json& item : list) {
      CheckpointSegment segment;
      if (is_index(item)) {
        segment.begin = item.get<std::size_t>();
        segment.end = segment.begin + 1;
      } else if (item.is_array() && item.size() == 2 && is_index(item[0]) && is_index(item[1]) && item[0] < item[1]) {
        segment = {item[0].get<std::size_t>(), item[1].get<std::size_t>()};
      } else {
        reader.fail(
            stack.c_str(), "invalid",
            "found " + describe(item) + " in the list; a block's index, or [first, one past the last], belongs here");
        return stacks;
      }
      segments.segments.push_back(segment);
    }
    sort_by(segments.segments, [](const CheckpointSegment& segment) { return segment.begin; });
    for (std::size_t i = 1; i < segments.segments.size(); ++i)
      if (segments.segments[i].begin < segments.segments[i - 1].end)
        reader.fail(stack.c_str(), "inconsistent",
                    "found block " + std::to_string(segments.segments[i].begin) +
                        " in two regions; each block belongs to one at most");
  }
  return stacks;
}

CheckpointingConfig read_checkpointing(ConfigReader& training, const Runtime& runtime) {
  constexpr const char* kKey = "activation_checkpointing";
  CheckpointingConfig checkpointing;
  if (!training.is_object(kKey)) {
    checkpointing.mode = training.choice(kKey, checkpointing.mode, kCheckpointModes);
    return checkpointing;
  }
  ConfigReader reader = training.object(kKey);
  checkpointing.mode = reader.choice("mode", CheckpointMode::non_reentrant, kCheckpointModes);
  checkpointing.every = reader.integer("every", 1, layer_count);
  checkpointing.offload = reader.boolean("offload", false);
  checkpointing.segments = read_segments(reader);
  if (checkpointing.offload && checkpointing.mode == CheckpointMode::none)
    reader.fail_found("offload", "inconsistent", "nothing is checkpointed: leave it out, or set the mode");
  if (checkpointing.offload && runtime.transformers < Version{5, 23, 0})
    reader.fail_found("offload", "not-modelled", "it is modelled as transformers 5.23 has it");
  if (!checkpointing.segments.empty() && checkpointing.every != 1)
    reader.fail_found("every", "inconsistent", "the segments say which blocks: leave one of them out");
  if (!checkpointing.segments.empty() && checkpointing.mode == CheckpointMode::none)
    reader.fail_found("mode", "inconsistent", "with segments, non-reentrant or reentrant belongs here");
  reader.finish();
  return checkpointing;
}

/// What a stage means for a model; see the design's table. An error where it means nothing.
Components resolve_stage(ConfigReader& reader, Stage stage, const ModelConfig& model, Framework framework) {
  const ModelTraits traits = model_traits(model);
  if (std::holds_alternative<QwenVLConfig>(model)) {
    // The merger is a part of the tower.
    if (stage == Stage::pretrain) return {{}, {traits.projector}, {}};
    if (stage == Stage::finetune) return {{"visual.patch_embed", "visual.blocks"}, {}, {}};
    return {};
  }
  const char* projector = framework == Framework::llava ? "mm_projector" : traits.projector;
  if (stage == Stage::pretrain) {
    if (!traits.has_projector) {
      reader.fail_found("stage", "inconsistent",
                        std::string(class_name(model)) + " has no projector to train: full or custom belongs here");
    }
    return {{}, {projector}, {traits.tower}};
  }
  if (stage == Stage::finetune && traits.takes_images) {
    if (!traits.has_projector) {
      reader.fail_found("stage", "inconsistent",
                        std::string(class_name(model)) +
                            " has no language model beside the vision tower: full or custom belongs here");
    }
    return {{traits.tower}, {}, {traits.tower}};
  }
  return {};
}

/// The output that is the loss. Only a class without a loss of its own needs one named.
std::string read_loss(ConfigReader& reader, const ModelConfig& model) {
  const std::string loss = reader.has("loss") ? reader.text("loss", "") : "";
  reader.ignore({"loss"});
  if (std::holds_alternative<ClipVisionConfig>(model)) {
    if (loss != "pooler_output" && loss != "last_hidden_state") {
      reader.fail_found("loss", loss.empty() ? "missing" : "unknown-value",
                        "CLIPVisionModel has no loss of its own: pooler_output or last_hidden_state belongs here");
    }
  } else if (const auto* graph = std::get_if<GraphConfig>(&model)) {
    return loss_of_graph(reader, *graph->graph, loss);
  } else if (!loss.empty()) {
    reader.fail_found("loss", "not-modelled",
                      std::string("only null, ") + class_name(model) + "'s own loss, is modelled");
  }
  return loss;
}

/// PyTorch's and transformers' refusals of a forced kernel (sdp_utils.cpp: check_sm_version, check_tensor_dtype).
void check_attention(ConfigReader& reader, AttentionKind attention, Precision precision, const Gpu& gpu,
                     const Runtime& runtime) {
  if (attention != AttentionKind::sdpa_flash && attention != AttentionKind::sdpa_cudnn) return;
  if (precision == Precision::fp32) {
    reader.fail_found("attention", "inconsistent",
                      "this kernel takes half precision only: use sdpa-efficient or sdpa-math");
  } else if (gpu.vendor == Vendor::nvidia && gpu.major < 8) {
    reader.fail_found("attention", "inconsistent",
                      "this kernel needs compute capability 8.0 or more, the GPU has " + std::to_string(gpu.major) +
                          "." + std::to_string(gpu.minor) + ": use sdpa-efficient");
  } else if (attention == AttentionKind::sdpa_cudnn && (!runtime.cudnn || runtime.torch < Version{2, 4, 0})) {
    reader.fail_found("attention", "inconsistent", "it needs runtime.cudnn and torch 2.4 or later");
  }
}

/// A list of names, a regular expression, or "all-linear"; absent: what peft takes for the model_type.
TargetModules read_target_modules(ConfigReader& lora, const char* key, std::vector<std::string> usual) {
  TargetModules targets;
  if (!lora.has(key)) {
    targets.names = std::move(usual);
    if (targets.names.empty())
      lora.fail(
          key, "missing",
          "found nothing, and peft knows no usual targets of this model; a list of names, a regular expression or "
          "\"all-linear\" belongs here");
  } else if (lora.is_list(key)) {
    targets.names = lora.texts(key);
    if (targets.names.empty() && lora.ok())
      lora.fail_found(key, "inconsistent", "at least one name belongs here, or \"all-linear\"");
  } else {
    std::string text = lora.text(key, "");
    std::string lower = text;  // _maybe_include_all_linear_layers compares in lower case
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    targets.all_linear = lower == "all-linear";
    if (targets.all_linear) return targets;
    const Result<Pattern> pattern = Pattern::parse(text);
    if (!pattern)
      lora.fail_found(key, "invalid",
                      "a list of names, a regular expression or \"all-linear\" belongs here; this "
                      "expression has " +
                          pattern.error().message);
    targets.pattern = std::move(text);
    if (targets.pattern.empty() && lora.ok())
      lora.fail_found(key, "inconsistent", "a list of names, a regular expression or \"all-linear\" belongs here");
  }
  return targets;
}

/// What both kinds of adapters have to keep to.
void check_adapters(ConfigReader& training, ConfigReader& reader, Stage stage, const ModelConfig& model,
                    const std::vector<std::string>& modules_to_save) {
  for (const std::string& name : modules_to_save)
    if (name.empty()) reader.fail_found("modules_to_save", "invalid", "names of modules belong here");
  const auto is_embedding = [](const std::string& name) { return name == "lm_head" || name == "embed_tokens"; };
  if (model_traits(model).ties_embeddings && std::any_of(modules_to_save.begin(), modules_to_save.end(), is_embedding))
    reader.fail_found("modules_to_save", "not-modelled",
                      "saving embeddings that are tied (tie_word_embeddings) is known and not modelled yet");
  if (stage == Stage::pretrain)
    training.fail_found("stage", "inconsistent",
                        "it trains the projector alone, adapters are trained elsewhere: finetune belongs here, or no "
                        "adapters");
}

std::optional<LoraConfig> read_lora(ConfigReader& training, Stage stage, const ModelConfig& model,
                                    const Runtime& runtime) {
  if (!training.has("lora")) return std::nullopt;
  ConfigReader reader = training.object("lora");
  LoraConfig lora;
  lora.rank = reader.integer("rank", lora.rank, {1, 1 << 16});
  lora.alpha = reader.number("alpha", lora.alpha, 0, 1e9);
  lora.dropout = reader.number("dropout", lora.dropout, 0, 1);
  if (lora.dropout == 1.0) reader.fail_found("dropout", "out-of-range", "less than 1 belongs here: 1 drops everything");
  lora.bias = reader.choice("bias", lora.bias, kLoraBiases);
  lora.target_modules = read_target_modules(reader, "target_modules", model_traits(model).lora_targets);
  lora.modules_to_save = reader.texts("modules_to_save");
  lora.also_train = reader.texts("also_train");
  lora.use_dora = reader.boolean("use_dora", false);
  lora.use_rslora = reader.boolean("use_rslora", false);
  lora.lora_bias = reader.boolean("lora_bias", false);
  lora.autocast_adapter_dtype = reader.boolean("autocast_adapter_dtype", true);
  if (lora.use_dora && lora.lora_bias)
    reader.fail_found("lora_bias", "inconsistent", "peft has no DoRA with it: leave one of them out");
  if (lora.use_dora && runtime.peft < Version{0, 19, 0})
    reader.fail_found("use_dora", "not-modelled", "DoRA is modelled as peft 0.19 and later have it");
  if (lora.lora_bias && runtime.peft < Version{0, 14, 0})
    reader.fail_found("lora_bias", "inconsistent", "peft 0.14 or later has it");
  check_adapters(training, reader, stage, model, lora.modules_to_save);
  reader.finish();
  return lora;
}

std::optional<Ia3Config> read_ia3(ConfigReader& training, Stage stage, const ModelConfig& model) {
  if (!training.has("ia3")) return std::nullopt;
  if (training.has("lora")) training.fail_found("ia3", "inconsistent", "there is lora too: leave one of them out");
  ConfigReader reader = training.object("ia3");
  Ia3Config ia3;
  ia3.target_modules = read_target_modules(reader, "target_modules", model_traits(model).ia3_targets);
  ia3.feedforward_modules = read_target_modules(reader, "feedforward_modules", model_traits(model).ia3_feedforward);
  if (ia3.feedforward_modules.all_linear)
    reader.fail_found("feedforward_modules", "inconsistent", "a list of names or a regular expression belongs here");
  // IA3Config.__post_init__: the check of two lists.
  const std::vector<std::string>& targets = ia3.target_modules.names;
  for (const std::string& name : ia3.feedforward_modules.names)
    if (!targets.empty() && std::find(targets.begin(), targets.end(), name) == targets.end())
      reader.fail("feedforward_modules", "inconsistent",
                  "found " + quote(name) + ", which is not among target_modules; peft wants a part of them");
  ia3.modules_to_save = reader.texts("modules_to_save");
  ia3.also_train = reader.texts("also_train");
  ia3.autocast_adapter_dtype = reader.boolean("autocast_adapter_dtype", true);
  check_adapters(training, reader, stage, model, ia3.modules_to_save);
  reader.finish();
  return ia3;
}

/// `true`, or which kernels: the arguments of apply_liger_kernel_to_llama, with its defaults.
LigerConfig read_liger(ConfigReader& training, const ModelConfig& model, const Runtime& runtime) {
  constexpr const char* kKey = "liger";
  LigerConfig liger;
  if (!training.has(kKey)) return liger;
  const bool is_object = training.is_object(kKey);
  if (!is_object && !training.boolean(kKey, false)) return liger;
  ConfigReader reader =
      is_object ? training.object(kKey) : ConfigReader(nullptr, "", Mode::strict, training.findings());
  liger.rope = reader.boolean("rope", true);
  liger.rms_norm = reader.boolean("rms_norm", true);
  liger.swiglu = reader.boolean("swiglu", true);
  liger.cross_entropy = reader.boolean("cross_entropy", false);
  liger.fused_linear_cross_entropy = reader.boolean("fused_linear_cross_entropy", true);
  liger.accumulates_in_fp32 = reader.choice<bool>("accum_dtype", false, {{"weight", false}, {"fp32", true}});
  if (liger.cross_entropy && liger.fused_linear_cross_entropy)
    reader.fail_found("cross_entropy", "inconsistent",
                      "Liger has one loss at a time: leave it out, or set fused_linear_cross_entropy to false");
  if (liger.accumulates_in_fp32 && !liger.fused_linear_cross_entropy)
    reader.fail_found("accum_dtype", "inconsistent", "only fused_linear_cross_entropy reads it: leave it out");
  reader.finish();
  const LlamaConfig* language = language_of(model);
  if (language && ((!std::holds_alternative<LlamaConfig>(model) && !is_llava_1_5(model)) ||
                   language->names == &kMistralClassNames)) {
    training.fail_found(kKey, "not-modelled",
                        std::string("Liger's kernels for ") + class_name(model) + " are not modelled: leave it out");
  } else if (!language) {
    training.fail_found(kKey, "inconsistent",
                        std::string("Liger has no kernels for ") + class_name(model) + ": leave it out");
  } else if (liger.swiglu && language->hidden_act != Activation::silu) {
    training.fail_found(
        kKey, "inconsistent",
        "Liger's SwiGLU computes silu, the model's hidden_act is another: {\"swiglu\": false} belongs here");
  } else if (std::max(language->hidden_size, language->intermediate_size) > 65536) {
    training.fail_found(kKey, "inconsistent", "Liger's kernels take rows of at most 65,536 elements: leave it out");
  }
  if (runtime.framework == Framework::llava || runtime.transformers < Version{5, 0, 0})
    training.fail_found(kKey, "not-modelled",
                        "Liger's kernels are modelled with transformers 5: leave it out, or set runtime.transformers");
  return liger;
}

/// transformers' BitsAndBytesConfig, by its own names.
std::optional<QuantizationConfig> read_quantization(ConfigReader& training, const TrainingConfig& so_far,
                                                    const ModelConfig& model, const Runtime& runtime) {
  constexpr const char* kKey = "quantization";
  if (!training.has(kKey)) return std::nullopt;
  ConfigReader reader = training.object(kKey);
  QuantizationConfig config;
  if (reader.boolean("load_in_8bit", false))
    reader.fail_found("load_in_8bit", "not-modelled",
                      "LLM.int8 is known and not modelled yet: load_in_4bit belongs here");
  const bool is_4bit = reader.boolean("load_in_4bit", false);
  config.is_nf4 = reader.choice<bool>("bnb_4bit_quant_type", false, {{"fp4", false}, {"nf4", true}});
  config.double_quant = reader.boolean("bnb_4bit_use_double_quant", false);
  config.compute_dtype =
      reader.choice<DType>("bnb_4bit_compute_dtype", DType::float32,
                           {{"float32", DType::float32}, {"bfloat16", DType::bfloat16}, {"float16", DType::float16}});
  if (reader.text("bnb_4bit_quant_storage", "uint8") != "uint8")
    reader.fail_found("bnb_4bit_quant_storage", "not-modelled",
                      "another storage is known and not modelled yet: \"uint8\" belongs here");
  if (reader.has("llm_int8_skip_modules")) config.skip_modules = reader.texts("llm_int8_skip_modules");
  for (const std::string& name : config.skip_modules.value_or(std::vector<std::string>{}))
    if (name.find_first_of("*+?[](){}|^$\\") != std::string::npos)
      reader.fail("llm_int8_skip_modules", "not-modelled",
                  "found " + quote(name) + "; names are modelled, expressions are not: name the modules");
  config.prepares = reader.boolean("prepare_model_for_kbit_training", true);
  reader.finish();
  if (!is_4bit) reader.fail_found("load_in_4bit", "missing", "true belongs here, or no quantization");
  if (!so_far.lora)
    training.fail_found(
        kKey, "inconsistent",
        so_far.ia3 ? "(IA)^3 on quantised weights is known and not modelled yet: training.lora belongs beside it"
                   : "quantised weights do not train: training.lora belongs beside it");
  else if (so_far.lora->use_dora || so_far.lora->bias != LoraBias::none)
    training.fail_found(kKey, "not-modelled",
                        "DoRA and trained biases on quantised weights are known and not modelled yet: leave them out");
  if (!std::holds_alternative<LlamaConfig>(model) && !is_llava_1_5(model))
    training.fail_found(
        kKey, "not-modelled",
        std::string("a quantised ") + class_name(model) + " is known and not modelled yet: leave it out");
  if (runtime.framework == Framework::llava || runtime.transformers < Version{5, 0, 0})
    training.fail_found(
        kKey, "not-modelled",
        "quantisation is modelled as transformers 5 loads it: leave it out, or set runtime.transformers");
  return config;
}

/// Refuses what acts on transformers' classes, of a model that has none.
void check_plain_training(ConfigReader& reader, const TrainingConfig& training, const char* why) {
  const auto refuse = [&](bool asked, const char* key) {
    if (asked) reader.fail_found(key, "not-modelled", why);
  };
  refuse(training.checkpointing != CheckpointingConfig(), "activation_checkpointing");
  refuse(training.lora.has_value(), "lora");
  refuse(training.ia3.has_value(), "ia3");
  refuse(training.liger != LigerConfig{}, "liger");
  refuse(training.quantization.has_value(), "quantization");
  refuse(training.attention == AttentionKind::eager, "attention");
}

TrainingConfig read_training(ConfigReader reader, const ModelConfig& model, const DataConfig& data, const Gpu& gpu,
                             const Runtime& runtime) {
  TrainingConfig training;
  training.stage = reader.choice("stage", training.stage, kStages);
  const Components given{reader.texts("freeze"), reader.texts("train_only"), reader.texts("no_grad")};
  if (training.stage == Stage::custom) {
    training.components = given;
  } else {
    training.components = resolve_stage(reader, training.stage, model, runtime.framework);
    for (const char* key : {"freeze", "train_only", "no_grad"}) {
      if (!reader.texts(key).empty()) {
        reader.fail_found(key, "inconsistent", "only stage \"custom\" reads it: leave it out or set the stage");
      }
    }
  }
  if (training.stage == Stage::pretrain && data.images_per_sample == 0) {
    reader.fail_found("stage", "inconsistent", "without images nothing reaches the projector: give images_per_sample");
  }
  if (const auto* graph = std::get_if<GraphConfig>(&model))
    training.precision = precision_of_graph(reader, *graph->graph);
  const bool is_nanovlm = std::holds_alternative<NanoVlmConfig>(model);
  if (is_nanovlm) training.precision = Precision::amp_bf16;  // as its train.py has it
  training.precision = reader.choice("precision", training.precision, kPrecisions);
  training.optimizer = read_optimizer(reader.object("optimizer"));
  training.attention = reader.choice("attention", training.attention, kAttentions);
  check_attention(reader, training.attention, training.precision, gpu, runtime);
  training.checkpointing = read_checkpointing(reader, runtime);
  training.max_grad_norm = reader.optional_number("max_grad_norm", 0.0, 1e12);
  if (training.max_grad_norm == 0.0) training.max_grad_norm.reset();  // HF Trainer: 0 does not clip
  training.gradient_accumulation_steps = reader.integer("gradient_accumulation_steps", 1, kBatch);
  training.keep_outputs = reader.boolean("keep_outputs", false);
  training.loss = read_loss(reader, model);
  training.lora = read_lora(reader, training.stage, model, runtime);
  training.ia3 = read_ia3(reader, training.stage, model);
  training.liger = read_liger(reader, model, runtime);
  training.save_on_cpu = reader.choice("save_on_cpu", SavesOn::device, kSavesOn);
  training.quantization = read_quantization(reader, training, model, runtime);
  training.checkpointing.input_require_grads =
      (training.lora || training.ia3) && training.checkpointing.mode != CheckpointMode::none;
  if (std::holds_alternative<GraphConfig>(model)) {
    check_plain_training(reader, training, "a graph has its operators as they were recorded: leave it out");
    check_graph_training(reader, training);
  }
  if (is_nanovlm) {
    check_plain_training(reader, training, "nanoVLM's own code does not have it: leave it out");
    if (training.precision == Precision::bf16 || training.precision == Precision::fp16)
      reader.fail_found("precision", "inconsistent",
                        "amp-bf16 or fp32 belongs here: nanoVLM's rotary embeddings stay in float32, and attention "
                        "takes one type");
  }
  reader.finish();
  return training;
}

// --- inference -------------------------------------------------------------------------------------------------------

InferenceConfig read_inference(ConfigReader reader, const Job& job) {
  InferenceConfig inference;
  if (!model_traits(job.model.config).generates) {  // a forward alone
    for (const char* key : {"new_tokens", "turns", "turn_tokens", "logits", "cache"})
      if (reader.has(key))
        reader.fail_found(key, "inconsistent",
                          std::string(class_name(job.model.config)) + " does not generate: leave it out");
  }
  inference.new_tokens = reader.integer("new_tokens", inference.new_tokens, kNewTokens);
  inference.turns = reader.integer("turns", 1, kTurns);
  inference.turn_tokens = reader.integer("turn_tokens", inference.turn_tokens, kNewTokens);
  inference.logits = reader.choice("logits", inference.logits, kLogits);
  ConfigReader cache = reader.object("cache");
  inference.cache.implementation = cache.choice("implementation", inference.cache.implementation, kCaches);
  inference.cache.max_cache_len = cache.optional_integer("max_cache_len", kLength).value_or(0);
  if (inference.cache.max_cache_len != 0 && inference.cache.implementation != CacheImplementation::static_)
    cache.fail_found("max_cache_len", "inconsistent", "only a static cache reads it: leave it out");
  if (inference.turns > 1 && inference.cache.implementation == CacheImplementation::static_)
    reader.fail_found("turns", "not-modelled", "several turns are modelled with a dynamic cache: 1 belongs here");
  CacheConfig& config = inference.cache;
  const bool is_paged = config.implementation == CacheImplementation::paged;
  config.block_size = cache.integer("block_size", config.block_size, {1, 1 << 16});
  config.gpu_memory_utilization = cache.number("gpu_memory_utilization", config.gpu_memory_utilization, 0.01, 1.0);
  config.max_num_batched_tokens = cache.optional_integer("max_num_batched_tokens", kLength).value_or(0);
  config.shared_prefix = cache.integer("shared_prefix", 0, {0, kLength.max});
  const CacheConfig defaults;
  const auto is_vllms = [&](const char* key, bool differs) {
    if (differs && !is_paged)
      cache.fail_found(key, "inconsistent", "only a paged cache, vLLM's, reads it: leave it out");
  };
  is_vllms("block_size", config.block_size != defaults.block_size);
  is_vllms("gpu_memory_utilization", config.gpu_memory_utilization != defaults.gpu_memory_utilization);
  is_vllms("max_num_batched_tokens", config.max_num_batched_tokens != 0);
  is_vllms("shared_prefix", config.shared_prefix != 0);
  if (config.shared_prefix > job.data.sequence_length)
    cache.fail_found("shared_prefix", "inconsistent", "at most the prompt's tokens, data.sequence_length, belong here");
  if (is_paged && inference.logits == Logits::all)
    reader.fail_found("logits", "inconsistent", "vLLM computes the last token's: \"last\" belongs here");
  cache.finish();
  reader.finish();
  return inference;
}

/// What a training section may say of a job that infers: in which type the weights are, and how attention runs.
TrainingConfig read_training_of_inference(ConfigReader reader, const Job& job) {
  TrainingConfig training;
  training.precision = reader.choice("precision", training.precision, kPrecisions);
  if (uses_autocast(training.precision))
    reader.fail_found("precision", "not-modelled", "weights are loaded as fp32, bf16 or fp16, which belong here");
  training.attention = reader.choice("attention", training.attention, kAttentions);
  check_attention(reader, training.attention, training.precision, job.gpu, job.runtime);
  if (job.inference.cache.implementation == CacheImplementation::paged && training.attention == AttentionKind::eager)
    reader.fail_found("attention", "inconsistent", "vLLM's attention is a kernel: \"sdpa\" stands for it here");
  for (const char* key :
       {"stage", "freeze", "train_only", "no_grad", "optimizer", "activation_checkpointing", "max_grad_norm",
        "gradient_accumulation_steps", "keep_outputs", "loss", "lora", "ia3", "liger", "save_on_cpu", "quantization"})
    if (reader.has(key))
      reader.fail_found(key, "inconsistent", "inference reads precision and attention only: leave it out");
  reader.finish();
  return training;
}

// --- parallel --------------------------------------------------------------------------------------------------------

/// transformers' fill_match: "auto" becomes what the trainer has, anything else must be equal to it.
void match_integer(ConfigReader& reader, const char* key, std::int64_t expected) {
  if (reader.is_auto(key)) return;
  const auto value = reader.optional_integer(key);
  if (value && *value != expected) {
    reader.fail_found(key, "inconsistent",
                      "\"auto\" or " + std::to_string(expected) + ", as the rest of the job says, belongs here");
  }
}

void match_enabled(ConfigReader& ds, const char* block, bool expected) {
  ConfigReader reader = ds.object(block);
  if (!reader.has("enabled") || reader.is_auto("enabled")) return;
  if (reader.boolean("enabled", expected) != expected) {
    reader.fail_found(
        "enabled", "inconsistent",
        std::string("\"auto\" or ") + (expected ? "true" : "false") + ", as training.precision says, belongs here");
  }
}

/// `offload_optimizer` or `offload_param`.
OffloadDevice read_offload(ConfigReader& zero, const char* key, std::int64_t stage, const Runtime& runtime) {
  ConfigReader reader = zero.object(key);
  const OffloadDevice device =
      reader.choice("device", OffloadDevice::none,
                    {{"none", OffloadDevice::none}, {"cpu", OffloadDevice::cpu}, {"nvme", OffloadDevice::nvme}});
  const auto refuse = [&](const char* code, const std::string& message) { reader.fail_found("device", code, message); };
  if (device == OffloadDevice::none) return device;
  if (key == std::string_view("offload_param") && stage != 3)
    refuse("inconsistent", "DeepSpeed offloads parameters at stage 3 only: \"none\", or stage 3, belongs here");
  else if (device == OffloadDevice::nvme && stage == 3)
    refuse("not-modelled", "offload to NVMe is known and not modelled yet: \"none\" or \"cpu\" belongs here");
  else if (runtime.deepspeed < Version{0, 16, 0})
    refuse("not-modelled", "offload is modelled for DeepSpeed 0.16 and later: \"none\" belongs here");
  if (reader.number("ratio", 1.0, 0.0, 1.0) != 1.0)
    reader.fail_found("ratio", "not-modelled", "Offload++ is known and not modelled yet: 1.0 belongs here");
  if (reader.boolean("super_offload", false))
    reader.fail_found("super_offload", "not-modelled", "it is known and not modelled yet: false belongs here");
  reader.ignore({"nvme_path", "buffer_count", "buffer_size", "max_in_cpu", "pin_memory", "pipeline_read",
                 "pipeline_write", "fast_init", "cpuadam_cores_perc"});
  reader.finish();
  return device;
}

void check_stage(ConfigReader& reader, const char* key, std::int64_t stage) {
  if (stage == 0) {
    reader.fail_found(key, "not-modelled", "ZeRO 0 is known and not modelled yet: 1, 2 or 3 belongs here");
  }
}

/// DeepSpeedEngine._configure_basic_optimizer (0.19.8, runtime/engine.py); transformers gives it all parameters in one
/// group (deepspeed_optim_sched).
OptimizerConfig read_ds_optimizer(ConfigReader reader) {
  OptimizerConfig optimizer;
  optimizer.param_groups = 1;
  std::string type = reader.text("type", "");
  for (char& c : type) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  if (type != "adam" && type != "adamw")
    reader.fail_found("type", "not-modelled", "\"Adam\" or \"AdamW\" belongs here, or no optimizer at all");
  ConfigReader params = reader.object("params");
  params.refuse("max_grad_norm",
                "DeepSpeed refuses it here: gradient_clipping, outside of the optimizer, is its place");
  if (params.boolean("amsgrad", false)) params.fail_found("amsgrad", "not-modelled", "false belongs here");
  const bool is_adamw = params.boolean("adam_w_mode", true) || type == "adamw";
  optimizer.name = is_adamw ? OptimizerName::adamw : OptimizerName::adam;
  const bool is_torch = params.boolean("torch_adam", false);
  optimizer.implementation = !is_torch                         ? OptimizerImplementation::deepspeed_fused
                             : params.boolean("foreach", true) ? OptimizerImplementation::foreach_
                                                               : OptimizerImplementation::for_loop;
  params.ignore({"lr", "betas", "eps", "weight_decay", "bias_correction", "foreach", "fp32_optimizer_states"});
  params.finish();
  reader.ignore({"legacy_fusion"});
  reader.finish();
  return optimizer;
}

/// A DeepSpeed configuration as transformers finishes it. `hidden_size` resolves "auto".
DeepSpeedConfig read_ds_config(ConfigReader ds, const TrainingConfig& training, const DataConfig& data,
                               std::int64_t replicas, std::int64_t hidden_size, const Runtime& runtime) {
  DeepSpeedConfig config;
  match_integer(ds, "train_micro_batch_size_per_gpu", data.micro_batch_size);
  match_integer(ds, "gradient_accumulation_steps", training.gradient_accumulation_steps);
  match_integer(ds, "train_batch_size", data.micro_batch_size * training.gradient_accumulation_steps * replicas);
  match_enabled(ds, "bf16", training.precision == Precision::bf16);
  match_enabled(ds, "fp16", training.precision == Precision::fp16);
  config.gradient_clipping = ds.is_auto("gradient_clipping") ? training.max_grad_norm.value_or(0.0)
                                                             : ds.number("gradient_clipping", 0.0, 0.0, 1e12);
  for (const char* key : {"activation_checkpointing", "compression_training", "amp", "torch_autocast", "data_types",
                          "communication_data_type", "sparse_attention", "autotuning", "tensor_parallel",
                          "sequence_parallel_size", "zero_force_ds_cpu_optimizer", "compile"}) {
    if (ds.has(key)) ds.findings().unmodelled.push_back(ds.pointer_to(key) + ": is not modelled");
  }
  ds.ignore({"activation_checkpointing",
             "amp",
             "autotuning",
             "checkpoint",
             "comms_logger",
             "communication_data_type",
             "compile",
             "compression_training",
             "csv_monitor",
             "data_efficiency",
             "data_types",
             "dump_state",
             "flops_profiler",
             "memory_breakdown",
             "prescale_gradients",
             "gradient_predivide_factor",
             "scheduler",
             "sequence_parallel_size",
             "sparse_attention",
             "steps_per_print",
             "tensor_parallel",
             "tensorboard",
             "torch_autocast",
             "wall_clock_breakdown",
             "wandb",
             "zero_allow_untested_optimizer",
             "zero_force_ds_cpu_optimizer"});

  if (!ds.has("zero_optimization")) {
    ds.fail("zero_optimization", "missing", "found nothing; {\"stage\": 2, ...} belongs here");
  }
  ConfigReader zero = ds.object("zero_optimization");
  config.zero_stage = zero.integer("stage", 0, {0, 3});
  check_stage(zero, "stage", config.zero_stage);
  if (zero.is_auto("reduce_bucket_size")) {
    config.reduce_bucket_size = hidden_size * hidden_size;
  } else {
    config.reduce_bucket_size = zero.integer("reduce_bucket_size", config.reduce_bucket_size, kElements);
  }
  config.allgather_bucket_size = zero.integer("allgather_bucket_size", config.allgather_bucket_size, kElements);
  config.sub_group_size = zero.integer("sub_group_size", config.sub_group_size, kElements);
  // overlap_comm_valid: on by default at stage 3.
  config.overlap_comm = zero.boolean("overlap_comm", config.zero_stage == 3);
  // HfTrainerDeepSpeedConfig.trainer_config_finalize (transformers 5.23)
  const auto elements = [&](const char* key, std::int64_t automatic, std::int64_t otherwise) {
    return zero.is_auto(key) ? automatic : zero.integer(key, otherwise, kElementsOrNone);
  };
  config.prefetch_bucket_size =
      elements("stage3_prefetch_bucket_size", hidden_size * hidden_size * 9 / 10, config.prefetch_bucket_size);
  config.param_persistence_threshold =
      elements("stage3_param_persistence_threshold", 10 * hidden_size, config.param_persistence_threshold);
  config.max_live_parameters = zero.integer("stage3_max_live_parameters", config.max_live_parameters, kElementsOrNone);
  config.max_reuse_distance = zero.integer("stage3_max_reuse_distance", config.max_reuse_distance, kElementsOrNone);
  config.model_persistence_threshold =
      zero.integer("stage3_model_persistence_threshold", config.model_persistence_threshold,
                   {0, std::numeric_limits<std::int64_t>::max()});
  config.allgather_sequential = zero.boolean("stage3_allgather_sequential", false);
  config.memory_efficient_linear = zero.boolean("memory_efficient_linear", true);
  config.contiguous_gradients = zero.boolean("contiguous_gradients", true);
  config.reduce_scatter = zero.boolean("reduce_scatter", true);
  config.round_robin_gradients = zero.boolean("round_robin_gradients", false);
  config.offload_optimizer = read_offload(zero, "offload_optimizer", config.zero_stage, runtime);
  config.offload_param = read_offload(zero, "offload_param", config.zero_stage, runtime);
  for (const char* key : {"cpu_offload", "cpu_offload_param", "zenflow", "zero_quantized_gradients"}) {
    zero.refuse(key, "it is known and not modelled yet: leave it out");
  }
  // The other keys of DeepSpeedZeroConfig (extra="forbid"): stage 3's, and those that change no memory at stage 2.
  zero.ignore({"allgather_partitions",
               "compute_grad_norm",
               "cpu_offload_use_pin_memory",
               "elastic_checkpoint",
               "enable_sanity_checks",
               "ignore_unused_parameters",
               "leaf_module",
               "legacy_stage1",
               "load_from_fp32_weights",
               "log_trace_cache_warnings",
               "override_module_apply",
               "parameter_alignment",
               "pipeline_loading_checkpoint",
               "save_muon_momentum_buffer_in_memory",
               "stage3_gather_16bit_weights_on_model_save",
               "stage3_gather_fp16_weights_on_model_save",
               "stage3_module_granularity_threshold",
               "stage3_use_all_reduce_for_fetch_params",
               "use_multi_rank_bucket_allreduce",
               "zero_hpz_partition_size",
               "zero_quantized_nontrainable_weights",
               "zero_quantized_weights"});
  zero.finish();
  ds.finish();
  return config;
}

/// LLaVA's scripts/zero2.json and zero3.json (v1.2.2): what `zero_stage` alone means.
DeepSpeedConfig llava_zero(std::int64_t stage, std::int64_t hidden_size) {
  DeepSpeedConfig config;
  config.zero_stage = stage;
  config.overlap_comm = true;
  config.reduce_bucket_size = hidden_size * hidden_size;
  if (stage == 3) {
    config.prefetch_bucket_size = hidden_size * hidden_size * 9 / 10;
    config.param_persistence_threshold = 10 * hidden_size;
  }
  return config;
}

/// DistributedDataParallel's keyword arguments.
DdpConfig read_ddp(ConfigReader ddp, const TrainingConfig& training, const Runtime& runtime) {
  DdpConfig config;
  config.bucket_cap_mb = ddp.optional_integer("bucket_cap_mb", kBucketMegabytes);
  config.broadcast_buffers = ddp.boolean("broadcast_buffers", config.broadcast_buffers);
  config.find_unused_parameters = ddp.boolean("find_unused_parameters", config.find_unused_parameters);
  config.gradient_as_bucket_view = ddp.boolean("gradient_as_bucket_view", config.gradient_as_bucket_view);
  config.static_graph = ddp.boolean("static_graph", config.static_graph);
  config.lazy_bucket_allocation = ddp.boolean("lazy_bucket_allocation", config.lazy_bucket_allocation);
  for (const char* key : {"batched_grad_copy", "skip_all_reduce_unused_params"}) ddp.boolean(key, false);
  if (config.lazy_bucket_allocation && runtime.torch < Version{2, 15, 0})
    ddp.fail_found("lazy_bucket_allocation", "inconsistent", "torch has it since 2.15: leave it out");
  if (config.find_unused_parameters && !config.static_graph &&
      training.checkpointing.mode == CheckpointMode::reentrant) {
    ddp.fail_found("find_unused_parameters", "inconsistent",
                   "DistributedDataParallel stops with reentrant checkpointing (a parameter is marked ready twice): "
                   "leave it out, set static_graph, or use non-reentrant checkpointing");
  }
  ddp.finish();
  return config;
}

/// The classes that transformers does not split, which accelerate wraps by default (`_no_split_modules`).
constexpr const char* kBlocks[] = {"LlamaDecoderLayer",     "MistralDecoderLayer", "Qwen2DecoderLayer",
                                   "CLIPEncoderLayer",      "SiglipEncoderLayer",  "Idefics3VisionAttention",
                                   "SmolVLMVisionAttention"};
/// The blocks of those models whose list names a part of one.
constexpr const char* kOtherBlocks[] = {"Idefics3EncoderLayer", "SmolVLMEncoderLayer"};

constexpr Name<FsdpConfig::Sharding> kShardings[] = {{"FULL_SHARD", FsdpConfig::Sharding::full_shard},
                                                     {"SHARD_GRAD_OP", FsdpConfig::Sharding::shard_grad_op},
                                                     {"NO_SHARD", FsdpConfig::Sharding::no_shard}};
constexpr Name<FsdpConfig::BackwardPrefetch> kPrefetches[] = {
    {"BACKWARD_PRE", FsdpConfig::BackwardPrefetch::pre},
    {"BACKWARD_POST", FsdpConfig::BackwardPrefetch::post},
    {"NO_PREFETCH", FsdpConfig::BackwardPrefetch::none}};  // accelerate's name for None
constexpr Name<DType> kFloats[] = {{"fp32", DType::float32}, {"bf16", DType::bfloat16}, {"fp16", DType::float16}};

std::optional<DType> read_dtype(ConfigReader& reader, const char* key, std::optional<DType> fallback) {
  if (!reader.has(key)) return fallback;
  return reader.choice(key, DType::float32, kFloats);
}

/// FullyShardedDataParallel's and fully_shard's arguments: each takes some that the other has not.
FsdpConfig read_fsdp(ConfigReader fsdp, const Job& job, Strategy strategy) {
  FsdpConfig config;
  const bool first = strategy == Strategy::fsdp1;
  const bool mixed = fsdp.boolean("mp", false);
  const auto given = [&](DType dtype) { return mixed ? std::optional(dtype) : std::nullopt; };
  config.param_dtype = read_dtype(fsdp, "param_dtype", given(DType::bfloat16));
  config.reduce_dtype = read_dtype(fsdp, "reduce_dtype", given(DType::float32));
  config.buffer_dtype = read_dtype(fsdp, "buffer_dtype", first ? given(DType::bfloat16) : std::nullopt);
  config.cpu_offload = fsdp.boolean("cpu_offload", config.cpu_offload);
  config.reshard_after_forward = fsdp.boolean("reshard_after_forward", config.reshard_after_forward);
  if (const json* sharding = fsdp.find("sharding");
      sharding && sharding->is_string() && sharding->get<std::string>().find("HYBRID") != std::string::npos)
    fsdp.fail_found("sharding", "not-modelled",
                    "sharding within a node is known and not modelled yet: FULL_SHARD belongs here");
  config.sharding = fsdp.choice("sharding", config.sharding, kShardings);
  config.backward_prefetch = fsdp.is_null("backward_prefetch")
                                 ? FsdpConfig::BackwardPrefetch::none
                                 : fsdp.choice("backward_prefetch", config.backward_prefetch, kPrefetches);
  config.use_orig_params = fsdp.boolean("use_orig_params", config.use_orig_params);
  config.forward_prefetch = fsdp.boolean("forward_prefetch", config.forward_prefetch);
  config.limit_all_gathers = fsdp.boolean("limit_all_gathers", config.limit_all_gathers);
  config.sync_module_states = fsdp.boolean("sync_module_states", config.sync_module_states);
  if (fsdp.boolean("keep_low_precision_grads", false))
    fsdp.fail_found("keep_low_precision_grads", "inconsistent",
                    "torch.optim stops at gradients of another dtype than their parameters': leave it out");
  const auto of_other = [&](std::initializer_list<const char*> keys, const char* whose) {
    for (const char* key : keys)
      if (fsdp.has(key))
        fsdp.fail_found(key, "inconsistent", std::string("only strategy ") + whose + " has it: leave it out");
  };
  if (first)
    of_other({"reshard_after_forward"}, "\"fsdp2\"");
  else
    of_other({"sharding", "backward_prefetch", "buffer_dtype", "use_orig_params", "forward_prefetch",
              "limit_all_gathers", "sync_module_states", "keep_low_precision_grads"},
             "\"fsdp1\"");
  config.wrap =
      fsdp.has("wrap") ? fsdp.texts("wrap") : std::vector<std::string>(std::begin(kBlocks), std::end(kBlocks));
  for (const std::string& name : config.wrap) {
    std::string known;
    bool found = false;
    const auto look = [&](const char* block) {
      known += (known.empty() ? "" : ", ") + std::string(block);
      found |= name == block;
    };
    std::for_each(std::begin(kBlocks), std::end(kBlocks), look);
    std::for_each(std::begin(kOtherBlocks), std::end(kOtherBlocks), look);
    if (!found) fsdp.fail("wrap", "unknown-value", "found " + quote(name) + "; the blocks belong here: " + known);
  }
  const Precision precision = job.training.precision;
  if (config.param_dtype && (precision == Precision::bf16 || precision == Precision::fp16)) {
    fsdp.fail_found(mixed ? "mp" : "param_dtype", "inconsistent",
                    "FSDP's mixed precision keeps the weights in float32: \"fp32\" or \"amp-bf16\" belongs in "
                    "training.precision");
  }
  if (precision == Precision::amp_fp16) {
    fsdp.fail("", "not-modelled",
              "GradScaler under FSDP is known and not modelled yet: bf16 or amp-bf16 belongs in training.precision");
  }
  if (config.cpu_offload && (config.sharding == FsdpConfig::Sharding::no_shard || job.training.max_grad_norm))
    fsdp.fail_found("cpu_offload", "not-modelled",
                    "offloading with NO_SHARD or max_grad_norm is known and not modelled yet: leave one out");
  fsdp.finish();
  return config;
}

struct Parallel {
  ParallelConfig config;
  std::string ds_config_json;
  std::optional<OptimizerConfig> optimizer;  ///< the ds_config's, which HF Trainer then takes
};

Parallel read_parallel(ConfigReader reader, const Job& job) {
  Parallel parallel;
  ParallelConfig& config = parallel.config;
  config.strategy = reader.choice("strategy", config.strategy, kStrategies);
  config.data = reader.integer("data", 1, kReplicas);
  if (const json* rank = reader.find("rank"); rank && rank->is_string())
    config.all_ranks = reader.choice<bool>("rank", false, {{"all", true}});
  else
    config.rank = reader.optional_integer("rank", {0, config.data - 1});
  const bool deepspeed = config.strategy == Strategy::deepspeed;
  if (config.strategy == Strategy::none && config.data > 1) {
    reader.fail(reader.has("strategy") ? "strategy" : "data", "inconsistent",
                "found " + std::to_string(config.data) +
                    " replicas without a strategy; ddp, or deepspeed with a zero_stage, belongs here");
  }
  if (config.strategy == Strategy::ddp) {
    config.ddp = read_ddp(reader.object("ddp"), job.training, job.runtime);
  } else if (reader.has("ddp")) {
    reader.fail_found("ddp", "inconsistent", "only strategy \"ddp\" reads it: leave it out or set the strategy");
  }
  const bool fsdp = config.strategy == Strategy::fsdp1 || config.strategy == Strategy::fsdp2;
  if (fsdp) {
    config.fsdp = read_fsdp(reader.object("fsdp"), job, config.strategy);
    if (job.runtime.torch < Version{2, 15, 0})
      reader.fail_found("strategy", "not-modelled", "FSDP is modelled for torch 2.15: ddp or deepspeed belongs here");
    if (job.training.save_on_cpu != SavesOn::device || job.training.checkpointing.offload)
      reader.fail_found("strategy", "not-modelled",
                        "saved tensors in host memory under FSDP is known and not modelled yet: none, ddp or deepspeed "
                        "belongs here, or nothing offloaded");
    if (job.training.liger != LigerConfig{})
      reader.fail_found("strategy", "not-modelled",
                        "Liger's kernels under FSDP is known and not modelled yet: none, ddp or deepspeed belongs "
                        "here, or no training.liger");
    for (const StackSegments& stack : job.training.checkpointing.segments)
      if (std::any_of(stack.segments.begin(), stack.segments.end(),
                      [](const CheckpointSegment& segment) { return segment.end - segment.begin > 1; }))
        reader.fail_found("strategy", "not-modelled",
                          "checkpointed regions of several blocks under FSDP is known and not modelled yet: single "
                          "blocks belong in training.activation_checkpointing.segments");
  } else if (reader.has("fsdp")) {
    reader.fail_found("fsdp", "inconsistent", "only \"fsdp1\" and \"fsdp2\" read it: leave it out or set the strategy");
  }
  for (const char* key : {"zero_stage", "ds_config"}) {
    if (reader.has(key) && !deepspeed) {
      reader.fail_found(key, "inconsistent", "only strategy \"deepspeed\" reads it: leave it out or set the strategy");
    }
  }
  reader.ignore({"accelerate_config"});  // spelled out before
  const auto stage = reader.optional_integer("zero_stage", {0, 3});
  const bool is_plain =
      std::holds_alternative<GraphConfig>(job.model.config) || std::holds_alternative<NanoVlmConfig>(job.model.config);
  if (is_plain && (deepspeed || fsdp))
    reader.fail_found("strategy", "not-modelled",
                      std::string(class_name(job.model.config)) +
                          " under it is known and not modelled yet: none or ddp belongs here");
  if (job.training.quantization && (deepspeed || fsdp))
    reader.fail_found("strategy", "not-modelled",
                      "quantised weights under it is known and not modelled yet: none or ddp belongs here");
  if (job.training.optimizer.is_bitsandbytes() && (deepspeed || fsdp))
    reader.fail_found("strategy", "not-modelled",
                      "bitsandbytes' optimizers on sharded parameters are known and not modelled yet: none or ddp "
                      "belongs here, or an implementation of torch's");
  if (job.training.optimizer.implementation == OptimizerImplementation::deepspeed_fused && !deepspeed)
    reader.fail("strategy", "inconsistent",
                "found training.optimizer.implementation \"deepspeed-fused\", which only strategy \"deepspeed\" has");
  if (deepspeed && reader.ok()) {
    const std::int64_t hidden_size = model_traits(job.model.config).hidden_size;
    const Precision precision = job.training.precision;
    if (stage) check_stage(reader, "zero_stage", *stage);
    if (precision == Precision::amp_bf16 || precision == Precision::amp_fp16) {
      reader.fail(
          "strategy", "inconsistent",
          "found deepspeed with training.precision " + name_of(precision, kPrecisions) +
              "; the engine holds the weights in half precision and does not autocast: bf16 or fp16 belongs there");
    }
    if (const json* given = reader.find("ds_config")) {
      parallel.ds_config_json = given->is_object() ? given->dump() : "";
      ConfigReader ds = reader.object("ds_config");
      if (ds.has("optimizer")) parallel.optimizer = read_ds_optimizer(ds.object("optimizer"));
      config.deepspeed = read_ds_config(std::move(ds), job.training, job.data, config.data, hidden_size, job.runtime);
      // DeepSpeedCPUAdam has nothing on the device, and neither has its stand-in.
      if (parallel.optimizer && config.deepspeed.offloads_optimizer())
        parallel.optimizer->implementation = OptimizerImplementation::fused;
      if (stage && reader.ok() && *stage != config.deepspeed.zero_stage) {
        reader.fail_found(
            "zero_stage", "inconsistent",
            "the ds_config says " + std::to_string(config.deepspeed.zero_stage) + ": leave one of them out");
      }
    } else if (stage) {
      config.deepspeed = llava_zero(*stage, hidden_size);
    } else {
      reader.fail("zero_stage", "missing", "found nothing; zero_stage or ds_config belongs here");
    }
    // What reads weights of modules that are not called, or keeps weights elsewhere.
    const TrainingConfig& training = job.training;
    const bool is_unknown = training.ia3 || (training.lora && training.lora->use_dora) ||
                            training.liger != LigerConfig{} || training.save_on_cpu != SavesOn::device ||
                            training.checkpointing.offload || !training.checkpointing.segments.empty();
    if (config.deepspeed.zero_stage == 3 && is_unknown && reader.ok())
      reader.fail(
          reader.has("zero_stage") ? "zero_stage" : "ds_config", "not-modelled",
          "found stage 3 with DoRA, (IA)^3, Liger's kernels, chosen checkpoints or saved tensors in host memory, "
          "which under ZeRO-3 are known and not modelled yet: stage 2, or a job without them, belongs here");
  }
  reader.finish();
  return parallel;
}

// --- gpu -------------------------------------------------------------------------------------------------------------

constexpr const char* kDefaultGpu = "h100-80gb";

Gpu read_gpu(ConfigReader reader) {
  const auto bytes = reader.optional_integer("usable_bytes", kUsableBytes);
  const std::string capability = reader.text("compute_capability", "9.0");
  const std::string name = reader.text("name", kDefaultGpu);
  reader.optional_integer("count", kReplicas);  // checked when the degrees are known
  Gpu gpu;
  if (reader.has("usable_bytes")) {
    if (reader.has("name")) reader.fail_found("name", "inconsistent", "name or usable_bytes belongs here, not both");
    const auto parsed = parse_compute_capability(capability);
    if (!parsed) reader.fail("compute_capability", parsed.error().code.c_str(), parsed.error().message);
    if (bytes && parsed) gpu = describe_gpu(*bytes, parsed->first, parsed->second);
  } else {
    if (reader.has("compute_capability")) {
      reader.fail_found("compute_capability", "inconsistent", "the named GPU has its own: leave it out");
    }
    if (const Result<Gpu> found = find_gpu(name)) {
      gpu = *found;
    } else {
      reader.fail("name", found.error().code.c_str(), found.error().message);
    }
  }
  reader.finish();
  return gpu;
}

void check_count(ConfigReader reader, const ParallelConfig& parallel) {
  const auto count = reader.optional_integer("count", kReplicas);
  if (count && *count != parallel.world_size()) {
    reader.fail_found(
        "count", "inconsistent",
        std::to_string(parallel.world_size()) + ", the product of the degrees of parallelism, belongs here");
  }
}

/// A job in its own keys.
Result<Job> read_job(const json& document) {
  Findings findings;
  ConfigReader reader(&document, "", Mode::strict, findings);
  Job job;
  reader.integer("version", 1, {1, 1});
  job.task = reader.choice("task", job.task, kTasks);
  const bool infers = job.task == Task::inference;
  if (!infers && reader.has("inference"))
    reader.fail("inference", "inconsistent",
                "found it in a job that trains: \"task\": \"inference\" belongs beside it");
  job.runtime = read_runtime(reader.object("runtime"));
  job.calibration = read_calibration(reader.object("calibration"));
  job.gpu = read_gpu(reader.object("gpu"));
  if (!reader.has("model"))
    reader.fail("model", "missing", "found nothing; {\"preset\": NAME} or {\"config\": {...}} belongs here");

  // Each part reads what comes before it: after an error there is nothing sound to read.
  if (findings.error) return *findings.error;
  std::int64_t usual_length = 0;
  std::tie(job.model, usual_length) = read_model(reader.object("model"), job.runtime.framework);
  if (findings.error) return *findings.error;
  const auto* llava = std::get_if<LlavaConfig>(&job.model.config);
  if (job.runtime.framework == Framework::llava && !is_llava_1_5(job.model.config)) {
    reader.object("runtime").fail_found("framework", "inconsistent",
                                        "the original LLaVA code is modelled with LLaVA-1.5's models only");
  } else if (job.runtime.framework == Framework::transformers && llava && llava->original_format) {
    reader.fail("runtime", "inconsistent",
                "found a config.json of the original LLaVA code; {\"framework\": \"llava\"} belongs here");
  }
  const ModelTraits traits = model_traits(job.model.config);
  if (job.runtime.framework == Framework::transformers && job.runtime.transformers < traits.oldest_transformers)
    reader.object("runtime").fail_found(
        "transformers", "not-modelled",
        "this model is modelled as transformers " + to_string(traits.oldest_transformers) + " and later run it");
  if (infers && !traits.infers)
    reader.fail_found("task", "not-modelled",
                      "inference of this model is known and not modelled yet: \"train\", or another one, belongs here");
  if (infers && (job.runtime.framework != Framework::transformers || job.runtime.transformers < Version{5, 23, 0}))
    reader.object("runtime").fail_found("transformers", "not-modelled",
                                        "inference is modelled as transformers 5.23 generates");
  job.data = read_data(reader.object("data"), job.model.config, usual_length);
  if (findings.error) return *findings.error;
  if (!(std::visit(LargestTensor{job.data}, job.model.config) <= kLargestTensor)) {
    return Error{
        "out-of-range", "/data",
        "found sizes whose product is a tensor of more than 16 TiB; smaller ones belong in data or model.config"};
  }
  if (infers) {
    job.inference = read_inference(reader.object("inference"), job);
    job.training = read_training_of_inference(reader.object("training"), job);
  } else {
    job.training = read_training(reader.object("training"), job.model.config, job.data, job.gpu, job.runtime);
  }
  if (findings.error) return *findings.error;
  const LlamaConfig* language = language_of(job.model.config);
  // Eager attention has a mask of the same size with a window and without.
  if (language && language->sliding_window != 0 && job.data.sequence_length >= language->sliding_window &&
      job.training.attention != AttentionKind::eager)
    return Error{"not-modelled", "/data/sequence_length",
                 "found " + std::to_string(job.data.sequence_length) + "; less than the model's sliding_window (" +
                     std::to_string(language->sliding_window) + ") belongs here, or eager attention"};
  Parallel parallel = read_parallel(reader.object("parallel"), job);
  if (infers && (parallel.config.strategy != Strategy::none || parallel.config.world_size() != 1))
    reader.fail("parallel", "not-modelled", "inference is modelled on one GPU: leave it out");
  job.parallel = parallel.config;
  if (llava && llava->vision.has_head && job.parallel.shards_parameters())
    reader.object("parallel")
        .fail_found("strategy", "not-modelled",
                    "SigLIP's head on shards is not modelled yet: a vision_config with "
                    "\"vision_use_head\": false, as the model needs no head, or another strategy "
                    "belongs here");
  job.ds_config_json = std::move(parallel.ds_config_json);
  if (parallel.optimizer) job.training.optimizer = *parallel.optimizer;
  check_count(reader.object("gpu"), job.parallel);
  reader.finish();
  if (findings.error) return *findings.error;
  if (std::optional<Error> error = not_carried(job)) return *std::move(error);

  job.unmodelled = std::move(findings.unmodelled);
  job.assumptions = runtime_caveats(job.runtime);
  if (job.training.optimizer.implementation == OptimizerImplementation::deepspeed_fused)
    job.assumptions.emplace_back(
        "the optimizer is DeepSpeed's FusedAdam, as the ds_config asks; its kernel takes no memory");
  if (!job.training.checkpointing.segments.empty())
    job.assumptions.emplace_back(
        "the listed blocks are checkpointed by code of one's own: transformers itself knows all blocks or every k-th");
  if (const LigerConfig& liger = job.training.liger;
      llava && liger != LigerConfig{} && !(liger.rope && liger.rms_norm && liger.swiglu))
    job.assumptions.emplace_back(
        "Liger's switches are given to apply_liger_kernel_to_llava itself: of a Trainer's liger_kernel_config only the "
        "two of the loss reach a LLaVA model");
  if (job.training.lora || job.training.ia3) {
    const Strategy strategy = job.parallel.strategy;
    if (strategy == Strategy::ddp)
      job.assumptions.emplace_back("adapters under DDP were not compared with a recorded run");
  }
  return job;
}

}  // namespace

Result<Job> parse_job(std::string_view text) {
  const Result<json> given = parse_json(text);
  if (!given) return given.error();
  if (!given->is_object()) {
    return Error{"wrong-type", "", "found " + describe(*given) + "; a job is one JSON object {...}"};
  }
  const auto parallel = given->find("parallel");
  if (parallel == given->end() || !parallel->is_object() || !parallel->contains("accelerate_config") ||
      (*parallel)["accelerate_config"].is_null())
    return read_job(*given);
  json job = *given;
  if (const std::optional<Error> error = spell_out_accelerate(job)) return *error;
  Result<Job> result = read_job(job);
  if (result) return result;
  Error error = result.error();
  error.pointer = accelerate_pointer(error.pointer);
  return error;
}

// --- writing ---------------------------------------------------------------------------------------------------------

namespace {

/// Writes a field where it differs from its default.
template <typename T, typename U>
void put(json& object, const char* key, const T& value, const U& fallback) {
  if (!(value == fallback)) object[key] = value;
}

template <typename T, std::size_t N>
void put_name(json& object, const char* key, T value, T fallback, const Name<T> (&names)[N]) {
  if (value != fallback) object[key] = name_of(value, names);
}

void put_version(json& object, const char* key, const Version& value, const Version& fallback) {
  if (value != fallback) object[key] = to_string(value);
}

void put_object(json& object, const char* key, json value) {
  if (!value.empty()) object[key] = std::move(value);
}

json parsed(const std::string& text) {
  Result<json> document = parse_json(text);
  return document ? *std::move(document) : json::object();
}

std::int64_t default_length(const ModelChoice& model) {
  if (!model.preset.empty()) {
    const json preset = parsed(std::string(preset_text("models", model.preset)));
    const std::int64_t usual = preset.value("/defaults/sequence_length"_json_pointer, std::int64_t{0});
    if (usual != 0 && model_traits(model.config).takes_text) return usual;
  }
  return model_traits(model.config).default_sequence_length;
}

json write_targets(const TargetModules& targets) {
  if (targets.all_linear) return "all-linear";
  return targets.pattern.empty() ? json(targets.names) : json(targets.pattern);
}

json write_ia3(const Ia3Config& ia3) {
  json out = {{"target_modules", write_targets(ia3.target_modules)},
              {"feedforward_modules", write_targets(ia3.feedforward_modules)}};
  put(out, "modules_to_save", ia3.modules_to_save, std::vector<std::string>{});
  put(out, "also_train", ia3.also_train, std::vector<std::string>{});
  put(out, "autocast_adapter_dtype", ia3.autocast_adapter_dtype, true);
  return out;
}

json write_lora(const LoraConfig& lora) {
  const LoraConfig defaults;
  json out = json::object();
  put(out, "rank", lora.rank, defaults.rank);
  put(out, "alpha", lora.alpha, defaults.alpha);
  put(out, "dropout", lora.dropout, defaults.dropout);
  put_name(out, "bias", lora.bias, defaults.bias, kLoraBiases);
  out["target_modules"] = write_targets(lora.target_modules);
  put(out, "modules_to_save", lora.modules_to_save, defaults.modules_to_save);
  put(out, "also_train", lora.also_train, defaults.also_train);
  put(out, "use_dora", lora.use_dora, defaults.use_dora);
  put(out, "use_rslora", lora.use_rslora, defaults.use_rslora);
  put(out, "lora_bias", lora.lora_bias, defaults.lora_bias);
  put(out, "autocast_adapter_dtype", lora.autocast_adapter_dtype, defaults.autocast_adapter_dtype);
  return out;
}

json write_checkpointing(const CheckpointingConfig& checkpointing, const std::string& mode) {
  json out = {{"mode", mode}};
  put(out, "every", checkpointing.every, 1);
  put(out, "offload", checkpointing.offload, false);
  for (const StackSegments& stack : checkpointing.segments) {
    json list = json::array();
    for (const CheckpointSegment& segment : stack.segments) list.push_back({segment.begin, segment.end});
    out["segments"][stack.stack] = std::move(list);
  }
  return out;
}

json write_liger(const LigerConfig& liger) {
  json out = json::object();
  put(out, "rope", liger.rope, true);
  put(out, "rms_norm", liger.rms_norm, true);
  put(out, "swiglu", liger.swiglu, true);
  put(out, "cross_entropy", liger.cross_entropy, false);
  put(out, "fused_linear_cross_entropy", liger.fused_linear_cross_entropy, true);
  if (liger.accumulates_in_fp32) out["accum_dtype"] = "fp32";
  return out.empty() ? json(true) : out;
}

json write_quantization(const QuantizationConfig& config) {
  json out = {{"load_in_4bit", true}};
  if (config.is_nf4) out["bnb_4bit_quant_type"] = "nf4";
  put(out, "bnb_4bit_use_double_quant", config.double_quant, false);
  if (config.compute_dtype != DType::float32)
    out["bnb_4bit_compute_dtype"] = config.compute_dtype == DType::bfloat16 ? "bfloat16" : "float16";
  if (config.skip_modules) out["llm_int8_skip_modules"] = *config.skip_modules;
  put(out, "prepare_model_for_kbit_training", config.prepares, true);
  return out;
}

json write_training(const TrainingConfig& training) {
  const TrainingConfig defaults;
  json out = json::object();
  put_name(out, "stage", training.stage, defaults.stage, kStages);
  if (training.stage == Stage::custom) {
    put(out, "freeze", training.components.freeze, std::vector<std::string>{});
    put(out, "train_only", training.components.train_only, std::vector<std::string>{});
    put(out, "no_grad", training.components.no_grad, std::vector<std::string>{});
  }
  put_name(out, "precision", training.precision, defaults.precision, kPrecisions);
  json optimizer = json::object();
  put_name(optimizer, "name", training.optimizer.name, defaults.optimizer.name, kOptimizers);
  put_name(optimizer, "implementation", training.optimizer.implementation, defaults.optimizer.implementation,
           kImplementations);
  put(optimizer, "momentum", training.optimizer.momentum, defaults.optimizer.momentum);
  put(optimizer, "paged", training.optimizer.paged, false);
  put(optimizer, "param_groups", training.optimizer.param_groups, defaults.optimizer.param_groups);
  put_object(out, "optimizer", std::move(optimizer));
  put_name(out, "attention", training.attention, defaults.attention, kAttentions);
  const std::string mode = name_of(training.checkpointing.mode, kCheckpointModes);
  if (training.checkpointing.every != 1 || training.checkpointing.offload || !training.checkpointing.segments.empty()) {
    out["activation_checkpointing"] = write_checkpointing(training.checkpointing, mode);
  } else {
    put(out, "activation_checkpointing", mode, "none");
  }
  if (training.max_grad_norm) out["max_grad_norm"] = *training.max_grad_norm;
  put(out, "gradient_accumulation_steps", training.gradient_accumulation_steps, defaults.gradient_accumulation_steps);
  put(out, "keep_outputs", training.keep_outputs, defaults.keep_outputs);
  if (training.lora) out["lora"] = write_lora(*training.lora);
  if (training.ia3) out["ia3"] = write_ia3(*training.ia3);
  if (training.quantization) out["quantization"] = write_quantization(*training.quantization);
  put_name(out, "save_on_cpu", training.save_on_cpu, SavesOn::device, kSavesOn);
  if (training.liger != LigerConfig{}) out["liger"] = write_liger(training.liger);
  put(out, "loss", training.loss, "");
  return out;
}

json write_inference(const InferenceConfig& inference) {
  const InferenceConfig defaults;
  json out = json::object(), cache = json::object();
  put(out, "new_tokens", inference.new_tokens, defaults.new_tokens);
  put(out, "turns", inference.turns, defaults.turns);
  put(out, "turn_tokens", inference.turn_tokens, defaults.turn_tokens);
  put_name(out, "logits", inference.logits, defaults.logits, kLogits);
  put_name(cache, "implementation", inference.cache.implementation, defaults.cache.implementation, kCaches);
  put(cache, "max_cache_len", inference.cache.max_cache_len, 0);
  put(cache, "block_size", inference.cache.block_size, defaults.cache.block_size);
  put(cache, "gpu_memory_utilization", inference.cache.gpu_memory_utilization, defaults.cache.gpu_memory_utilization);
  put(cache, "max_num_batched_tokens", inference.cache.max_num_batched_tokens, 0);
  put(cache, "shared_prefix", inference.cache.shared_prefix, 0);
  put_object(out, "cache", std::move(cache));
  return out;
}

json write_fsdp(const FsdpConfig& fsdp, Strategy strategy) {
  const FsdpConfig defaults;
  json out = json::object();
  put(out, "wrap", fsdp.wrap, std::vector<std::string>(std::begin(kBlocks), std::end(kBlocks)));
  put(out, "cpu_offload", fsdp.cpu_offload, defaults.cpu_offload);
  const bool first = strategy == Strategy::fsdp1;
  const auto buffers = first ? std::optional(DType::bfloat16) : std::nullopt;
  if (fsdp.param_dtype == DType::bfloat16 && fsdp.reduce_dtype == DType::float32 && fsdp.buffer_dtype == buffers) {
    out["mp"] = true;
  } else {
    if (fsdp.param_dtype) out["param_dtype"] = name_of(*fsdp.param_dtype, kFloats);
    if (fsdp.reduce_dtype) out["reduce_dtype"] = name_of(*fsdp.reduce_dtype, kFloats);
    if (fsdp.buffer_dtype) out["buffer_dtype"] = name_of(*fsdp.buffer_dtype, kFloats);
  }
  put(out, "reshard_after_forward", fsdp.reshard_after_forward, defaults.reshard_after_forward);
  put_name(out, "sharding", fsdp.sharding, defaults.sharding, kShardings);
  put_name(out, "backward_prefetch", fsdp.backward_prefetch, defaults.backward_prefetch, kPrefetches);
  put(out, "use_orig_params", fsdp.use_orig_params, defaults.use_orig_params);
  put(out, "forward_prefetch", fsdp.forward_prefetch, defaults.forward_prefetch);
  put(out, "limit_all_gathers", fsdp.limit_all_gathers, defaults.limit_all_gathers);
  put(out, "sync_module_states", fsdp.sync_module_states, defaults.sync_module_states);
  return out;
}

json write_ddp(const DdpConfig& ddp) {
  const DdpConfig defaults;
  json out = json::object();
  if (ddp.bucket_cap_mb) out["bucket_cap_mb"] = *ddp.bucket_cap_mb;
  put(out, "broadcast_buffers", ddp.broadcast_buffers, defaults.broadcast_buffers);
  put(out, "find_unused_parameters", ddp.find_unused_parameters, defaults.find_unused_parameters);
  put(out, "gradient_as_bucket_view", ddp.gradient_as_bucket_view, defaults.gradient_as_bucket_view);
  put(out, "static_graph", ddp.static_graph, defaults.static_graph);
  put(out, "lazy_bucket_allocation", ddp.lazy_bucket_allocation, defaults.lazy_bucket_allocation);
  return out;
}

}  // namespace

std::string to_json(const Job& job) {
  json out = {{"version", 1}};
  json model = json::object();
  put(model, "preset", job.model.preset, "");
  put(model, "name", job.model.given_name, "");
  const bool has_graph = std::holds_alternative<GraphConfig>(job.model.config);
  if (!job.model.config_json.empty()) model[has_graph ? "graph" : "config"] = parsed(job.model.config_json);
  out["model"] = std::move(model);
  put_name(out, "task", job.task, Task::train, kTasks);

  const ModelTraits traits = model_traits(job.model.config);
  json data = json::object();
  put(data, "micro_batch_size", job.data.micro_batch_size, 1);
  if (traits.takes_text) put(data, "sequence_length", job.data.sequence_length, default_length(job.model));
  put(data, "images_per_sample", job.data.images_per_sample, traits.takes_images ? 1 : 0);
  if (job.data.grid_t != 0) data["grid_thw"] = {job.data.grid_t, job.data.grid_h, job.data.grid_w};
  if (traits.cuts_images && job.data.images_per_sample != 0) {
    const std::int64_t height = job.data.image_height, width = job.data.image_width;
    if (height != traits.image_size || width != traits.image_size) data["image_size"] = {height, width};
    if (job.data.tiles != count_image(job.model.config, height, width, 0).tiles) data["tiles"] = job.data.tiles;
  }
  put_object(out, "data", std::move(data));
  json training = write_training(job.training);
  if (has_graph) training["precision"] = name_of(job.training.precision, kPrecisions);  // its default is the file's
  put_object(out, "training", std::move(training));
  put_object(out, "inference", write_inference(job.inference));

  json parallel = json::object();
  put_name(parallel, "strategy", job.parallel.strategy, Strategy::none, kStrategies);
  put(parallel, "data", job.parallel.data, 1);
  if (job.parallel.rank) parallel["rank"] = *job.parallel.rank;
  if (job.parallel.all_ranks) parallel["rank"] = "all";
  put_object(parallel, "ddp", write_ddp(job.parallel.ddp));
  if (job.parallel.strategy == Strategy::fsdp1 || job.parallel.strategy == Strategy::fsdp2)
    put_object(parallel, "fsdp", write_fsdp(job.parallel.fsdp, job.parallel.strategy));
  if (!job.ds_config_json.empty()) {
    parallel["ds_config"] = parsed(job.ds_config_json);
  } else if (job.parallel.strategy == Strategy::deepspeed) {
    parallel["zero_stage"] = job.parallel.deepspeed.zero_stage;
  }
  put_object(out, "parallel", std::move(parallel));

  json gpu = json::object();
  if (job.gpu.allocator_limit) {
    gpu["usable_bytes"] = job.gpu.usable_bytes;
    gpu["compute_capability"] = std::to_string(job.gpu.major) + "." + std::to_string(job.gpu.minor);
  } else {
    put(gpu, "name", job.gpu.id, kDefaultGpu);
  }
  put_object(out, "gpu", std::move(gpu));

  const Runtime defaults = default_runtime(job.runtime.framework);
  json runtime = json::object();
  put_name(runtime, "framework", job.runtime.framework, Framework::transformers, kFrameworks);
  put_version(runtime, "torch", job.runtime.torch, defaults.torch);
  put_version(runtime, "transformers", job.runtime.transformers, defaults.transformers);
  put_version(runtime, "deepspeed", job.runtime.deepspeed, defaults.deepspeed);
  put_version(runtime, "peft", job.runtime.peft, defaults.peft);
  put(runtime, "cudnn", job.runtime.cudnn, defaults.cudnn);
  put(runtime, "expandable_segments", job.runtime.expandable_segments, defaults.expandable_segments);
  put_name(runtime, "experts", job.runtime.experts, defaults.experts, kExperts);
  put_object(out, "runtime", std::move(runtime));

  json calibration = json::object();
  put(calibration, "reserved", job.calibration.reserved, 1.0);
  if (job.calibration.outside_allocator) calibration["outside_allocator"] = *job.calibration.outside_allocator;
  put_object(out, "calibration", std::move(calibration));
  return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<Job> default_job(std::string_view preset) {
  return parse_job(json{{"version", 1}, {"model", {{"preset", std::string(preset)}}}}.dump(
      -1, ' ', false, json::error_handler_t::replace));
}

}  // namespace oometer
