"""An optimizer from a spec."""

from __future__ import annotations

from typing import Any

from step.spec import Spec


def make_optimizer(spec: Spec, parameters: list[Any], model: Any = None) -> Any:
    import torch

    train = spec["train"]
    if train.get("opt_impl", "").startswith("bnb-"):
        return bitsandbytes_optimizer(train, parameters, model)
    how = {"foreach": {"foreach": True}, "fused": {"fused": True}, "for-loop": {"foreach": False}, "default": {}}
    options = how[train.get("opt_impl", "foreach")]
    name = train.get("optimizer", "adamw")
    if name in ("adamw", "adam"):
        cls = torch.optim.AdamW if name == "adamw" else torch.optim.Adam
        return cls(parameters, lr=1e-5, weight_decay=train.get("weight_decay", 0.01 if name == "adamw" else 0.0), **options)
    momentum = 0.9 if name == "sgd_momentum" else 0.0
    return torch.optim.SGD(parameters, lr=1e-3, momentum=momentum, **options)


def bitsandbytes_optimizer(train: dict[str, Any], parameters: list[Any], model: Any) -> Any:
    """As Trainer makes it: embeddings keep 32 bits."""
    import bitsandbytes as bnb
    import torch

    if train.get("paged"):  # unified memory, which the ghost has none of: host memory in its place
        bnb.functional.get_paged = host_memory
        bnb.functional.prefetch_tensor = bnb.functional.fill = lambda *_, **__: None
    bits = int(train["opt_impl"].removeprefix("bnb-").removesuffix("bit"))
    cls = bnb.optim.AdamW if train["optimizer"] == "adamw" else bnb.optim.Adam
    optimizer = cls(parameters, lr=1e-5, optim_bits=bits, is_paged=train.get("paged", False))
    if bits == 8:
        manager = bnb.optim.GlobalOptimManager.get_instance()
        for module in model.modules():
            if isinstance(module, torch.nn.Embedding):
                manager.register_module_override(module, "weight", {"optim_bits": 32})
    return optimizer


def host_memory(*shape: int, dtype: Any, device: Any) -> Any:
    import torch

    tensor = torch.zeros(shape, dtype=dtype)
    tensor.is_paged, tensor.page_deviceid = True, device.index
    return tensor
