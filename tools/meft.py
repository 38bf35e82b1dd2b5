"""MEFT (arXiv 2306.00477), reversible adapters, for Whisper: a PyTorch model of the paper, made of transformers' layers.

Layers, adapters, the autograd function and its backward follow the authors' code for BERT (BaohaoLiao/mefts, models/modeling_revbert.py and
modules.py): f_arch "layer" is MEFT1, "adapter" is MEFT2. Ours: the adapter beside Whisper's MLP takes what its norm gives, as that is before
the MLP and not behind it; the decoder's layers see the encoder's states, whose gradient is summed over them; and what the first layer takes
is made to want a gradient, for which the authors train a norm of the embeddings. Classes have transformers' names.
"""

from __future__ import annotations

from typing import Any
from unittest import mock

import torch
from torch import nn
from transformers.activations import ACT2FN
from transformers.models.whisper import modeling_whisper as whisper


class Adapter(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.dense1 = nn.Linear(config.d_model, config.adapter_bottleneck_dim)
        self.dense2 = nn.Linear(config.adapter_bottleneck_dim, config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.act_fn = ACT2FN[config.activation_function]

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        hidden_states = self.dense1(hidden_states)
        hidden_states = self.act_fn(hidden_states)
        hidden_states = self.dropout(hidden_states)
        return self.dense2(hidden_states)


class Reversible:
    """What a layer of either kind does. F's and G's results stay bound, by `f_outputs` and `g_outputs`, until the layer is through."""

    def __init__(self, config: Any, *more: Any, **keywords: Any) -> None:
        super().__init__(config, *more, **keywords)
        self.ffn_adapter = Adapter(config)
        self.rev_adapter = Adapter(config)
        self.x1_factor, self.x2_factor = getattr(config, "x1_factor", 0.1), getattr(config, "x2_factor", 1)
        functions = self.layer, lambda hidden_states, *_: self.rev_adapter(hidden_states)
        self.F, self.G = functions if config.f_arch == "layer" else functions[::-1]
        self.seeds: dict[str, int] = {}

    def set_seed(self, key: str) -> None:
        self.seeds[key] = torch.initial_seed()
        torch.manual_seed(self.seeds[key])

    def layer(self, hidden_states: torch.Tensor, mask: Any, encoder_states: Any) -> torch.Tensor:
        """transformers' forward, with an adapter beside the MLP."""

        def drop(x: torch.Tensor, p: float) -> torch.Tensor:
            return nn.functional.dropout(x, p=p, training=self.training)

        residual = hidden_states
        hidden_states = self.self_attn_layer_norm(hidden_states)
        hidden_states, _ = self.self_attn(hidden_states=hidden_states, attention_mask=mask)
        hidden_states = drop(hidden_states, self.dropout)
        hidden_states = residual + hidden_states
        if encoder_states is not None:
            residual = hidden_states
            hidden_states = self.encoder_attn_layer_norm(hidden_states)
            hidden_states, _ = self.encoder_attn(hidden_states, key_value_states=encoder_states, attention_mask=None)
            hidden_states = drop(hidden_states, self.dropout)
            hidden_states = residual + hidden_states
        residual = hidden_states
        hidden_states = self.final_layer_norm(hidden_states)
        adapter_change = self.ffn_adapter(hidden_states)
        hidden_states = self.activation_fn(self.fc1(hidden_states))
        hidden_states = drop(hidden_states, self.activation_dropout)
        hidden_states = self.fc2(hidden_states)
        hidden_states = drop(hidden_states, self.dropout)
        hidden_states = hidden_states + adapter_change
        hidden_states = residual + hidden_states
        if encoder_states is None and hidden_states.dtype == torch.float16:
            clamp_value = torch.finfo(hidden_states.dtype).max - 1000
            hidden_states = torch.clamp(hidden_states, min=-clamp_value, max=clamp_value)
        return hidden_states

    def forward(self, hidden_states: torch.Tensor, mask: Any, encoder_states: Any) -> torch.Tensor:
        x1, x2 = torch.chunk(hidden_states, 2, dim=-1)
        self.set_seed("F")
        f_outputs = self.F(x2, mask, encoder_states)
        y1 = self.x1_factor * x1 + f_outputs
        self.set_seed("G")
        g_outputs = self.G(y1, mask, encoder_states)
        y2 = self.x2_factor * x2 + g_outputs
        return torch.cat([y2, y1], dim=-1)

    def backward_pass(self, y: torch.Tensor, dy: torch.Tensor, mask: Any, encoder_states: Any) -> tuple[torch.Tensor, torch.Tensor]:
        y2, y1 = torch.chunk(y, 2, dim=-1)
        dy2, dy1 = torch.chunk(dy, 2, dim=-1)
        with torch.enable_grad():
            y1.requires_grad = True
            torch.manual_seed(self.seeds["G"])
            g_outputs = self.G(y1, mask, encoder_states)
            g_outputs.backward(dy2, retain_graph=True)
        with torch.no_grad():
            x2 = (y2 - g_outputs) / self.x2_factor
            del y2
            dy1 += y1.grad
            y1.grad = None
        with torch.enable_grad():
            x2.requires_grad = True
            torch.manual_seed(self.seeds["F"])
            f_outputs = self.F(x2, mask, encoder_states)
            f_outputs.backward(dy1, retain_graph=False)
        with torch.no_grad():
            x1 = (y1 - f_outputs) / self.x1_factor
            del y1
            dy2 *= self.x2_factor
            dy2 += x2.grad
            x2.grad = None
            dy1 *= self.x1_factor
            x2 = x2.detach()
        return torch.cat([x1, x2], dim=-1), torch.cat([dy1, dy2], dim=-1)


class WhisperEncoderLayer(Reversible, whisper.WhisperEncoderLayer):
    pass


class WhisperDecoderLayer(Reversible, whisper.WhisperDecoderLayer):
    pass


class RevBackProp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden_states: torch.Tensor, encoder_states: Any, layers: list[Any], mask: Any) -> torch.Tensor:
        for layer in layers:
            hidden_states = layer(hidden_states, mask, encoder_states)
        ctx.save_for_backward(hidden_states.detach(), encoder_states)
        ctx.layers, ctx.mask = layers, mask
        return hidden_states

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> Any:
        y, encoder_states = ctx.saved_tensors
        if encoder_states is not None:
            encoder_states = encoder_states.detach().requires_grad_()
        for layer in reversed(ctx.layers):
            y, dy = layer.backward_pass(y, dy, ctx.mask, encoder_states)
        return dy, None if encoder_states is None else encoder_states.grad, None, None


class Stack(nn.ModuleList):
    """Layers that transformers' loop takes for one."""

    def __iter__(self) -> Any:
        return iter([self.run])

    def run(self, hidden_states: torch.Tensor, mask: Any = None, encoder_states: Any = None, **_: Any) -> torch.Tensor:
        if not hidden_states.requires_grad:
            hidden_states.requires_grad_(True)
        hidden_states = torch.cat([hidden_states, hidden_states], dim=-1)
        hidden_states = RevBackProp.apply(hidden_states, encoder_states, list(self._modules.values()), mask)
        x1, x2 = torch.chunk(hidden_states, 2, dim=-1)
        return (x1 + x2) / 2.0


class WhisperForConditionalGeneration(whisper.WhisperForConditionalGeneration):
    def __init__(self, config: Any) -> None:
        layers = {"WhisperEncoderLayer": WhisperEncoderLayer, "WhisperDecoderLayer": WhisperDecoderLayer}
        with mock.patch.multiple(whisper, **layers):
            super().__init__(config)
        for part in (self.model.encoder, self.model.decoder):
            part.layers.__class__ = Stack
