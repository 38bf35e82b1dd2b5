#include "models/whisper/ladder.h"

#include <algorithm>
#include <utility>

#include "ops/ops.h"

namespace oometer {

LadderGate::LadderGate(const Builder& builder, const char* name) {
  const Tensor ones = empty(*builder.context, Op::fill, {1}, builder.dtype);
  parameter = builder.parameter(name, {1});  // torch.ones(1) * gate_alpha
}

Tensor LadderGate::operator()(const Tensor& states, const std::function<Tensor()>& others) const {
  if (!parameter) return add(states, others());
  Tensor gate;
  {
    const Tensor scaled = div_scalar(parameter);
    gate = sigmoid(scaled);
  }
  const Tensor own = mul(gate, states);
  Tensor rest;
  {
    const Tensor share = neg(gate);  // 1 - gate
    const Tensor its = others();
    rest = mul(share, its);
  }
  return add(own, rest);
}

SideNetwork::SideNetwork(const Builder& builder, const WhisperConfig& c, const ModelOptions& options, bool is_decoder)
    : hidden_dropout(c.dropout), module(builder.module) {
  WhisperConfig side = c;  // side_config
  side.hidden_size = c.side_size();
  side.intermediate_size /= c.ladder.task_reduction_factor;
  side.decoder_ffn_dim /= c.ladder.task_reduction_factor;
  const std::vector<std::int64_t>& beside = is_decoder ? c.ladder.decoder_layers : c.ladder.encoder_layers;
  const auto layers = static_cast<std::int32_t>(is_decoder ? c.decoder_layers : c.num_hidden_layers);
  const auto has = [&](std::int32_t i) { return std::find(beside.begin(), beside.end(), i) != beside.end(); };
  const auto downsample = [&](const char* name, std::int32_t i) {
    return Linear(builder.child(name, "Linear", i), c.hidden_size, side.hidden_size, c.ladder.has_bias);
  };
  const char* type = is_decoder ? "WhisperDecoderLayer" : "WhisperEncoderLayer";
  block.resize(static_cast<std::size_t>(layers));
  for (std::int32_t i = 0; i < layers; ++i)
    if (has(i))
      block[static_cast<std::size_t>(i)].emplace(builder.child("block", type, i), side, "WhisperAttention", options,
                                                 is_decoder);
  first_downsample = downsample("first_downsample", -1);
  for (std::int32_t i = 0; i < layers; ++i) downsamples.push_back(has(i) ? downsample("downsamples", i) : Linear());
  gates.resize(block.size());
  if (c.ladder.is_gated) {
    const Builder list = builder.child("gate_params", "ParameterList");
    for (std::int32_t i = 0; i < layers; ++i)
      gates[static_cast<std::size_t>(i)] = LadderGate(list.child("", "Parameter", i), "data");
  }
  final_layer_norm = LayerNorm(builder.child("final_layer_norm", "LayerNorm"), side.hidden_size);
}

void SideNetwork::begin(const Tensor& hidden_states, Tensor& states) const {
  const ModuleScope scope(hidden_states.context(), module);
  const Tensor dropped = dropout(hidden_states, hidden_dropout);
  states = first_downsample(dropped);
}

void SideNetwork::step(std::size_t i, const Tensor& hidden_states, const Tensor& mask, const Tensor& encoder_states,
                       Tensor& states) const {
  if (!block[i]) return;
  const ModuleScope scope(hidden_states.context(), module);
  states = gates[i](states, [&] { return downsamples[i](hidden_states); });
  states = (*block[i])(states, mask, encoder_states);
}

}  // namespace oometer
