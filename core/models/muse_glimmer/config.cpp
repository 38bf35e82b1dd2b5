#include "models/muse_glimmer/config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include "config/reader.h"
#include "models/kit/packed_images.h"
#include "tensor/shape.h"

namespace oometer {

namespace {

MuseGlimmerVisionConfig read_muse_glimmer_vision(ConfigReader& reader) {
  constexpr Range kPatchRange{1, 1 << 16};
  MuseGlimmerVisionConfig c;
  c.patch_size = reader.integer("patch_size", c.patch_size, kPatchRange);
  c.pos_emb_height = read_square_positions(reader, c.pos_emb_height);
  c.num_attention_heads = reader.integer("num_attention_heads", c.num_attention_heads);
  c.num_hidden_layers = reader.integer("num_hidden_layers", c.num_hidden_layers, layer_count);
  c.hidden_size = reader.integer("hidden_size", c.hidden_size);
  c.intermediate_size = reader.integer("intermediate_size", c.intermediate_size);
  c.patch_temporal = reader.integer("patch_temporal", c.patch_temporal, {1, 1024});
  c.merge_size = reader.integer("merge_size", c.merge_size, {1, 1024});
  c.hidden_act = reader.activation("hidden_act", c.hidden_act);
  if (c.merge_size == 1)
    reader.fail_found("merge_size", "not-modelled", "patches that are not merged are not supported yet");
  const std::vector<std::string> types = reader.texts_of_layers("layer_types", c.num_hidden_layers);
  const auto layers = static_cast<std::size_t>(c.num_hidden_layers);
  for (std::size_t i = 0; i < layers; ++i) {
    if (i >= types.size()) {
      c.attends_fully.push_back((i + 1) % 4 == 0 || i == layers - 1);
      continue;
    }
    c.attends_fully.push_back(types[i] == "full_attention");
    if (!c.attends_fully.back() && types[i] != "window_attention")
      reader.fail("layer_types", "inconsistent",
                  "found \"" + types[i] + "\"; the class knows \"full_attention\" and \"window_attention\"");
  }
  reader.ignore({"model_type", "layer_norm_eps", "max_position_embeddings", "rope_parameters"});
  check_axial_heads(reader, c.hidden_size, "num_attention_heads", c.num_attention_heads);
  return c;
}

}  // namespace

MuseGlimmerConfig read_muse_glimmer_config(ConfigReader& reader) {
  MuseGlimmerConfig c;
  ConfigReader vision = reader.object("vision_config");
  c.vision = read_muse_glimmer_vision(vision);
  vision.finish();
  ConfigReader text = reader.object("text_config");
  c.text = read_muse_glimmer_text(text);
  text.finish();
  c.out_hidden_size = reader.integer("out_hidden_size", c.out_hidden_size);
  c.projector_hidden_size = reader.integer("projector_hidden_size", c.projector_hidden_size);
  c.projector_hidden_act = reader.activation("projector_hidden_act", c.projector_hidden_act);
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", false);
  reader.ignore({"image_token_id", "video_token_id"});
  if (const std::int64_t merged = checked_product(c.vision.hidden_size, c.vision.merge_unit());
      c.out_hidden_size != merged)
    reader.fail_found("out_hidden_size", "inconsistent",
                      "expected the tower's hidden_size times merge_size squared (" + std::to_string(merged) + ")");
  return c;
}

namespace {

using TokenGrid = std::pair<std::int64_t, std::int64_t>;

/// hash((rows, columns)) of CPython (Objects/tupleobject.c, tuplehash).
std::uint64_t hash_of(const TokenGrid& grid) {
  constexpr std::uint64_t kPrime1 = 11400714785074694791U, kPrime2 = 14029467366897019727U,
                          kPrime5 = 2870177450012600261U;
  std::uint64_t hash = kPrime5;
  for (const std::int64_t item : {grid.first, grid.second}) {
    hash += static_cast<std::uint64_t>(item) * kPrime2;
    hash = (hash << 31U) | (hash >> 33U);
    hash *= kPrime1;
  }
  return hash + (2U ^ (kPrime5 ^ 3527539U));
}

/// The places of set(): of eight, in which four tuples go as CPython puts them (Objects/setobject.c, set_add_entry).
/// Of two grids that fit an image equally well the first one here is taken.
using Places = std::array<std::optional<TokenGrid>, 8>;
void add_to(Places& set, const TokenGrid& grid) {
  const std::uint64_t hash = hash_of(grid);
  std::uint64_t perturb = hash;
  for (std::uint64_t i = hash % set.size();; perturb >>= 5U, i = (i * 5 + 1 + perturb) % set.size()) {
    std::optional<TokenGrid>& place = set[static_cast<std::size_t>(i)];
    if (place == grid) return;
    if (place) continue;
    place = grid;
    return;
  }
}

}  // namespace

std::pair<std::int64_t, std::int64_t> muse_glimmer_tokens(std::int64_t height_in, std::int64_t width_in,
                                                          const MuseGlimmerVisionConfig& config) {
  constexpr double kMaxTokens = 4096;
  const auto height = static_cast<double>(height_in), width = static_cast<double>(width_in),
             cell = static_cast<double>(config.patch_size * config.merge_size);
  double rows = height / cell, columns = width / cell;
  const double ratio = columns / rows;
  if (rows * columns > kMaxTokens) {
    rows = std::pow(kMaxTokens / ratio, 0.5);
    columns = rows * ratio;
  }
  Places candidates;
  for (const double r : {std::floor(rows), std::ceil(rows)})
    for (const double c : {std::floor(columns), std::ceil(columns)})
      add_to(candidates, {static_cast<std::int64_t>(r), static_cast<std::int64_t>(c)});
  std::optional<TokenGrid> best;
  double least = std::numeric_limits<double>::infinity();
  for (const std::optional<TokenGrid>& grid : candidates) {
    if (!grid || grid->first < 1 || grid->second < 1) continue;
    const auto r = static_cast<double>(grid->first), c = static_cast<double>(grid->second);
    if (r * c > kMaxTokens) continue;
    const double error = std::abs(r / c - height / width);
    if (!best || error < least) {
      best = grid;
      least = error;
    }
  }
  const auto rounded = [](double x) { return std::max<std::int64_t>(1, std::llround(std::nearbyint(x))); };
  return best.value_or(TokenGrid{rounded(rows), rounded(columns)});
}

}  // namespace oometer
