#include "importers/preprocessor.h"

#include <string_view>

#include "job/job.h"
#include "job/parse.h"

namespace oometer::importers {

using nlohmann::json;

namespace {

/// What is done to the numbers of an image, not to how many there are, and names (transformers 5.23,
/// image_processing_utils_fast.py: ImagesKwargs).
constexpr std::string_view kProcessorHarmless =
    "image_processor_type processor_class feature_extractor_type auto_map image_mean image_std do_normalize do_rescale "
    "rescale_factor do_resize resample do_convert_rgb do_pad pad_size return_tensors data_format input_data_format "
    "device disable_grouping image_seq_len image_seq_length video_processor_type do_sample_frames video_metadata "
    "default_to_square return_metadata _valid_processor_keys chat_template tokenizer_class num_additional_image_tokens "
    "vision_feature_select_strategy image_token video_token do_reduce_labels do_convert_annotations format "
    "background_color return_row_col_info use_image_id";

/// The sides that "size" and its like say, where all are the same: {"height", "width"}, {"shortest_edge"}, a number.
std::int64_t processor_side(const json& size) {
  if (size.is_number_integer()) return size.get<std::int64_t>();
  if (!size.is_object() || size.empty()) return 0;
  std::int64_t side = 0;
  for (const auto& [name, value] : size.items()) {
    if (!value.is_number_integer() || (side != 0 && value != side)) return 0;
    side = value.get<std::int64_t>();
  }
  return side;
}

/// One file while it is read.
class ProcessorReader {
 public:
  ProcessorReader(Context& context, const SourceFile& file, const ModelTraits& traits)
      : ledger_(context.ledger), config_(context.model_config()), file_(file), traits_(traits) {}

  void read() {
    for (const auto& [key, value] : file_.content.items())
      if (!value.is_null()) read(key, value);
  }

 private:
  void read(const std::string& key, const json& value) {
    const json vision = member(config_, "vision_config");
    if (key == "image_processor" || key == "video_processor") {  // of a processor_config.json
      if (key == "image_processor" && value.is_object())
        for (const auto& [name, inner] : value.items())
          if (!inner.is_null()) read(name, inner);
      return ignore(key);
    }
    if (is_word_of(key, kProcessorHarmless)) return ignore(key);
    if (traits_.reads_images_by("max_pixels")) {
      if (key == "min_pixels" || key == "max_pixels") return take(key, key, value);
      if (key == "size" && value.is_object()) {  // Qwen2VLImageProcessor: size goes before min_pixels and max_pixels
        for (const auto& [edge, ours] : {std::pair{"shortest_edge", "min_pixels"}, {"longest_edge", "max_pixels"}})
          if (value.contains(edge)) take("size", ours, value[edge]);
        return;
      }
    }
    if (traits_.chooses_tiles && (key == "do_image_splitting" || key == "crop_to_patches"))
      return value == false ? take(key, "tiles", 1) : ignore(key);
    if (is_word_of(key, "patch_size temporal_patch_size merge_size spatial_merge_size image_grid_pinpoints")) {
      const char* const theirs = key == "merge_size" ? "spatial_merge_size" : key.c_str();
      for (const json& part : {vision, config_})
        if (member(part, theirs) == value) return ignore(key);
      const json own = member(vision, theirs);
      if (own.is_number_integer() && value.is_number_integer()) return note_other_model(key, theirs, own, value);
    }
    if (is_word_of(key, "size crop_size max_image_size do_center_crop") &&
        (value == true || processor_side(value) == traits_.image_size ||
         processor_side(value) == member(vision, "image_size")))
      return ignore(key);
    ledger_.unmodelled.push_back({file_.name,
                                  key,
                                  value,
                                  "how large images are or into how many pieces they are cut, which is not read; here "
                                  "as the model is published",
                                  Effect::either,
                                  {}});
  }

  /// A processor cuts patches as large as the model's.
  void note_other_model(const std::string& key, const std::string& theirs, const json& own, const json& value) {
    ledger_.unmodelled.push_back({file_.name,
                                  key,
                                  value,
                                  "a processor of another model: config.json has " + theirs + " " + own.dump() +
                                      ", by which images are counted here",
                                  Effect::either,
                                  {}});
  }

  void ignore(const std::string& key) { ledger_.ignored.emplace_back(file_.name, key); }

  void take(const std::string& key, const std::string& ours, const json& value) {
    const json data = member(ledger_.job, "data");
    const std::string at = "/data/" + ours;
    for (const Taken& taken : ledger_.taken)
      if (taken.pointer == at && taken.file != file_.name) return ignore(key);
    ledger_.put(at, value);
    ledger_.taken.push_back({file_.name, key, at, value, false, ""});
  }

  Ledger& ledger_;
  const json& config_;
  const SourceFile& file_;
  const ModelTraits& traits_;
};

}  // namespace

bool is_preprocessor(const json& tree) {
  if (!tree.is_object() || tree.contains("model_type")) return false;
  return tree.contains("image_processor_type") || tree.contains("image_processor") ||
         (tree.contains("image_mean") && tree.contains("image_std"));
}

void take_preprocessor(Context& context, const SourceFile& file) {
  const json& job = context.ledger.job;
  if (!job.contains("model")) return;
  const json alone = {{"version", 1}, {"model", job["model"]}};
  const Result<Job> parsed = parse_job(alone.dump(-1, ' ', false, json::error_handler_t::replace));
  if (!parsed) return;  // which is said of the whole job
  const ModelTraits& traits = parsed->model.config.traits();
  if (traits.image_keys.empty()) return context.ledger.ignored.emplace_back(file.name, "image_processor_type"), void();
  ProcessorReader(context, file, traits).read();
}

}  // namespace oometer::importers
