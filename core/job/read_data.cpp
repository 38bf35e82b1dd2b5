#include <algorithm>
#include <initializer_list>
#include <string>
#include <tuple>
#include <vector>

#include "graph/job.h"
#include "job/read.h"
#include "models/registry.h"

namespace oometer {

namespace {

void leave_out(ConfigReader& reader, std::initializer_list<const char*> keys, const std::string& who) {
  for (const char* key : keys)
    if (reader.has(key)) reader.fail_found(key, "inconsistent", who + " has no use for it: leave it out");
}

/// Images of one size, the config's own, or of any, which the processor cuts into tiles.
void read_images(ConfigReader& reader, const ModelConfig& model, const ModelTraits& traits, DataConfig& data) {
  const bool has_size = reader.has("image_size");
  const std::vector<std::int64_t> size = reader.integers("image_size", {1, 65'536});
  const bool has_images = data.images_per_sample != 0;
  if (has_images) data.image_height = data.image_width = traits.image_size;
  if (has_size && !traits.takes_images) {
    reader.fail_found("image_size", "inconsistent", std::string(class_name(model)) + " takes no images: leave it out");
  } else if (has_size && traits.cuts_images) {
    if (size.size() != 2)
      reader.fail_found("image_size", "wrong-type", "[height, width] in pixels belongs here");
    else if (has_images)
      std::tie(data.image_height, data.image_width) = std::tie(size[0], size[1]);
  } else if (has_size && (size.size() != 2 || size[0] != traits.image_size || size[1] != traits.image_size)) {
    // CLIPVisionEmbeddings.forward refuses other sizes: the processor brings images to the config's own.
    const std::string side = std::to_string(traits.image_size);
    reader.fail_found("image_size", "inconsistent", "[" + side + ", " + side + "], the config's own, belongs here");
  }
  std::int64_t tiles = 0;
  if (traits.cuts_images) tiles = reader.optional_integer("tiles", {1, 4096}).value_or(0);
  if (!has_images || !reader.ok()) return;
  const ImageCount count = count_image(model, data.image_height, data.image_width, tiles);
  const std::int64_t cut = count_image(model, data.image_height, data.image_width, 0).tiles;
  if (tiles != 0 && tiles != cut && (has_size || count.tiles != tiles))
    reader.fail_found("tiles", "inconsistent",
                      std::to_string(cut) + ", into which the processor cuts an image of image_size, belongs here");
  data.tiles = count.tiles;
  data.tokens_per_image = count.tokens;
}

}  // namespace

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

  if (const auto* qwen = std::get_if<QwenVLConfig>(&model)) {
    read_grid(reader, *qwen, data);
  } else {
    read_images(reader, model, traits, data);
    leave_out(reader, {"grid_thw", "frames", "min_pixels", "max_pixels"}, who);
  }
  if (!traits.cuts_images) leave_out(reader, {"tiles"}, who);
  leave_out(reader, {"target_length"}, who);
  if (const auto* graph = std::get_if<GraphConfig>(&model)) read_graph_batch(reader, *graph->graph, data);
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

namespace {

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
  double operator()(const DeepseekConfig& c) const {
    const std::int64_t batch = data.micro_batch_size, length = data.sequence_length;
    const std::int64_t heads = c.num_attention_heads * (c.qk_head_dim() + c.v_head_dim);
    return std::max(
        {block(batch, length, std::max({c.hidden_size, c.kv_lora_rank, c.q_lora_rank}),
               std::max({c.intermediate_size, c.moe_intermediate_size * c.n_shared_experts, heads}),
               c.num_attention_heads),
         product({batch, length, c.num_experts_per_tok, std::max(c.hidden_size, 2 * c.moe_intermediate_size)}),
         product({c.n_routed_experts, 2 * c.moe_intermediate_size, c.hidden_size}),
         product({batch, length, c.n_routed_experts}), product({batch, length, c.vocab_size}),
         product({c.vocab_size, c.hidden_size})});
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

}  // namespace

double largest_tensor(const ModelConfig& model, const DataConfig& data) {
  return std::visit(LargestTensor{data}, model);
}

}  // namespace oometer
