#include "models/qwen2_5_omni/qwen2_5_omni.h"

#include <utility>
#include <vector>

#include "models/kit/thinker.h"
#include "models/qwen2_vl/qwen2_vl.h"
#include "nn/activation.h"
#include "nn/checkpointing.h"
#include "ops/cub.h"
#include "ops/integers.h"
#include "ops/ops.h"
#include "ops/vision.h"

/// Names and order of steps are the modeling file's.
namespace oometer {

constexpr QwenVLClassNames kQwen25OmniClassNames{
    {"Qwen2_5OmniThinkerForConditionalGeneration", "Qwen2_5OmniThinkerTextModel", "Qwen2_5OmniDecoderLayer",
     "Qwen2_5OmniAttention", "Qwen2MLP", "Qwen2_5OmniRMSNorm", "Qwen2_5OmniRotaryEmbedding", true},
    "Qwen2_5OmniThinkerModel",
    "Qwen2_5OmniVisionEncoder",
    "Qwen2_5_VisionPatchEmbed",
    "Qwen2_5OmniVisionRotaryEmbedding",
    "Qwen2_5OmniVisionBlock",
    "Qwen2_5OmniRMSNorm",
    "Qwen2_5OmniVisionAttention",
    "Qwen2_5OmniMLP",
    "Qwen2_5OmniPatchMerger",
    true,
    true};

namespace {

// Its two lengths, each [audios]: of states, and of tokens.
struct OutputLengths {
  Tensor input_lengths, output_lengths;
};

OutputLengths output_lengths_of(const Tensor& feature_lens) {
  OutputLengths lengths;
  lengths.input_lengths = halved_lengths(feature_lens);
  lengths.output_lengths = halved_lengths(lengths.input_lengths);
  return lengths;
}

// F.pad(lengths[:-1].cumsum(0), (1, 0), value=0)
Tensor offsets_of(const Tensor& lengths) {
  Context& context = lengths.context();
  const std::int64_t count = lengths.size(0) - 1;
  const Tensor sums = integers(context, Op::cumsum, {count});
  if (count > 0) const Workspace scan(context, Op::cumsum, cub_scan_bytes(count));
  return integers(context, Op::constant_pad_nd, {count + 1});
}

// get_pool_indices
Tensor pool_indices_of(const Tensor& feature_lens, std::int64_t pooled) {
  Context& context = feature_lens.context();
  const std::int64_t audios = feature_lens.size(0);
  Tensor local_indices, pair_offsets, offsets, num_pooled;
  const Tensor after_conv1 = halved_lengths(feature_lens);
  num_pooled = halved_lengths(after_conv1);
  offsets = offsets_of(after_conv1);
  pair_offsets = repeat_interleave(context, audios, false, pooled);
  {
    const Tensor count = sum_all(num_pooled);
    local_indices = integers(context, Op::arange, {pooled});
  }
  {
    Tensor before = offsets_of(num_pooled);
    const Tensor repeated = repeat_interleave(context, audios, false, pooled);
    before.reset();
  }
  const Tensor doubled = integers(context, Op::mul, {pooled});
  return integers(context, Op::add, {pooled});
}

// get_audio_cu_seqlens
PatchSequences audio_sequences(const Tensor& chunk_lengths, const AudioChunks& chunks) {
  Context& context = chunk_lengths.context();
  const std::int64_t count = chunk_lengths.size(0);
  const Tensor after_conv1 = halved_lengths(chunk_lengths);
  PatchSequences sequences;
  Tensor padded;
  {
    const Tensor sums = integers(context, Op::cumsum, {count});
    { const Workspace scan(context, Op::cumsum, cub_scan_bytes(count)); }
    padded = integers(context, Op::constant_pad_nd, {count + 1});
  }
  sequences.cu_seqlens = to(padded, DType::int32);
  for (std::int64_t audio = 0; audio < chunks.audios; ++audio)
    for (const std::int64_t frames : chunks.frames_of_chunks()) sequences.lengths.push_back(chunks.states_of(frames));
  return sequences;
}

class Qwen25OmniAudioEncoder final : public AudioTower {
 public:
  Qwen25OmniAudioEncoder(const Builder& builder, const Qwen25OmniConfig& config, const ModelOptions& options)
      : conv1_(builder.child("conv1", "Conv1d"), config.audio.num_mel_bins, config.audio.hidden_size, 1),
        conv2_(builder.child("conv2", "Conv1d"), config.audio.hidden_size, config.audio.hidden_size, 2),
        positional_embedding_(make_sinusoids(builder, config.audio.max_source_positions, config.audio.hidden_size)),
        audio_bos_eos_token_(builder.child("audio_bos_eos_token", "Embedding"), 2, config.output_dim),
        blocks_(builder),
        chunk_(config.chunk()),
        checkpointing_(options.checkpointing),
        module_(builder.module) {
    const std::int64_t width = config.audio.hidden_size;
    layers_.reserve(static_cast<std::size_t>(config.audio.num_hidden_layers));
    for (std::int32_t i = 0; i < config.audio.num_hidden_layers; ++i) {
      layers_.emplace_back(builder.child("layers", "Qwen2_5OmniAudioEncoderLayer", i), config.audio,
                           "Qwen2_5OmniAudioAttention", false, options.attention);
      blocks_.add_block(builder);
    }
    ln_post_ = LayerNorm(builder.child("ln_post", "LayerNorm"), width);
    proj_ = Linear(builder.child("proj", "Linear"), width, config.output_dim, true);
  }

  BlockStack& block_stack() override { return blocks_; }

  // Qwen2_5OmniThinkerModel.get_audio_features
  Tensor features(const Tensor& input_features, const Tensor& feature_attention_mask,
                  const DataConfig& data) const override {
    const AudioChunks chunks{data.audios(), std::min(begun_frames(data.audio_seconds), kQwen25OmniFrames), chunk_, 1};
    OutputLengths lengths;
    Tensor given;
    const Tensor feature_lens = frames_of_audios(feature_attention_mask);
    given = without_padding(input_features, feature_attention_mask, chunks);
    lengths = output_lengths_of(feature_lens);
    return forward(given, feature_lens, chunks, data.audios() * data.tokens_per_audio);
  }

 private:
  Tensor forward(const Tensor& argument, const Tensor& feature_lens, const AudioChunks& chunks,
                 std::int64_t pooled) const {
    Context& context = argument.context();
    ModuleCall call(context, module_);
    // Python's locals go in the order in which they were bound: these in the reverse of their declaration.
    Tensor hidden_states, padded_embed, padded_mask;
    PatchSequences sequences;
    Tensor pool_indices, its_valid_indices;
    PaddedFeatures padded = chunk_and_pad_features(call.argument(argument), chunks);
    {
      const Tensor after_conv1 = halved_lengths(padded.chunk_lengths);
      its_valid_indices = valid_indices(after_conv1, chunks);
    }
    pool_indices = pool_indices_of(feature_lens, pooled);
    sequences = audio_sequences(padded.chunk_lengths, chunks);
    padded.padded_feature = to(padded.padded_feature, conv1_.weight.dtype());
    {
      Tensor steps = integers(context, Op::arange, {chunks.longest()});
      const Tensor is_frame = empty(context, Op::lt, {chunks.count(), 1, chunks.longest()}, DType::boolean);
      steps.reset();
      padded_mask = to(is_frame, DType::int64);
    }
    {
      Tensor convolved = conv1_(padded.padded_feature);
      require_grad(convolved);
      convolved = activate(Activation::gelu, convolved);
      padded_embed = mul(convolved, padded_mask);
    }
    {
      Tensor convolved = conv2_(padded_embed);
      convolved = activate(Activation::gelu, convolved);
      padded_embed = transpose(convolved, 1, 2);
    }
    {
      const Tensor first = slice(unsqueeze(positional_embedding_, 0), 1, 0, padded_embed.size(1));
      const Tensor positions = to(first, padded_embed.dtype());
      padded_embed = add(padded_embed, positions);
    }
    {
      const Tensor rows = reshape(padded_embed, {padded_embed.size(0) * padded_embed.size(1), padded_embed.size(2)});
      hidden_states = index_select(rows, 0, its_valid_indices);
    }
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&layer = layers_[i], sequences](const Tensor& hidden) { return layer(hidden, sequences); };
    };
    hidden_states = blocks_.run(0, layers_.size(), std::move(hidden_states), checkpointing_, block);
    const Tensor layer_outputs = hidden_states;
    {
      Tensor first = index(hidden_states, pool_indices), second = integers(context, Op::add, {pooled});
      second = index(hidden_states, second);
      second = add(first, second);
      first.reset();
      hidden_states = div_scalar(second);
    }
    const Tensor normed = ln_post_(hidden_states);
    hidden_states = proj_(normed);
    return call.result(hidden_states);
  }

  // enable_input_require_grads, which finds get_input_embeddings() of every model inside.
  void require_grad(Tensor& convolved) const { require_input_grad(checkpointing_, convolved, conv1_.module); }

  SpectrogramConv conv1_, conv2_;
  Tensor positional_embedding_;
  Embedding audio_bos_eos_token_;
  std::vector<ChunkedAudioLayer> layers_;
  BlockStack blocks_;
  LayerNorm ln_post_;
  Linear proj_;
  std::int64_t chunk_;
  CheckpointingConfig checkpointing_;
  ModuleId module_;
};

class Qwen25OmniThinker final : public ThinkerModel {
 public:
  Qwen25OmniThinker(Context& context, const Qwen25OmniConfig& config, const DataConfig& data,
                    const ModelOptions& options)
      : ThinkerModel(context, kQwen25OmniClassNames.text.causal_lm, data, options, config.grids.vision.patch_elements(),
                     false) {
    const QwenVLClassNames& names = kQwen25OmniClassNames;
    const Builder model = root_.child("model", names.model);
    model_ = model.module;
    ThinkerParts parts;
    parts.audio_tower = std::make_unique<Qwen25OmniAudioEncoder>(
        model.child("audio_tower", "Qwen2_5OmniAudioEncoder", Modality::vision), config, options);
    parts.visual = make_qwen_vision(model.child("visual", names.tower, Modality::vision), config.grids, options);
    parts.num_mel_bins = config.audio.num_mel_bins;
    parts.frames = [](double) { return kQwen25OmniFrames; };
    make_decoder(model.child("language_model", names.text.model, Modality::language), config.grids.text, options);
    set_towers(std::move(parts));
    make_head(root_, config.grids.text, config.grids.tie_word_embeddings);
  }
};

}  // namespace

std::unique_ptr<Model> build_qwen2_5_omni(Context& context, const Qwen25OmniConfig& config, const DataConfig& data,
                                          const ModelOptions& options) {
  return std::make_unique<Qwen25OmniThinker>(context, config, data, options);
}

}  // namespace oometer
