"""Reversible layers for speaker embeddings ("Memory-Efficient Training for Deep Speaker Embedding Learning in Speaker Verification", arXiv
2412.01195): a PyTorch model of the paper.

The network around the layers is the ResNet that the field trains (wenet-e2e/wespeaker, models/resnet.py: basic blocks, statistics of the states
over time, one layer for the embedding); its config has that code's keys. Where neither size nor width changes, blocks are reversible as in RevNet
(arXiv 1707.04585) and written like RevTorch (RobinBruegger/RevTorch, revtorch.py): each half of the channels is changed by what F or G makes of
the other, of a row of such blocks the last output alone is kept, and backward computes each block's inputs from its outputs. The first block of
the other stages is an ordinary one. The head is a linear layer over the speakers. The paper's 8-bit states are bitsandbytes' optimizers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput


class ReversibleResNetConfig(PreTrainedConfig):
    model_type = "reversible_resnet"

    def __init__(
        self,
        feat_dim: int = 80,
        m_channels: int = 32,
        num_blocks: list[int] | None = None,
        embed_dim: int = 256,
        **more: Any,
    ) -> None:
        self.feat_dim, self.m_channels, self.embed_dim = feat_dim, m_channels, embed_dim
        self.num_blocks = num_blocks or [3, 4, 6, 3]
        super().__init__(**more)


def conv(in_planes: int, planes: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(in_planes, planes, kernel, stride=stride, padding=kernel // 2, bias=False)


class BasicBlock(nn.Module):
    def __init__(self, in_planes: int, planes: int, stride: int) -> None:
        super().__init__()
        self.conv1 = conv(in_planes, planes, 3, stride)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = conv(planes, planes, 3)
        self.bn2 = nn.BatchNorm2d(planes)
        self.shortcut = nn.Sequential()
        if stride != 1 or in_planes != planes:
            self.shortcut = nn.Sequential(conv(in_planes, planes, 1, stride), nn.BatchNorm2d(planes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = nn.functional.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += self.shortcut(x)
        return nn.functional.relu(out)


def residual(planes: int) -> nn.Sequential:
    return nn.Sequential(conv(planes, planes, 3), nn.BatchNorm2d(planes), nn.ReLU(), conv(planes, planes, 3), nn.BatchNorm2d(planes))


class ReversibleBlock(nn.Module):
    def __init__(self, planes: int) -> None:
        super().__init__()
        self.f_block = residual(planes // 2)
        self.g_block = residual(planes // 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x1, x2 = torch.chunk(x, 2, dim=1)
        with torch.no_grad():
            y1 = x1 + self.f_block(x2)
            y2 = x2 + self.g_block(y1)
        return torch.cat([y1, y2], dim=1)

    def backward_pass(self, y: torch.Tensor, dy: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y1, y2 = torch.chunk(y, 2, dim=1)
        dy1, dy2 = torch.chunk(dy, 2, dim=1)
        y1.requires_grad = True
        with torch.enable_grad():
            gy1 = self.g_block(y1)
            gy1.backward(dy2)
        with torch.no_grad():
            x2 = y2 - gy1
            del y2, gy1
            dx1 = dy1 + y1.grad
            del dy1
            y1.grad = None
        with torch.enable_grad():
            x2.requires_grad = True
            fx2 = self.f_block(x2)
            fx2.backward(dx1)
        with torch.no_grad():
            x1 = y1 - fx2
            del y1, fx2
            dx2 = dy2 + x2.grad
            del dy2
            x2.grad = None
            x = torch.cat([x1, x2.detach()], dim=1)
            dx = torch.cat([dx1, dx2], dim=1)
        return x, dx


class ReversibleFunction(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")
    def forward(ctx: Any, x: torch.Tensor, blocks: list[ReversibleBlock]) -> torch.Tensor:
        for block in blocks:
            x = block(x)
        ctx.y = x.detach()
        ctx.blocks = blocks
        return x

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx: Any, dy: torch.Tensor) -> Any:
        y = ctx.y
        del ctx.y
        for block in reversed(ctx.blocks):
            y, dy = block.backward_pass(y, dy)
        return dy, None


class ReversibleSequence(nn.ModuleList):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not len(self):
            return x
        if not (torch.is_grad_enabled() and x.requires_grad):
            for block in self:
                x = block(x)
            return x
        return ReversibleFunction.apply(x, list(self))


class ReversibleResNetForSpeakerClassification(PreTrainedModel):
    config_class = ReversibleResNetConfig

    def __init__(self, config: ReversibleResNetConfig) -> None:
        super().__init__(config)
        m = config.m_channels
        self.conv1 = conv(1, m, 3)
        self.bn1 = nn.BatchNorm2d(m)
        for i, blocks in enumerate(config.num_blocks):
            planes, in_planes = m << i, m << max(i - 1, 0)
            first = [BasicBlock(in_planes, planes, 2)] if i > 0 else []
            rest = [ReversibleBlock(planes) for _ in range(blocks - len(first))]
            setattr(self, f"layer{i + 1}", nn.Sequential(*first, ReversibleSequence(rest)))
        rows = config.feat_dim
        for _ in config.num_blocks[1:]:
            rows = (rows + 1) // 2
        self.seg_1 = nn.Linear(2 * rows * (m << (len(config.num_blocks) - 1)), config.embed_dim)
        self.projection = nn.Linear(config.embed_dim, config.num_labels)
        self.post_init()

    def forward(self, input_features: torch.Tensor, labels: Any = None, **_: Any) -> SequenceClassifierOutput:
        x = input_features.permute(0, 2, 1)
        x = x.unsqueeze(1)
        out = nn.functional.relu(self.bn1(self.conv1(x)))
        for i in range(len(self.config.num_blocks)):
            out = getattr(self, f"layer{i + 1}")(out)
        pooling_mean = out.mean(dim=-1).flatten(start_dim=1)
        pooling_std = torch.sqrt(torch.var(out, dim=-1) + 1e-7).flatten(start_dim=1)
        stats = torch.cat((pooling_mean, pooling_std), 1)
        embed_a = self.seg_1(stats)
        logits = self.projection(embed_a)
        loss = None
        if labels is not None:
            loss = nn.functional.cross_entropy(logits.view(-1, self.config.num_labels), labels.view(-1))
        return SequenceClassifierOutput(loss=loss, logits=logits)
