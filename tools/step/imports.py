"""Imports that take long, before a fork that begins CUDA itself."""

from __future__ import annotations

import os


def import_for_forks(*names: str) -> None:
    """Imports "transformers.Trainer" and the like without a word to CUDA, which would not outlive a fork (bitsandbytes asks it)."""
    os.environ |= {"PYTORCH_NVML_BASED_CUDA_CHECK": "1", "TRANSFORMERS_DISABLE_TORCH_CHECK": "1"}
    import importlib

    import torch
    from torch.utils import _triton

    answers = {(torch.cuda, "get_device_capability"): lambda *_: (8, 0), (torch._C, "_cuda_getDeviceCount"): lambda: 1}
    answers |= {(_triton, "has_triton"): lambda **_: True, (torch.cuda, "is_bf16_supported"): lambda *_, **__: True}
    real = {(place, name): getattr(place, name) for place, name in answers}
    for (place, name), answer in answers.items():
        setattr(place, name, answer)
    import torch._dynamo

    for name in names:
        package, _, what = name.rpartition(".")
        getattr(importlib.import_module(package), what)  # transformers and trl import their parts when asked for them
    for (place, name), function in real.items():
        setattr(place, name, function)
    if torch.cuda.is_initialized():
        raise RuntimeError("an import began CUDA: a fork cannot use it")
