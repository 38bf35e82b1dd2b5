"""Stands for causal_conv1d 1.7.0's extension (csrc/causal_conv1d.cpp): what its functions allocate, which is copies of layout."""

from typing import Any


def causal_conv1d_fwd(*_: Any) -> None:
    pass


def causal_conv1d_bwd(x: Any, weight: Any, bias: Any, dout: Any, *_: Any) -> None:
    is_channel_last = x.stride(1) == 1 and x.stride(2) > 1
    if is_channel_last and dout.stride(1) != 1:
        dout.transpose(-1, -2).contiguous()
    elif not is_channel_last and dout.stride(2) != 1:
        dout.contiguous()


def causal_conv1d_update(*_: Any) -> None:
    pass
