#include "models/family.h"

#include <algorithm>
#include <string>

#include "config/reader.h"
#include "models/moonshine/moonshine.h"
#include "models/sizes.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"moonshine", "MoonshineForConditionalGeneration"}};
constexpr const char* kBlocks[] = {"MoonshineEncoderLayer", "MoonshineDecoderLayer"};

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  MoonshineConfig c;
  c.class_name = of.class_name;
  c.head = EncoderHead::masked_lm;  // a label for each token
  c.vocab_size = reader.integer("vocab_size", 32'768);
  c.hidden_size = reader.integer("hidden_size", 288);
  c.intermediate_size = reader.integer("intermediate_size", 1152);
  c.num_hidden_layers = reader.integer("encoder_num_hidden_layers", 6, layer_count);
  c.decoder_layers = reader.integer("decoder_num_hidden_layers", 6, layer_count);
  c.num_attention_heads = reader.integer("encoder_num_attention_heads", 8);
  c.hidden_act = reader.activation("encoder_hidden_act", Activation::gelu);
  c.decoder_hidden_act = reader.activation("decoder_hidden_act", Activation::silu);
  c.max_position_embeddings = reader.integer("max_position_embeddings", 512);
  c.attention_bias = reader.boolean("attention_bias", false);
  c.attention_dropout = reader.number("attention_dropout", 0, 0, 1);
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", true);
  // Its attention takes its heads from fields that encoder and decoder share, the last that were written.
  const auto expect_heads = [&](const char* key, std::int64_t usual) {
    if (reader.optional_integer(key).value_or(usual) != c.num_attention_heads)
      reader.fail_found(key, "not-modelled",
                        "other heads than the encoder's are not supported yet: expected encoder_num_attention_heads (" +
                            std::to_string(c.num_attention_heads) + ")");
  };
  expect_heads("encoder_num_key_value_heads", c.num_attention_heads);
  expect_heads("decoder_num_attention_heads", 8);
  expect_heads("decoder_num_key_value_heads", c.num_attention_heads);
  if (c.hidden_size % c.num_attention_heads != 0)
    reader.fail_found(
        "hidden_size", "inconsistent",
        "expected a multiple of encoder_num_attention_heads (" + std::to_string(c.num_attention_heads) + ")");
  c.head_size = reader.optional_integer("head_dim").value_or(std::max<std::int64_t>(c.head_dim(), 1));
  const std::int64_t multiple = reader.optional_integer("pad_head_dim_to_multiple_of").value_or(1);
  c.padded_size = (c.head_size + multiple - 1) / multiple * multiple;
  double factor = reader.number("partial_rotary_factor", 0.9, 0, 1);
  if (reader.has("rope_parameters") && !reader.is_null("rope_parameters")) {
    ConfigReader rope = reader.object("rope_parameters");
    factor = rope.number("partial_rotary_factor", factor, 0, 1);
    if (rope.text("rope_type", "default") != "default")
      rope.fail_found("rope_type", "not-modelled", "others are not supported yet: expected default");
    rope.ignore({"rope_theta"});
    rope.finish();
  }
  if (reader.has("rope_scaling") && !reader.is_null("rope_scaling"))
    reader.fail_found("rope_scaling", "not-modelled", "this is not supported yet: expected null");
  // Angles of every other element.
  c.rotary_dim = (static_cast<std::int64_t>(static_cast<double>(c.head_size) * factor) + 1) / 2 * 2;
  if (c.rotary_dim < 2 || c.rotary_dim > c.head_size)
    reader.fail("hidden_size", "inconsistent",
                "found heads of " + std::to_string(c.head_size) + " elements, of which " +
                    std::to_string(c.rotary_dim) + " would be rotated");
  if (!reader.has("pad_token_id") || reader.is_null("pad_token_id"))
    reader.fail("pad_token_id", "inconsistent",
                "found none, without which the class makes no inputs of its decoder from labels (a ValueError)");
  reader.ignore({"pad_token_id", "initializer_range", "decoder_start_token_id", "is_encoder_decoder", "rope_theta"});
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_moonshine(context, config.as<MoonshineConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<MoonshineConfig>();
  ModelTraits t = encoder_traits(c, "model");
  t.ties_embeddings = c.tie_word_embeddings;
  t.min_audios = t.max_audios = 1;
  t.usual_audio_seconds = 10;
  t.convolutions = 3;
  t.refuse(Feature::lengths, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<MoonshineConfig>();
  const std::int64_t batch = data.micro_batch_size, samples = MoonshineConfig::samples(data.audio_seconds),
                     states = std::max<std::int64_t>(MoonshineConfig::states(samples), 1),
                     heads = c.num_attention_heads;
  return std::max({largest_tensor_of_encoder(c, data),
                   bytes_of_layer(batch, states, c.hidden_size, c.intermediate_size, heads),
                   bytes_of({batch, data.sequence_length, 2 * c.intermediate_size}),
                   bytes_of({batch, heads, data.sequence_length, states}), 2 * bytes_of({batch, samples}),
                   2 * bytes_of({samples / 64 + 1, std::max<std::int64_t>(batch * c.hidden_size, 127)}),
                   bytes_of({7 * c.hidden_size, std::max(2 * c.hidden_size, samples / 192 + 1)})});
}

AudioCount count_audio(const FamilyConfig&, double seconds) {
  const std::int64_t samples = MoonshineConfig::samples(seconds);
  return {0, std::to_string(samples) + " samples at 16 kHz are " + std::to_string(MoonshineConfig::states(samples)) +
                 " states of the encoder, which the decoder sees."};
}

}  // namespace

namespace family {
extern const Family moonshine{.classes = kClasses,
                              .blocks = kBlocks,
                              .read = read,
                              .build = build,
                              .traits = traits,
                              .largest_tensor = largest_tensor,
                              .count_audio = count_audio};
}  // namespace family

}  // namespace oometer
