"""Modules that graph_cases.py and gpumemnet_lms.py export: operators that few models have, language models as their scripts train them."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import nn
from torch.nn import functional as F

# --- operators --------------------------------------------------------------------------------------------------------


class Images(nn.Module):
    """A convolution of images, then `kind` of what is below, then a linear layer."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.threshold = nn.Parameter(torch.zeros(1, 8, 1, 1))
        self.head = nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kind == "unfold_images":  # of what wants no gradient
            x = F.unfold(x, 3, padding=1, stride=2).view(x.shape[0], 3, 9, -1)
        x = getattr(self, self.kind, lambda x: x)(self.conv(x))
        return self.head(x if x.ndim == 2 else x.mean((2, 3)))

    def fold(self, x: torch.Tensor) -> torch.Tensor:
        return F.fold(F.unfold(x, 3, padding=1, stride=2).relu(), x.shape[-2:], 3, padding=1, stride=2)

    def fold_transposed(self, x: torch.Tensor) -> torch.Tensor:
        x = x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
        windows = F.unfold(x, (2, 4), stride=(2, 4)) * 2
        return F.fold(windows.transpose(1, 2).contiguous().transpose(1, 2), x.shape[-2:], (2, 4), stride=(2, 4))

    def outlook(self, x: torch.Tensor) -> torch.Tensor:
        windows = F.unfold(x, 3, padding=1, stride=2).reshape(x.shape[0], 2, 4, 9, -1).permute(0, 1, 4, 3, 2)
        return windows.mean((1, 2, 3)).repeat(1, 2)

    def pool_channels_last(self, x: torch.Tensor) -> torch.Tensor:
        return F.avg_pool2d(x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2), 3, 2, padding=1, ceil_mode=True)

    def pool_transposed(self, x: torch.Tensor) -> torch.Tensor:
        return F.avg_pool2d(x.transpose(2, 3), 2).transpose(2, 3)

    def pool_rows(self, x: torch.Tensor) -> torch.Tensor:
        rows = F.avg_pool1d(x.flatten(2), 3, 2, padding=1, ceil_mode=True)
        tokens = F.avg_pool1d(x.flatten(2).transpose(1, 2).contiguous().transpose(1, 2), 4)
        return rows.mean(2) + tokens.mean(2)

    def group_variance(self, x: torch.Tensor) -> torch.Tensor:
        groups = x.view(x.shape[0], 2, 4, x.shape[2], x.shape[3])
        return (groups / groups.var(dim=(2, 3, 4), unbiased=False, keepdim=True).add(1e-5).sqrt()).view(x.shape)

    def variance(self, x: torch.Tensor) -> torch.Tensor:
        return x.var((2, 3)) + x.std((2, 3))

    def deviation(self, x: torch.Tensor) -> torch.Tensor:
        return x / x.std(1, keepdim=True)

    def variance_of_all(self, x: torch.Tensor) -> torch.Tensor:
        return x * x.var((0, 1, 2, 3))

    def layer_norm_2d(self, x: torch.Tensor) -> torch.Tensor:
        variance, mean = torch.var_mean(x, 1, unbiased=False, keepdim=True)
        return (x - mean) * torch.rsqrt(variance + 1e-6)

    def variance_and_mean(self, x: torch.Tensor) -> torch.Tensor:
        variance, mean = torch.var_mean(x, (2, 3))
        return variance + mean + torch.var_mean(x, (2, 3))[0] + torch.var_mean(x, (2, 3))[1]

    def larger(self, x: torch.Tensor) -> torch.Tensor:
        return torch.minimum(torch.max(x, self.threshold), self.threshold.detach())

    def largest(self, x: torch.Tensor) -> torch.Tensor:
        return (x * x.max(1, keepdim=True)[0]).flatten(2).max(2)[0] + x.flatten(2).min(2)[0]

    def look_up(self, x: torch.Tensor) -> torch.Tensor:
        columns = torch.zeros(6, dtype=torch.int64, device=x.device)
        chosen = x.index_select(3, columns)
        return chosen + chosen.gather(2, torch.zeros(chosen.shape, dtype=torch.int64, device=x.device))


class Norms(nn.Module):
    """RMSNorm of rows: before, after and between transposed dimensions, with and without weights."""

    def __init__(self, first: bool = True) -> None:
        super().__init__()
        self.first = nn.RMSNorm(192) if first else nn.Identity()
        self.layer = nn.Linear(192, 64)
        self.norm, self.bare, self.both = nn.RMSNorm(64), nn.RMSNorm(64, elementwise_affine=False), nn.RMSNorm((4, 64))
        self.head = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.layer(self.first(F.rms_norm(x.flatten(1), (192,)))))
        x = self.bare(x).view(-1, 8, 8).transpose(1, 2).reshape(x.shape[0], 1, 64).repeat(1, 4, 1)
        return self.head(self.both(self.norm(x.transpose(0, 1)).transpose(0, 1)).mean(1))


# --- language models: what GPUMemNet's paper trained ------------------------------------------------------------------


class MaskedLM(nn.Module):
    """BertForMaskedLM: the loss, and the logits, which a loop's name `outputs` holds."""

    def __init__(self, **config: Any) -> None:
        super().__init__()
        self.model = transformers.BertForMaskedLM._from_config(transformers.BertConfig(**config), attn_implementation="sdpa")

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out = self.model(input_ids=input_ids, attention_mask=attention_mask, labels=targets)
        return out.loss, out.logits


class CausalLM(nn.Module):
    """GPT2LMHeadModel as transformers before 4.48 ran it: the loss of a copy of the logits, and outputs with keys and values (`presents`),
    which are views of what c_attn gives."""

    def __init__(self, **config: Any) -> None:
        super().__init__()
        self.model = transformers.GPT2LMHeadModel._from_config(transformers.GPT2Config(**config), attn_implementation="sdpa")

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
        presents: list[torch.Tensor] = []
        hooks = [
            block.attn.c_attn.register_forward_hook(lambda _module, _inputs, out: presents.append(out))
            for block in self.model.transformer.h
        ]
        logits = self.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).logits
        for hook in hooks:
            hook.remove()
        shift_logits = logits[..., :-1, :].contiguous()
        shift_labels = input_ids[..., 1:].contiguous()
        loss = F.cross_entropy(shift_logits.view(-1, shift_logits.size(-1)), shift_labels.view(-1))
        return loss, logits, *presents


class Classifier(nn.Module):
    """XLNetForSequenceClassification: its attention is einsum's, whatever the version."""

    def __init__(self, **config: Any) -> None:
        super().__init__()
        self.model = transformers.XLNetForSequenceClassification(transformers.XLNetConfig(**config))

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor, targets: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        out = self.model(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids, labels=targets)
        return out.loss, out.logits


class Speech(nn.Module):
    """WhisperForConditionalGeneration: the loss of a transcript."""

    def __init__(self, **config: Any) -> None:
        super().__init__()
        config = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1} | config
        self.model = transformers.WhisperForConditionalGeneration._from_config(
            transformers.WhisperConfig(**config), attn_implementation="sdpa"
        )

    def forward(self, input_features: torch.Tensor, decoder_input_ids: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out = self.model(input_features=input_features, decoder_input_ids=decoder_input_ids, labels=targets, use_cache=False)
        return out.loss, out.logits


def inputs_of(model: str, tokens: int) -> dict[str, tuple[list[int], str]]:
    """Sizes of a sample and types, in the order of forward's arguments. The mask in four dimensions is what
    _prepare_4d_attention_mask_for_sdpa and its kin (modeling_attn_mask_utils.py) made once a forward."""
    ids, four_dims = ([tokens], "int64"), ([1, tokens, tokens], "float32")
    return {
        "MaskedLM": {"input_ids": ids, "attention_mask": four_dims, "targets": ids},
        "CausalLM": {"input_ids": ids, "attention_mask": four_dims},
        "Classifier": {"input_ids": ids, "attention_mask": ids, "token_type_ids": ids, "targets": ([], "int64")},
    }[model]
