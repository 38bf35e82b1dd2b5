#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "models/kit/encoder.h"
#include "models/kit/norms.h"

/// transformers 5.23, models/t5/modeling_t5.py, models/mt5/modeling_mt5.py, models/umt5/modeling_umt5.py: encoder and
/// decoder whose attention adds a bias by relative position. Names and order of steps are those files'.
namespace oometer {

/// What the copies of T5's file do otherwise.
enum class T5Variant : std::uint8_t {
  t5,
  mt5,  ///< outputs of the decoder are never scaled
  umt5  ///< they always are; each layer has a bias of its own
};

/// What T5's classes and those of the copies of its file are called, and which of them they are.
struct T5ClassNames {
  const char *generation, *stack, *block, *self_attention, *cross_attention, *attention, *feed_forward, *dense,
      *gated_dense, *norm;
  T5Variant variant = T5Variant::t5;

  bool operator==(const T5ClassNames&) const = default;
};

inline constexpr T5ClassNames kT5ClassNames{
    "T5ForConditionalGeneration", "T5Stack",     "T5Block",   "T5LayerSelfAttention",
    "T5LayerCrossAttention",      "T5Attention", "T5LayerFF", "T5DenseActDense",
    "T5DenseGatedActDense",       "T5LayerNorm"};

/// class T5Config: the fields that decide memory. What EncoderConfig calls num_hidden_layers is the encoder's.
struct T5Config : EncoderConfig {
  const T5ClassNames* names = nullptr;
  std::int64_t d_kv = 64, num_decoder_layers = 6, relative_attention_num_buckets = 32;
  double dropout_rate = 0.1;
  bool is_gated_act = false, scale_decoder_outputs = true;

  std::int64_t inner_dim() const { return num_attention_heads * d_kv; }
  bool operator==(const T5Config&) const = default;
};

/// T5ForConditionalGeneration's modules and forward: of the class itself, and of those that hold one.
class T5LanguageModel : public EncoderModel {
 public:
  ~T5LanguageModel() override;

 protected:
  /// `config.class_name`: of the class that holds it.
  T5LanguageModel(Context& context, const T5Config& config, const DataConfig& data, const ModelOptions& options);
  void make_t5(const Builder& generation, const T5Config& config, const ModelOptions& options,
               std::size_t first_block = 0);
  /// get_input_embeddings()(input_ids)
  Tensor embed_shared(const Tensor& input_ids) const;
  /// `inputs_embeds`: in place of input_ids; null: not passed.
  ModelOutputs run_t5(const Tensor& inputs_embeds, const ModelInputs& inputs);

 private:
  Tensor shift_right(const Tensor& labels) const;

  struct Parts;
  std::unique_ptr<Parts> parts_;
};

namespace t5 {
/// T5LayerNorm.forward: the cast is to the weight's type.
Tensor t5_layer_norm(const Norm& norm, const Tensor& hidden_states);
}  // namespace t5

FamilyConfig read_t5_config(ConfigReader& reader, const T5ClassNames& names);
std::unique_ptr<Model> build_t5(Context& context, const FamilyConfig& config, const DataConfig& data,
                                const ModelOptions& options);
ModelTraits t5_traits(const FamilyConfig& config);
double largest_tensor_of_t5(const FamilyConfig& config, const DataConfig& data);

template <const T5ClassNames& names>
constexpr Family t5_family(std::span<const ModelClass> classes, std::span<const char* const> blocks) {
  return {.classes = classes,
          .blocks = blocks,
          .read = [](ConfigReader& reader, const ModelClass&, Framework) { return read_t5_config(reader, names); },
          .build = build_t5,
          .traits = t5_traits,
          .largest_tensor = largest_tensor_of_t5};
}

}  // namespace oometer
