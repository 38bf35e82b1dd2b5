"""Stands for flash-attn 2.8.3 where no GPU runs its kernels: allocates what flash_attn/flash_attn_interface.py and csrc/flash_attn/flash_api.cpp
allocate, in their order, and computes nothing. What calls it (transformers, peft, a model) is recorded as it is."""

import math
from typing import Any

import torch
from torch.nn.functional import pad

__version__ = "2.8.3"


def _round(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _rounded_head(size: int) -> int:
    return _round(size, 32) if size <= 128 else _round(size, 64)


def _splits(q: torch.Tensor, k: torch.Tensor) -> int:
    """set_params_splitkv, num_splits_heuristic: how many parts of the keys are attended to apart where there are few queries."""
    batch, queries, heads, size = q.shape
    block = 256 if size <= 64 else 128 if size <= 128 else 64
    processors = 2 * torch.cuda.get_device_properties(q.device).multi_processor_count
    blocks, tasks = math.ceil(k.size(1) / block), batch * heads * math.ceil(queries / 64)
    if tasks >= 0.8 * processors:
        return 1
    eligible = [n for n in range(1, min(128, processors, blocks) + 1) if n == 1 or math.ceil(blocks / n) != math.ceil(blocks / (n - 1))]
    efficiency = {n: tasks * n / processors / math.ceil(tasks * n / processors) for n in eligible}
    return next(n for n in eligible if efficiency[n] >= 0.85 * max(efficiency.values()))


def _padded(x: torch.Tensor) -> torch.Tensor:
    return pad(x, [0, -x.size(-1) % 8]) if x.size(-1) % 8 else x


def _maybe_contiguous(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous() if x.stride(-1) != 1 else x


class _FlashAttn(torch.autograd.Function):
    """FlashAttnFunc; FlashAttnVarlenFunc where cu_seqlens is given."""

    @staticmethod
    def forward(
        ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens: torch.Tensor | None, dropout: float
    ) -> torch.Tensor:
        size = q.size(-1)
        q, k, v = (_maybe_contiguous(_padded(x)) for x in (q, k, v))
        out = torch.empty_like(q)
        new = {"dtype": torch.float32, "device": q.device}
        shape = (q.size(0), q.size(2), q.size(1)) if cu_seqlens is None else (q.size(1), q.size(0))
        lse = torch.empty(shape, **new)
        if cu_seqlens is None and not dropout and (splits := _splits(q, k)) > 1:
            _lse_accum = torch.empty(splits, *shape, **new)
            _out_accum = torch.empty(splits, *shape, _rounded_head(q.size(-1)), **new)
        rng_state = torch.empty(2, dtype=torch.int64, device=q.device)
        saved = (q, k, v, out, lse) + (() if cu_seqlens is None else (cu_seqlens, cu_seqlens))
        ctx.save_for_backward(*saved, rng_state)
        return out[..., :size]

    @staticmethod
    def backward(ctx: Any, dout: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        q, k, v, out, _lse, *cu_seqlens, _rng_state = ctx.saved_tensors
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        size = dout.size(-1)
        _kernels(_maybe_contiguous(_padded(dout)), q, k, dk, dv, cu_seqlens[0].numel() - 1 if cu_seqlens else None)
        return dq[..., :size], dk[..., :size], dv[..., :size], None, None


def _kernels(dout: torch.Tensor, q: torch.Tensor, k: torch.Tensor, dk: torch.Tensor, dv: torch.Tensor, sequences: int | None) -> None:
    """mha_bwd; mha_varlen_bwd where there are sequences."""
    heads, rounded = q.size(-2), _rounded_head(q.size(-1))
    new = {"dtype": torch.float32, "device": q.device}
    if sequences is None:
        batch, rows = q.size(0), _round(q.size(1), 128)
        _softmax_d = torch.empty(batch, heads, rows, **new)
        _dq_accum = torch.empty(batch, rows, heads, rounded, **new)
    else:
        rows = q.size(0) + 128 * sequences
        _softmax_d = torch.empty(heads, rows, **new)
        _dq_accum = torch.empty(rows, heads, rounded, **new)
    if heads != k.size(-2):
        wide = (*k.shape[:-2], heads, k.size(-1))
        groups = (*k.shape[:-2], k.size(-2), heads // k.size(-2), k.size(-1))
        dk_expanded, dv_expanded = torch.empty(wide, dtype=k.dtype, device=k.device), torch.empty(wide, dtype=k.dtype, device=k.device)
        torch.sum(dk_expanded.reshape(groups), -2, out=dk)
        torch.sum(dv_expanded.reshape(groups), -2, out=dv)


def flash_attn_func(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Any = None, deterministic: bool = False, return_attn_probs: bool = False,
) -> torch.Tensor:  # fmt: skip
    return _FlashAttn.apply(q, k, v, None, dropout_p)


def flash_attn_varlen_func(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens_q: torch.Tensor, cu_seqlens_k: torch.Tensor, max_seqlen_q: Any, max_seqlen_k: Any,
    dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False, window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0,
    alibi_slopes: Any = None, deterministic: bool = False, return_attn_probs: bool = False, block_table: Any = None,
) -> torch.Tensor:  # fmt: skip
    return _FlashAttn.apply(q, k, v, cu_seqlens_q, dropout_p)


def flash_attn_with_kvcache(*args: Any, **kwargs: Any) -> torch.Tensor:
    raise NotImplementedError("paged caches are not recorded")
