"""Ladder Side Tuning (arXiv 2206.06522), a small network beside a frozen one, for Whisper: a PyTorch model of the paper, made of transformers' layers.

The side network, its gates and where it gets the backbone's states follow the authors' code for T5 and BART (ylsung/Ladder-Side-Tuning,
seq2seq/third_party/models/t5/modeling_side_t5.py, bart/modeling_bart_encoder.py), and the config has their keys: `task_reduction_factor` r makes
layers of 1/r of the width, `encoder_side_layers` and `decoder_side_layers` say beside which of the backbone's they are. Ours: Whisper's layers
and the norm behind them; the lengths of heads shrink, their number does not.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from torch import nn
from transformers.modeling_outputs import Seq2SeqLMOutput
from transformers.models.whisper import modeling_whisper as whisper


def reduced(config: Any) -> Any:
    side_config = copy.deepcopy(config)
    for key in ("d_model", "encoder_ffn_dim", "decoder_ffn_dim"):
        setattr(side_config, key, getattr(config, key) // config.task_reduction_factor)
    return side_config


def gate_of(parameter: torch.Tensor, config: Any) -> torch.Tensor:
    return torch.sigmoid(parameter / getattr(config, "gate_T", 0.1))


class Side(nn.Module):
    """The side network of one stack. Its states are kept here while transformers' loop goes over the backbone's layers."""

    def __init__(self, config: Any, make_layer: Any, layers: int, beside: list[int] | None) -> None:
        super().__init__()
        self.config = config
        side_config = reduced(config)
        beside = list(range(layers)) if beside is None else beside
        bias = getattr(config, "add_bias_sampling", True)
        self.block = nn.ModuleList([make_layer(side_config, i) if i in beside else None for i in range(layers)])
        self.first_downsample = nn.Linear(config.d_model, side_config.d_model, bias=bias)
        self.downsamples = nn.ModuleList([nn.Linear(config.d_model, side_config.d_model, bias=bias) if i in beside else None for i in range(layers)])
        if getattr(config, "use_gate", "learnable") == "learnable":
            self.gate_params = nn.ParameterList([nn.Parameter(torch.ones(1) * getattr(config, "gate_alpha", 0)) for _ in range(layers)])
        self.final_layer_norm = nn.LayerNorm(side_config.d_model)
        self.encoder_states: torch.Tensor | None = None
        self.states: torch.Tensor | None = None

    def begin(self, hidden_states: torch.Tensor) -> None:
        self.states = self.first_downsample(nn.functional.dropout(hidden_states, p=self.config.dropout, training=self.training))

    def step(self, i: int, hidden_states: torch.Tensor, mask: Any) -> None:
        if self.block[i] is None:
            return
        if hasattr(self, "gate_params"):
            gate = gate_of(self.gate_params[i], self.config)
            self.states = gate * self.states + (1 - gate) * self.downsamples[i](hidden_states)
        else:
            self.states = self.states + self.downsamples[i](hidden_states)
        more = () if self.encoder_states is None else (self.encoder_states,)
        self.states = self.block[i](self.states, mask, *more)

    def end(self) -> torch.Tensor:
        states, self.states, self.encoder_states = self.states, None, None
        return self.final_layer_norm(states)


class Stack(nn.ModuleList):
    """The backbone's layers, each followed by the side network's."""

    def __iter__(self) -> Iterator[Any]:
        return iter([functools.partial(self.run, i) for i in range(len(self._modules))])

    def run(self, i: int, hidden_states: torch.Tensor, mask: Any = None, encoder_states: Any = None, **_: Any) -> torch.Tensor:
        if i == 0:
            self.side[0].begin(hidden_states)
        more = () if encoder_states is None else (encoder_states,)
        output = self[i](hidden_states, mask, *more)
        self.side[0].step(i, output, mask)
        return output


def lay_beside(part: Any, side: Side) -> None:
    part.side = side
    part.layers.__class__ = Stack
    part.layers.side = [side]  # in a list it is no submodule


class WhisperEncoder(whisper.WhisperEncoder):
    def __init__(self, config: Any) -> None:
        super().__init__(config)
        lay_beside(self, Side(config, lambda c, _: whisper.WhisperEncoderLayer(c), config.encoder_layers, getattr(config, "encoder_side_layers", None)))


class WhisperDecoder(whisper.WhisperDecoder):
    def __init__(self, config: Any) -> None:
        super().__init__(config)
        lay_beside(self, Side(config, whisper.WhisperDecoderLayer, config.decoder_layers, getattr(config, "decoder_side_layers", None)))


class WhisperForConditionalGeneration(whisper.WhisperForConditionalGeneration):
    def __init__(self, config: Any) -> None:
        with mock.patch.multiple(whisper, WhisperEncoder=WhisperEncoder, WhisperDecoder=WhisperDecoder):
            super().__init__(config)
        bias = getattr(config, "add_bias_sampling", True)
        self.side_final_upsample = nn.Linear(config.d_model // config.task_reduction_factor, config.d_model, bias=bias)
        if getattr(config, "merge_last", False):
            self.side_gate_params_merge_last = nn.Parameter(torch.ones(1) * getattr(config, "gate_alpha", 0))

    def forward(self, input_features: Any = None, decoder_input_ids: Any = None, labels: Any = None, **_: Any) -> Seq2SeqLMOutput:
        if labels is not None:
            decoder_input_ids = whisper.shift_tokens_right(labels, self.config.pad_token_id, self.config.decoder_start_token_id)
        encoder, decoder = self.model.encoder, self.model.decoder
        hidden_states = encoder(input_features).last_hidden_state
        decoder.side.encoder_states = encoder.side.end()
        decoder_states = decoder(input_ids=decoder_input_ids, encoder_hidden_states=hidden_states, use_cache=False).last_hidden_state
        sequence_output = decoder.side.end()
        sequence_output = self.side_final_upsample(sequence_output)
        if hasattr(self, "side_gate_params_merge_last"):
            gate = gate_of(self.side_gate_params_merge_last, self.config)
            sequence_output = gate * sequence_output + (1 - gate) * decoder_states
        logits = self.proj_out(sequence_output)
        loss = None
        if labels is not None:
            loss = nn.functional.cross_entropy(logits.view(-1, self.config.vocab_size), labels.reshape(-1))
        return Seq2SeqLMOutput(loss=loss, logits=logits, encoder_last_hidden_state=hidden_states)
