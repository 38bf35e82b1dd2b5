#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "models/kit/encoder.h"
#include "models/masking.h"

/// transformers 5.23, models/bart/modeling_bart.py and the modeling files of mbart, marian, m2m_100 and pegasus:
/// encoder and decoder. Names and order of steps are those files'.
namespace oometer {

class KvCache;

/// What the copies of BART's file do otherwise.
enum class BartVariant : std::uint8_t {
  bart,
  mbart,            ///< norms come first, and one more behind the layers; targets begin with their last token
  marian,           ///< embeddings have no norm; positions are sines, which nothing trains
  m2m_100,          ///< as mBART, without a norm of embeddings; sines are a buffer's, of positions that count tokens
  pegasus,          ///< layers as mBART's, embeddings as Marian's
  blenderbot,       ///< layers as mBART's; positions are trained, and a sample's are all samples'
  blenderbot_small  ///< layers as BART's, positions as Blenderbot's; the decoder norms embeddings before their sum
};

/// What BART's classes and those of the copies of its file are called, and which of them they are.
struct BartClassNames {
  const char *generation, *model, *encoder, *decoder, *encoder_layer, *decoder_layer, *attention, *positions,
      *embedding;
  BartVariant variant = BartVariant::bart;
  /// The class's defaults.
  std::int64_t vocab_size = 50'265, d_model = 1024, max_position_embeddings = 1024, encoder_layers = 12,
               decoder_layers = 12, heads = 16, ffn_dim = 4096;

  bool norms_first() const {
    return variant != BartVariant::bart && variant != BartVariant::marian && variant != BartVariant::blenderbot_small;
  }
  bool is_blenderbot() const { return variant == BartVariant::blenderbot || variant == BartVariant::blenderbot_small; }
  /// Sines in an Embedding that is frozen.
  bool freezes_positions() const { return variant == BartVariant::marian || variant == BartVariant::pegasus; }
  bool norms_embeddings() const {
    return variant == BartVariant::bart || variant == BartVariant::mbart || variant == BartVariant::blenderbot_small;
  }
  bool operator==(const BartClassNames&) const = default;
};

/// class BartConfig: the fields that decide memory. What EncoderConfig says is the encoder's.
struct BartConfig : EncoderConfig {
  const BartClassNames* names = nullptr;
  std::int64_t decoder_layers = 12, decoder_attention_heads = 16, decoder_ffn_dim = 4096;
  double dropout = 0.1, attention_dropout = 0, activation_dropout = 0;

  bool operator==(const BartConfig&) const = default;
};

/// M2M100SinusoidalPositionalEmbedding.make_weights: a table of an even `width`.
Tensor make_sines(const Builder& builder, std::int64_t count, std::int64_t width, DType dtype);

FamilyConfig read_bart_config(ConfigReader& reader, const BartClassNames& names);
std::unique_ptr<Model> build_bart(Context& context, const FamilyConfig& config, const DataConfig& data,
                                  const ModelOptions& options);
ModelTraits bart_traits(const FamilyConfig& config);
double largest_tensor_of_bart(const FamilyConfig& config, const DataConfig& data);

inline constexpr BartClassNames kBart{"BartForConditionalGeneration",
                                      "BartModel",
                                      "BartEncoder",
                                      "BartDecoder",
                                      "BartEncoderLayer",
                                      "BartDecoderLayer",
                                      "BartAttention",
                                      "BartLearnedPositionalEmbedding",
                                      "BartScaledWordEmbedding"};

/// BartModel inside another class, which calls its encoder and its decoder itself.
class BartInside {
 public:
  virtual ~BartInside() = default;
  /// get_input_embeddings()(input_ids)
  virtual Tensor embed(const Tensor& input_ids) const = 0;
  /// `source`: the mask of what the encoder reads.
  virtual Tensor encode(const Tensor& inputs_embeds, const MaskArguments& source) const = 0;
  virtual Tensor decode(const Tensor& input_ids, const Tensor& encoder_hidden_states,
                        const MaskArguments& source) const = 0;
  /// The embeddings of encoder and decoder, which take the weight of `shared`.
  virtual std::vector<Embedding*> tied() = 0;
  Embedding shared;
};
std::unique_ptr<BartInside> make_bart_inside(const Builder& model, const BartConfig& config,
                                             const ModelOptions& options);

/// BartDecoder inside a class that has no BART's encoder.
class BartDecoderInside {
 public:
  virtual ~BartDecoderInside() = default;
  /// `cache`: what the layers hand their keys and values to; null: nothing.
  virtual Tensor operator()(const Tensor& input_ids, const Tensor& encoder_hidden_states, KvCache* cache) const = 0;
  Embedding embed_tokens;
};
/// `first_block`: checkpointable blocks before its own.
std::unique_ptr<BartDecoderInside> make_bart_decoder(const Builder& decoder, const BartConfig& config,
                                                     const ModelOptions& options, std::size_t first_block);

template <const BartClassNames& names>
constexpr Family bart_family(std::span<const ModelClass> classes, std::span<const char* const> blocks) {
  return {.classes = classes,
          .blocks = blocks,
          .read = [](ConfigReader& reader, const ModelClass&, Framework) { return read_bart_config(reader, names); },
          .build = build_bart,
          .traits = bart_traits,
          .largest_tensor = largest_tensor_of_bart};
}

}  // namespace oometer
