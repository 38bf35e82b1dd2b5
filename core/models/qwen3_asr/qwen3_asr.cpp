#include "models/qwen3_asr/qwen3_asr.h"

#include <utility>
#include <vector>

#include "models/kit/audio_input.h"
#include "models/kit/hearing.h"
#include "nn/activation.h"
#include "ops/integers.h"
#include "ops/ops.h"
#include "ops/vision.h"

/// Names and order of steps are the modeling file's.
namespace oometer {

namespace {

// mask.sum(-1).to(torch.long), of frames in int32
Tensor frames_in(const Tensor& mask, const Shape& sizes) {
  Tensor sums = integers(mask.context(), Op::sum, sizes);
  const Tensor widened = to(mask, DType::int64);
  return sums;
}

// _post_cnn_length
Tensor post_cnn_length(Tensor lengths) {
  Context& context = lengths.context();
  const Shape sizes = lengths.sizes();
  for (int i = 0; i < 3; ++i) {
    const Tensor is_any = empty(context, Op::gt, sizes, DType::boolean);
    const Tensor halved = halved_lengths(lengths), none = integers(context, Op::zeros_like, sizes);
    lengths = integers(context, Op::where, sizes);
  }
  return lengths;
}

class Qwen3AsrEncoder {
 public:
  Qwen3AsrEncoder(const Builder& builder, const Qwen3AsrConfig& config, const ModelOptions& options)
      : config_(config),
        positional_embedding_(make_sinusoids(builder, config.audio.max_source_positions, config.audio.hidden_size)),
        blocks(builder),
        checkpointing_(options.checkpointing),
        module_(builder.module) {
    layers_.reserve(static_cast<std::size_t>(config.audio.num_hidden_layers));
    for (std::int32_t i = 0; i < config.audio.num_hidden_layers; ++i) {
      layers_.emplace_back(builder.child("layers", "Qwen3ASRAudioEncoderLayer", i), config.audio,
                           "Qwen3ASRAudioAttention", true, options.attention);
      blocks.add_block(builder);
    }
    ln_post_ = LayerNorm(builder.child("ln_post", "LayerNorm"), config.audio.hidden_size);
    downsample_ = Downsampling(builder, config.audio.num_mel_bins, config.downsample_hidden_size,
                               config.audio.hidden_size, options.checkpointing);
  }

  Tensor operator()(const Tensor& argument, const Tensor& input_features_mask, const DataConfig& data) const {
    Context& context = argument.context();
    ModuleCall call(context, module_);
    const Tensor input_features = call.argument(argument);
    check_audio_input(context, input_features, downsample_.conv2d1.weight);
    const std::int64_t batch = input_features.size(0), mel_bins = input_features.size(1), chunk = config_.chunk(),
                       num_chunks = input_features.size(2) / chunk;
    const AudioChunks chunks = config_.chunks(batch, data.audio_seconds);
    // Python's locals go in the order in which they were bound: these in the reverse of their declaration.
    Tensor layer_outputs, hidden_states, its_valid_indices, valid_mask, chunk_post_cnn_lens, conv_out, chunked;
    PatchSequences sequences;
    Tensor chunk_lengths;
    const Tensor feature_lens = frames_in(input_features_mask, {batch});
    chunk_lengths = frames_in(input_features_mask, {batch * num_chunks});
    sequences = audio_windows(chunk_lengths, feature_lens, chunks, config_.n_window_infer / chunk);
    chunked = reshape(permute(view(input_features, {batch, mel_bins, num_chunks, chunk}), {0, 2, 1, 3}),
                      {batch * num_chunks, 1, mel_bins, chunk});
    conv_out = downsample_(chunked);
    conv_out = downsample_.project(conv_out);
    const std::int64_t time_steps = conv_out.size(1);
    {
      const Tensor positions = to(slice(positional_embedding_, 0, 0, time_steps), conv_out.dtype());
      conv_out = add_in_place(conv_out, positions);
    }
    {
      Tensor frames = frames_in(input_features_mask, {batch * num_chunks});
      chunk_post_cnn_lens = post_cnn_length(std::move(frames));
    }
    {
      const Tensor steps = integers(context, Op::arange, {time_steps});
      valid_mask = empty(context, Op::lt, {batch * num_chunks, time_steps}, DType::boolean);
    }
    {
      const Tensor found = nonzero(view(valid_mask, {valid_mask.numel()}), checked_product(batch, chunks.states()));
      its_valid_indices = view(found, {found.numel()});
    }
    {
      const Tensor rows = view(conv_out, {conv_out.size(0) * conv_out.size(1), conv_out.size(2)});
      hidden_states = index_select(rows, 0, its_valid_indices);
    }
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&layer = layers_[i], sequences](const Tensor& hidden) { return layer(hidden, sequences); };
    };
    hidden_states = blocks.run(0, layers_.size(), std::move(hidden_states), checkpointing_, block);
    layer_outputs = hidden_states;
    hidden_states = ln_post_(hidden_states);
    return call.result(hidden_states);
  }

 private:
  Qwen3AsrConfig config_;
  Tensor positional_embedding_;

 public:
  BlockStack blocks;

 private:
  std::vector<ChunkedAudioLayer> layers_;
  LayerNorm ln_post_;
  Downsampling downsample_;
  CheckpointingConfig checkpointing_;
  ModuleId module_;
};

struct Qwen3AsrProjector {
  Qwen3AsrProjector(const Builder& builder, const Qwen3AsrConfig& c)
      : linear_1(builder.child("linear_1", "Linear"), c.audio.hidden_size, c.audio.hidden_size, true),
        linear_2(builder.child("linear_2", "Linear"), c.audio.hidden_size, c.output_dim, true),
        act(c.audio.hidden_act),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_states = linear_1(call.argument(argument));
    hidden_states = activate(act, hidden_states);
    return call.result(linear_2(hidden_states));
  }

  Linear linear_1, linear_2;
  Activation act;
  ModuleId module;
};

class Qwen3Asr final : public HearingModel {
 public:
  Qwen3Asr(Context& context, const Qwen3AsrConfig& config, const DataConfig& data, const ModelOptions& options)
      : HearingModel(context, "Qwen3ASRForConditionalGeneration", Modality::none, data, options), config_(config) {
    const Builder model = root_.child("model", "Qwen3ASRModel");
    model_ = model.module;
    audio_tower_ = std::make_unique<Qwen3AsrEncoder>(model.child("audio_tower", "Qwen3ASREncoder", Modality::vision),
                                                     config, options);
    make_decoder(model.child("language_model", config.text.names->model, Modality::language), config.text, options);
    language_model_.blocks.first_block = audio_tower_->blocks.size();
    projector_ = std::make_unique<Qwen3AsrProjector>(
        model.child("multi_modal_projector", "Qwen3ASRMultiModalProjector", Modality::projector), config);
    make_head(root_, config.text, config.tie_word_embeddings);
  }

  void make_audios(ModelInputs& batch) override {
    if (data_.audios() == 0) return;
    const AudioChunks chunks = config_.chunks(1, data_.audio_seconds);
    const std::int64_t frames = chunks.count() * config_.chunk();
    batch.input_features =
        input({data_.audios(), config_.audio.num_mel_bins, frames}, data_.pixel_dtype.value_or(dtype_));
    batch.pixel_attention_mask = input({data_.audios(), frames}, DType::int32);  // input_features_mask
  }

 private:
  Tensor audio_features(const ModelInputs& inputs) const override {
    const Tensor last_hidden_state = (*audio_tower_)(inputs.input_features, inputs.pixel_attention_mask, data_);
    return (*projector_)(last_hidden_state);
  }

  Qwen3AsrConfig config_;
  std::unique_ptr<Qwen3AsrEncoder> audio_tower_;
  std::unique_ptr<Qwen3AsrProjector> projector_;
};

}  // namespace

std::unique_ptr<Model> build_qwen3_asr(Context& context, const Qwen3AsrConfig& config, const DataConfig& data,
                                       const ModelOptions& options) {
  return std::make_unique<Qwen3Asr>(context, config, data, options);
}

}  // namespace oometer
