#include "models/gemma3/config.h"

#include <cmath>
#include <string>

#include "config/reader.h"
#include "models/gemma3_text/gemma3_text.h"
#include "models/siglip/config.h"

namespace oometer {

std::int64_t Gemma3Config::tokens_per_side() const {
  return static_cast<std::int64_t>(std::sqrt(static_cast<double>(mm_tokens_per_image)));
}

Gemma3Config read_gemma3_config(ConfigReader& reader) {
  Gemma3Config c;
  ConfigReader vision = reader.object("vision_config");
  c.vision = read_siglip_vision_config(vision);
  vision.finish();
  ConfigReader text = reader.object("text_config");
  c.text = read_gemma3_text_config(text);
  text.finish();
  c.mm_tokens_per_image = reader.integer("mm_tokens_per_image", 256);
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", true);
  const char* const token = reader.has("image_token_id") ? "image_token_id" : "image_token_index";
  if (reader.integer(token, 262'144, {0}) >= c.text.vocab_size)
    reader.fail_found(token, "not-modelled",
                      "a token that is none of the vocabulary's " + std::to_string(c.text.vocab_size) +
                          " is not supported yet: expected a smaller one");
  reader.ignore({"boi_token_index", "eoi_token_index", "boi_token_id", "eoi_token_id", "eos_token_id"});
  const std::int64_t side = c.tokens_per_side(), patches = c.patches_per_image();
  // Gemma3MultiModalProjector: the average of kernel_size x kernel_size patches is a token.
  if (side * side != c.mm_tokens_per_image || patches < side || patches / (patches / side) != side)
    reader.fail_found("mm_tokens_per_image", "inconsistent",
                      "expected the square of a number that divides the " + std::to_string(patches) +
                          " patches along an image's side");
  return c;
}

}  // namespace oometer
