#include "models/family.h"

#include <algorithm>
#include <string>

#include "config/reader.h"
#include "models/kit/layerdrop.h"
#include "models/parakeet/parakeet.h"
#include "models/sizes.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"parakeet_ctc", "ParakeetForCTC"}};
constexpr const char* kBlocks[] = {"ParakeetEncoderBlock"};

}  // namespace

void read_parakeet_encoder(ConfigReader& reader, ParakeetConfig& c, double usual_layerdrop) {
  c.hidden_size = reader.integer("hidden_size", c.hidden_size);
  c.num_hidden_layers = reader.integer("num_hidden_layers", c.num_hidden_layers, layer_count);
  c.num_attention_heads = reader.integer("num_attention_heads", c.num_attention_heads);
  c.intermediate_size = reader.integer("intermediate_size", c.intermediate_size);
  c.head_dim =
      reader.optional_integer("head_dim").value_or(std::max<std::int64_t>(c.hidden_size / c.num_attention_heads, 1));
  c.hidden_act = reader.activation("hidden_act", c.hidden_act);
  c.attention_bias = reader.boolean("attention_bias", true);
  c.convolution_bias = reader.boolean("convolution_bias", true);
  c.conv_kernel_size = reader.integer("conv_kernel_size", c.conv_kernel_size);
  const std::int64_t factor = reader.integer("subsampling_factor", 8);
  c.subsampling_layers = 0;
  while (factor >> (c.subsampling_layers + 1) != 0) ++c.subsampling_layers;
  c.subsampling_conv_channels = reader.integer("subsampling_conv_channels", c.subsampling_conv_channels);
  c.num_mel_bins = reader.integer("num_mel_bins", c.num_mel_bins);
  c.subsampling_conv_kernel_size = reader.integer("subsampling_conv_kernel_size", c.subsampling_conv_kernel_size);
  c.subsampling_conv_stride = reader.integer("subsampling_conv_stride", c.subsampling_conv_stride);
  c.dropout = reader.number("dropout", c.dropout, 0, 1);
  c.dropout_positions = reader.number("dropout_positions", c.dropout_positions, 0, 1);
  c.activation_dropout = reader.number("activation_dropout", c.activation_dropout, 0, 1);
  c.attention_dropout = reader.number("attention_dropout", c.attention_dropout, 0, 1);
  if (c.subsampling_layers == 0)
    reader.fail_found("subsampling_factor", "not-modelled", "no subsampling is not supported yet: expected 2 or more");
  if (c.conv_kernel_size % 2 == 0) reader.fail_found("conv_kernel_size", "inconsistent", "expected an odd number");
  if (c.subsampling_conv_stride < 2 || c.subsampling_conv_channels < 2)
    reader.fail_found(c.subsampling_conv_stride < 2 ? "subsampling_conv_stride" : "subsampling_conv_channels",
                      "not-modelled", "this is not supported yet: expected 2 or more");
  if (c.hidden_size % 2 != 0 || c.hidden_size % c.num_attention_heads != 0)
    reader.fail_found(
        "hidden_size", "inconsistent",
        "expected an even multiple of num_attention_heads (" + std::to_string(c.num_attention_heads) + ")");
  std::int64_t bins = c.num_mel_bins;
  for (std::int64_t i = 0; i < c.subsampling_layers; ++i) bins /= std::max<std::int64_t>(c.subsampling_conv_stride, 1);
  if (c.subsampling_conv_stride >= 2 && (bins < 1 || bins != c.subsampled(c.num_mel_bins)))
    reader.fail_found("num_mel_bins", "inconsistent",
                      "expected bins of which the convolutions leave as many as the class's linear layer takes (" +
                          std::to_string(bins) + ")");
  read_layerdrop(reader, "layerdrop", usual_layerdrop);
  reader.ignore({"model_type", "max_position_embeddings", "scale_input", "initializer_range", "num_key_value_heads"});
}

double largest_tensor_of(const ParakeetConfig& c, std::int64_t batch, double audio_seconds) {
  const std::int64_t frames = ParakeetConfig::frames(audio_seconds),
                     states = std::max<std::int64_t>(c.subsampled(frames), 1), channels = c.subsampling_conv_channels;
  return std::max({bytes_of_layer(batch, states, c.hidden_size, c.intermediate_size, c.num_attention_heads),
                   2 * bytes_of({batch, c.num_attention_heads, states, 2 * states}),
                   bytes_of({batch, channels, frames, c.num_mel_bins}),
                   bytes_of({channels, c.subsampling_conv_kernel_size, c.subsampling_conv_kernel_size, frames}),
                   bytes_of({batch, 2 * c.hidden_size, states + c.conv_kernel_size}),
                   2 * bytes_of({batch, 2 * states, c.hidden_size}), bytes_of({c.hidden_size, 2 * c.hidden_size}),
                   bytes_of({c.hidden_size, channels * c.num_mel_bins})});
}

namespace {

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) {
  ParakeetConfig c;
  if (!reader.has("encoder_config"))
    reader.fail("encoder_config", "missing",
                "found nothing; the class's own one leaves layers out at random, which is not supported yet: expected "
                "an object");
  ConfigReader encoder = reader.object("encoder_config");
  if (reader.has("encoder_config")) read_parakeet_encoder(encoder, c);
  encoder.finish();
  c.vocab_size = reader.integer("vocab_size", c.vocab_size);
  const std::string reduction = reader.text("ctc_loss_reduction", "mean");
  c.ctc_mean = reduction == "mean";
  if (reduction != "mean" && reduction != "sum")
    reader.fail_found("ctc_loss_reduction", "not-modelled", "expected sum or mean");
  c.ctc_zero_infinity = reader.boolean("ctc_zero_infinity", true);
  if (reader.has("pad_token_id") && reader.is_null("pad_token_id"))
    reader.fail("pad_token_id", "inconsistent", "found null; the loss takes it for its blank (a TypeError)");
  else if (reader.integer("pad_token_id", 1024, {0, 1 << 30}) >= c.vocab_size)
    reader.fail(reader.has("pad_token_id") ? "pad_token_id" : "vocab_size", "inconsistent",
                "expected a pad_token_id (1024 unless the config says another one), the blank of the loss, below "
                "vocab_size (a RuntimeError)");
  reader.ignore({"initializer_range"});
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_parakeet(context, config.as<ParakeetConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<ParakeetConfig>();
  ModelTraits t = transformers_traits("ParakeetForCTC");
  t.takes_text = true;  // its labels
  t.oldest_transformers = {5, 23, 0};
  t.min_audios = t.max_audios = 1;
  t.usual_audio_seconds = 15;
  t.convolutions = 2 * c.subsampling_layers - 1 + 3;
  t.default_sequence_length = 200;
  t.tower = "encoder";
  for (const Feature feature :
       {Feature::deepspeed, Feature::zero3, Feature::fsdp, Feature::lengths, Feature::packing, Feature::quantization})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  t.refuse(Feature::chunked_cross_entropy, "inconsistent",
           "this is for models that predict the next token, and " + t.class_name + " is none");
  t.refuse(Feature::flash_attention_2, "inconsistent", "the class has no flash attention: expected sdpa or eager");
  t.has_no_liger();
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<ParakeetConfig>();
  const std::int64_t batch = data.micro_batch_size,
                     states = std::max<std::int64_t>(c.subsampled(ParakeetConfig::frames(data.audio_seconds)), 1);
  return std::max({largest_tensor_of(c, batch, data.audio_seconds),
                   2 * bytes_of({batch, states, 2 * data.sequence_length + 1}),
                   2 * bytes_of({batch, states, c.vocab_size}), bytes_of({c.hidden_size, c.vocab_size})});
}

AudioCount count_audio(const FamilyConfig& config, double seconds) {
  const auto& c = config.as<ParakeetConfig>();
  const std::int64_t frames = ParakeetConfig::frames(seconds);
  return {0, std::to_string(frames) + " frames, one each 10 ms, are " + std::to_string(c.subsampled(frames)) +
                 " states of the encoder."};
}

}  // namespace

namespace family {
extern const Family parakeet{.classes = kClasses,
                             .blocks = kBlocks,
                             .read = read,
                             .build = build,
                             .traits = traits,
                             .largest_tensor = largest_tensor,
                             .count_audio = count_audio};
}  // namespace family

}  // namespace oometer
