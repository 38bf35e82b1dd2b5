#include "models/family.h"

#include <algorithm>
#include <string>

#include "config/reader.h"
#include "models/canary/canary.h"
#include "models/sizes.h"

namespace oometer {

namespace {

constexpr CanaryClassNames kCanary{"CanaryForConditionalGeneration",
                                   "CanaryModel",
                                   "CanaryDecoder",
                                   "CanaryDecoderLayer",
                                   "CanarySelfAttention",
                                   "CanaryCrossAttention",
                                   "CanaryDecoderMLP",
                                   "CanaryPositionalEmbedding"};
constexpr CanaryClassNames kCohereAsr{"CohereAsrForConditionalGeneration",
                                      "CohereAsrModel",
                                      "CohereAsrDecoder",
                                      "CohereAsrDecoderLayer",
                                      "CohereAsrSelfAttention",
                                      "CohereAsrCrossAttention",
                                      "CohereAsrDecoderMLP"};
constexpr ModelClass kClasses[] = {{"canary", kCanary.causal_lm}, {"cohere_asr", kCohereAsr.causal_lm}};
constexpr const char* kBlocks[] = {"ParakeetEncoderBlock", kCanary.decoder_layer, kCohereAsr.decoder_layer};

void read_decoder(ConfigReader& reader, CanaryConfig& c) {
  c.vocab_size = reader.integer("vocab_size", 16'384);
  c.hidden_size = reader.integer("hidden_size", 1024);
  c.intermediate_size = reader.integer("intermediate_size", 4096);
  c.num_hidden_layers = reader.integer("num_hidden_layers", 8, layer_count);
  c.num_attention_heads = reader.integer("num_attention_heads", 8);
  c.num_key_value_heads =
      reader.optional_integer("num_key_value_heads")
          .value_or(c.names->sinusoids && !reader.has("num_key_value_heads") ? 8 : c.num_attention_heads);
  c.max_position_embeddings = reader.integer("max_position_embeddings", 1024);
  c.hidden_act = reader.activation("hidden_act", Activation::relu);
  c.attention_bias = reader.boolean("attention_bias", true);
  c.attention_dropout = reader.number("attention_dropout", 0, 0, 1);
  const bool has_own = c.names->sinusoids && !reader.has("head_dim");  // its class's own
  c.head_size = has_own ? 128 : reader.optional_integer("head_dim").value_or(std::max<std::int64_t>(c.head_dim(), 1));
  if (c.hidden_size % c.num_attention_heads != 0 || (c.names->sinusoids && c.hidden_size % 2 != 0))
    reader.fail_found(
        "hidden_size", "inconsistent",
        "expected an even multiple of num_attention_heads (" + std::to_string(c.num_attention_heads) + ")");
  if (c.num_attention_heads % c.num_key_value_heads != 0)
    reader.fail_found("num_key_value_heads", "inconsistent",
                      "expected a divisor of num_attention_heads (" + std::to_string(c.num_attention_heads) + ")");
  if (reader.is_null("pad_token_id"))
    reader.fail("pad_token_id", "inconsistent",
                "found none, without which the class makes no inputs of its decoder from labels (a ValueError)");
  reader.ignore({"pad_token_id", "initializer_range", "is_encoder_decoder"});
}

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  const bool is_canary = &of == kClasses;
  CanaryConfig c;
  c.names = is_canary ? &kCanary : &kCohereAsr;
  c.class_name = of.class_name;
  c.head = EncoderHead::masked_lm;  // a label for each token
  ParakeetConfig& e = c.encoder;
  if (!is_canary) {  // sub_configs_defaults
    e.hidden_size = 1280;
    e.num_hidden_layers = 48;
    e.intermediate_size = 5120;
    e.dropout = e.activation_dropout = e.attention_dropout = 0;
  }
  const bool has_encoder = reader.is_object("encoder_config");
  if (!is_canary || !has_encoder) e.num_mel_bins = 128;
  if (is_canary && !has_encoder) e.num_hidden_layers = 32;
  ConfigReader encoder = reader.object("encoder_config");
  read_parakeet_encoder(encoder, e, is_canary && has_encoder ? 0.1 : 0);
  encoder.finish();
  if (is_canary) {
    ConfigReader decoder = reader.object("decoder_config");
    read_decoder(decoder, c);
    c.use_cache = decoder.boolean("use_cache", true);
    decoder.ignore({"model_type"});
    decoder.finish();
    c.tie_word_embeddings = reader.boolean("tie_word_embeddings", true);
    if (reader.integer("vocab_size", 16'384) != c.vocab_size)
      reader.fail("vocab_size", "inconsistent",
                  "expected the vocab_size of decoder_config (" + std::to_string(c.vocab_size) + ")");
    if (e.hidden_size != c.hidden_size)
      reader.fail("encoder_config", "inconsistent",
                  "found states of " + std::to_string(e.hidden_size) +
                      " elements; the decoder takes as many as it has itself (" + std::to_string(c.hidden_size) + ")");
    if (reader.is_null("pad_token_id"))
      reader.fail("pad_token_id", "inconsistent",
                  "found none, without which the class makes no inputs of its decoder from labels (a ValueError)");
    reader.ignore({"pad_token_id", "initializer_range", "is_encoder_decoder"});
  } else {
    read_decoder(reader, c);
    c.tie_word_embeddings = reader.boolean("tie_word_embeddings", false);
    if (!reader.has("decoder_start_token_id") || reader.is_null("decoder_start_token_id"))
      reader.fail("decoder_start_token_id", "missing",
                  "found none, without which the class makes no inputs of its decoder from labels (a TypeError)");
  }
  reader.ignore({"decoder_start_token_id"});
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_canary(context, config.as<CanaryConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<CanaryConfig>();
  ModelTraits t = encoder_traits(c, "model");
  t.ties_embeddings = c.tie_word_embeddings;
  t.min_audios = t.max_audios = 1;
  t.usual_audio_seconds = 15;
  t.convolutions = 2 * c.encoder.subsampling_layers - 1 + 3;
  t.refuse(Feature::lengths, "not-modelled", "this is not supported yet with " + t.class_name);
  t.refuse(Feature::flash_attention_2, "inconsistent",
           "the encoder's class has no flash attention: expected sdpa or eager");
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<CanaryConfig>();
  const std::int64_t batch = data.micro_batch_size, heads = c.num_attention_heads,
                     states =
                         std::max<std::int64_t>(c.encoder.subsampled(ParakeetConfig::frames(data.audio_seconds)), 1);
  return std::max({largest_tensor_of_encoder(c, data), largest_tensor_of(c.encoder, batch, data.audio_seconds),
                   bytes_of({c.max_position_embeddings, c.hidden_size}),
                   bytes_of({heads * c.head_size, std::max(c.hidden_size, batch * data.sequence_length)}),
                   bytes_of({batch, heads, data.sequence_length, states}),
                   bytes_of({batch, states, heads * c.head_size})});
}

AudioCount count_audio(const FamilyConfig& config, double seconds) {
  const auto& c = config.as<CanaryConfig>();
  const std::int64_t frames = ParakeetConfig::frames(seconds);
  return {0, std::to_string(frames) + " frames, one each 10 ms, are " + std::to_string(c.encoder.subsampled(frames)) +
                 " states of the encoder, which the decoder sees."};
}

}  // namespace

namespace family {
extern const Family canary{.classes = kClasses,
                           .blocks = kBlocks,
                           .read = read,
                           .build = build,
                           .traits = traits,
                           .largest_tensor = largest_tensor,
                           .count_audio = count_audio};
}  // namespace family

}  // namespace oometer
