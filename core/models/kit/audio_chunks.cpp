#include "models/kit/audio_chunks.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "config/reader.h"
#include "models/sizes.h"
#include "nn/activation.h"
#include "nn/checkpointing.h"
#include "ops/cub.h"
#include "ops/integers.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

namespace {

std::int64_t samples_of(double seconds) { return std::llround(seconds * 16'000); }

}  // namespace

std::int64_t begun_frames(double seconds) { return std::max<std::int64_t>((samples_of(seconds) + 159) / 160, 1); }
std::int64_t whole_frames(double seconds) { return std::max<std::int64_t>(samples_of(seconds) / 160, 1); }

std::int64_t AudioChunks::states_of(std::int64_t chunk_frames) const {
  for (int i = 0; i < halvings; ++i) chunk_frames = (chunk_frames - 1) / 2 + 1;
  return chunk_frames;
}

std::vector<std::int64_t> AudioChunks::frames_of_chunks() const {
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(frames / chunk), chunk);
  if (frames % chunk != 0) lengths.push_back(frames % chunk);
  return lengths;
}

std::int64_t AudioChunks::states() const {
  const std::int64_t rest = frames % chunk;
  return frames / chunk * states_of(chunk) + (rest == 0 ? 0 : states_of(rest));
}

Tensor frames_of_audios(const Tensor& feature_attention_mask) {
  Tensor sums = integers(feature_attention_mask.context(), Op::sum, {feature_attention_mask.size(0)});
  const Tensor widened = to(feature_attention_mask, DType::int64);
  return sums;
}

Tensor without_padding(const Tensor& input_features, const Tensor& feature_attention_mask, const AudioChunks& chunks) {
  const Tensor by_frame = transpose(input_features, 1, 2), is_frame = to(feature_attention_mask, DType::boolean);
  return transpose(index_mask(by_frame, is_frame, checked_product(chunks.audios, chunks.frames)), 0, 1);
}

PaddedFeatures chunk_and_pad_features(const Tensor& input_features, const AudioChunks& chunks) {
  Context& context = input_features.context();
  const std::int64_t audios = chunks.audios, count = chunks.count();
  Tensor chunk_lengths, tail_chunk_index, chunk_num;
  {
    Tensor chunked = empty(context, Op::div, {audios}, DType::float32);
    chunked = empty(context, Op::floor, {audios}, DType::float32);  // ceil
    chunk_num = to(chunked, DType::int64);
  }
  {
    const Tensor size = sum_all(chunk_num);
    chunk_lengths = integers(context, Op::fill, {count});
  }
  {
    const Tensor padded = integers(context, Op::constant_pad_nd, {audios + 1});
    tail_chunk_index = integers(context, Op::cumsum, {audios + 1});
    const Workspace scan(context, Op::cumsum, cub_scan_bytes(audios + 1));
  }
  { const Tensor tails = integers(context, Op::sub, {audios}); }  // feature_lens % (n_window * 2)
  {
    const Tensor is_empty = pointwise(Op::eq, {&chunk_lengths}, DType::boolean);
    const Tensor whole = integers(context, Op::fill, {});
    chunk_lengths = integers(context, Op::where, {count});
  }
  // pad_sequence
  const Tensor padded_feature =
      empty(context, Op::constant_pad_nd, {count, chunks.longest(), input_features.size(0)}, input_features.dtype());
  return {transpose(padded_feature, 1, 2), std::move(chunk_lengths)};
}

Tensor valid_indices(const Tensor& states_of_chunks, const AudioChunks& chunks) {
  Context& context = states_of_chunks.context();
  const std::int64_t longest = chunks.states_of(chunks.longest()), count = states_of_chunks.size(0);
  { const Tensor max_len = integers(context, Op::max, {}); }
  Tensor mask;
  {
    const Tensor steps = integers(context, Op::arange, {longest});
    mask = empty(context, Op::lt, {count, longest}, DType::boolean);
  }
  mask = view(mask, {mask.numel()});
  const Tensor found = nonzero(mask, checked_product(chunks.audios, chunks.states()));
  return view(found, {found.numel()});
}

Tensor halved_lengths(const Tensor& lengths) {
  Context& context = lengths.context();
  Tensor halved = integers(context, Op::sub, lengths.sizes());
  halved = integers(context, Op::floor_divide, lengths.sizes());
  return integers(context, Op::add, lengths.sizes());
}

Tensor make_sinusoids(const Builder& encoder, std::int64_t length, std::int64_t channels) {
  return encoder.child("positional_embedding", "SinusoidsPositionEmbedding").buffer({length, channels}, DType::float32);
}

namespace {

/// CUB's scratch memory for a scan of int32: descriptors of 8 bytes, of 32 tiles for the first tile.
constexpr std::int64_t kScanOfInt32 = 1023;

}  // namespace

Tensor states_of_lengths(const Tensor& input_lengths) {
  Context& context = input_lengths.context();
  const Shape& sizes = input_lengths.sizes();
  Tensor feat_lengths;
  const Tensor input_lengths_leave = integers(context, Op::sub, sizes);  // input_lengths % chunk_len
  feat_lengths = halved_lengths(input_lengths_leave);
  Tensor halved = halved_lengths(feat_lengths);
  for (const Op op : {Op::sub, Op::floor_divide, Op::add}) halved = integers(context, op, sizes);
  Tensor whole = integers(context, Op::floor_divide, sizes);
  whole = integers(context, Op::mul, sizes);
  return integers(context, Op::add, sizes);
}

PatchSequences audio_windows(const Tensor& chunk_lengths, const Tensor& feature_lens, const AudioChunks& chunks,
                             std::int64_t n_window_ratio) {
  Context& context = chunk_lengths.context();
  PatchSequences sequences;
  Tensor remainder, feature_lens_after_cnn;
  TensorList cu_chunk_lens;
  const Tensor aftercnn_lens = states_of_lengths(feature_lens);
  feature_lens_after_cnn = states_of_lengths(chunk_lengths);
  { const Tensor longest = integers(context, Op::max, {}); }
  const std::int64_t window = checked_product(chunks.states_of(chunks.longest()), n_window_ratio),
                     states = chunks.states();
  for (std::int64_t audio = 0; audio < chunks.audios; ++audio) {
    { const Tensor times = integers(context, Op::floor_divide, {}); }
    remainder = integers(context, Op::sub, {});
    { const Tensor is_left = empty(context, Op::ne, {}, DType::boolean); }
    sequences.lengths.insert(sequences.lengths.end(), static_cast<std::size_t>(states / window), window);
    if (states % window == 0) continue;
    cu_chunk_lens.push_back(remainder);
    sequences.lengths.push_back(states % window);
  }
  const std::int64_t bounds = std::ssize(sequences.lengths) + 1;
  const Tensor lengths = integers(context, Op::to_copy, {bounds});
  sequences.cu_seqlens = empty(context, Op::cumsum, {bounds}, DType::int32);
  const Tensor copy = empty(context, Op::to_copy, {bounds}, DType::int32);
  const Workspace scan(context, Op::cumsum, kScanOfInt32);
  return sequences;
}

HalvingConv::HalvingConv(const Builder& builder, std::int64_t in_channels, std::int64_t out_channels)
    : weight(builder.parameter("weight", {out_channels, in_channels, 3, 3})),
      bias(builder.parameter("bias", {out_channels})),
      module(builder.module) {}

Tensor HalvingConv::operator()(const Tensor& x) const {
  ModuleCall call(x.context(), module);
  return call.result(convolution(call.argument(x), weight, bias,
                                 {.stride = {2, 2}, .padding = {1, 1}, .dilation = {1, 1}, .output_padding = {0, 0}}));
}

Downsampling::Downsampling(const Builder& encoder, std::int64_t num_mel_bins, std::int64_t channels, std::int64_t width,
                           const CheckpointingConfig& config)
    : conv2d1(encoder.child("conv2d1", "Conv2d"), 1, channels),
      conv2d2(encoder.child("conv2d2", "Conv2d"), channels, channels),
      conv2d3(encoder.child("conv2d3", "Conv2d"), channels, channels),
      checkpointing(config) {
  for (int i = 0; i < 3; ++i) num_mel_bins = (num_mel_bins + 1) / 2;
  conv_out = Linear(encoder.child("conv_out", "Linear"), channels * num_mel_bins, width, false);
}

Tensor Downsampling::operator()(const Tensor& chunk) const {
  Tensor padded_embed = conv2d1(chunk);
  // enable_input_require_grads, which finds get_input_embeddings() of every model inside.
  require_input_grad(checkpointing, padded_embed, conv2d1.module);
  padded_embed = activate(Activation::gelu, padded_embed);
  for (const HalvingConv* conv : {&conv2d2, &conv2d3}) {
    const Tensor convolved = (*conv)(padded_embed);
    padded_embed = activate(Activation::gelu, convolved);
  }
  return padded_embed;
}

Tensor Downsampling::project(const Tensor& convolved) const {
  const Shape sizes = convolved.sizes();  // b, c, f, t
  const Tensor by_time = contiguous(permute(convolved, {0, 3, 1, 2}));
  return conv_out(view(by_time, {sizes[0], sizes[3], checked_product(sizes[1], sizes[2])}));
}

ChunkedAudioLayer::ChunkedAudioLayer(const Builder& builder, const WhisperConfig& c, const char* attention,
                                     bool key_bias, AttentionKind kind)
    : self_attn(PatchAttention::apart(builder.child("self_attn", attention), c.hidden_size, c.num_attention_heads, kind,
                                      {{"k_proj", &PatchAttention::k_proj, key_bias},
                                       {"v_proj", &PatchAttention::v_proj},
                                       {"q_proj", &PatchAttention::q_proj},
                                       {"out_proj", &PatchAttention::proj}})),
      self_attn_layer_norm(builder.child("self_attn_layer_norm", "LayerNorm"), c.hidden_size),
      fc1(builder.child("fc1", "Linear"), c.hidden_size, c.intermediate_size, true),
      fc2(builder.child("fc2", "Linear"), c.intermediate_size, c.hidden_size, true),
      final_layer_norm(builder.child("final_layer_norm", "LayerNorm"), c.hidden_size),
      activation_fn(c.hidden_act),
      module(builder.module) {}

Tensor ChunkedAudioLayer::operator()(const Tensor& hidden_in, const PatchSequences& sequences) const {
  const ModuleScope scope(hidden_in.context(), module);
  Tensor residual = hidden_in;
  Tensor hidden_states = self_attn_layer_norm(hidden_in);
  hidden_states = self_attn(hidden_states, sequences, {});
  hidden_states = add(residual, hidden_states);
  residual = hidden_states;
  hidden_states = final_layer_norm(hidden_states);
  hidden_states = fc1(hidden_states);
  hidden_states = activate(activation_fn, hidden_states);
  hidden_states = fc2(hidden_states);
  hidden_states = add(residual, hidden_states);
  if (hidden_states.dtype() == DType::float16) hidden_states = clamp(hidden_states, true);
  return hidden_states;
}

void read_convolved_audio(ConfigReader& reader, ConvolvedAudioConfig& c, const char* positions, const char* counts) {
  constexpr std::int64_t kStates = 13;
  c.n_window = reader.integer("n_window", c.n_window, {2, 1 << 20});
  c.n_window_infer = reader.integer("n_window_infer", c.n_window_infer);
  c.downsample_hidden_size = reader.integer("downsample_hidden_size", c.downsample_hidden_size);
  c.output_dim = reader.integer("output_dim", c.output_dim);
  reader.ignore({"model_type", "scale_embedding", "init_std"});
  if (c.audio.hidden_size % 2 != 0) reader.fail_found("d_model", "inconsistent", "expected an even number");
  if (c.chunks_of(1, 1).states_of(c.chunk()) != kStates)
    reader.fail_found(
        "n_window", "inconsistent",
        std::string("expected 49 to 52, of which a chunk has the 13 states that the ") + counts + " counts");
  if (c.n_window_infer < c.chunk())
    reader.fail_found("n_window_infer", "inconsistent",
                      "expected a chunk of frames at least (" + std::to_string(c.chunk()) + ")");
  if (c.audio.max_source_positions < kStates)
    reader.fail_found(positions, "inconsistent", "expected at least 13, the states of a chunk");
}

double largest_tensor_of_audio(const ConvolvedAudioConfig& c, const DataConfig& data) {
  const std::int64_t width = c.audio.hidden_size, channels = c.downsample_hidden_size,
                     heard = checked_product(std::max<std::int64_t>(data.audios(), 1),
                                             whole_frames(data.audio_seconds) + c.chunk());
  return std::max({bytes_of({heard, c.audio.num_mel_bins, channels}),
                   bytes_of({heard, std::max(width, c.audio.intermediate_size)}), bytes_of({9 * channels, channels}),
                   bytes_of({width, std::max({width, c.audio.num_mel_bins * channels, c.audio.intermediate_size,
                                              c.output_dim, c.audio.max_source_positions})})});
}

}  // namespace oometer
