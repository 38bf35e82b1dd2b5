"""One training step of a spec: precision, attention's kernel, loss, scaler."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from step.spec import DTYPES, Spec


@contextlib.contextmanager
def attention_choice(spec: Spec) -> Iterator[None]:
    """Forces one kernel of scaled_dot_product_attention where the spec names one."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    names = {
        "flash": SDPBackend.FLASH_ATTENTION,
        "efficient": SDPBackend.EFFICIENT_ATTENTION,
        "math": SDPBackend.MATH,
        "cudnn": SDPBackend.CUDNN_ATTENTION,
    }
    name = spec["train"].get("sdpa_kernel", "auto")
    with contextlib.nullcontext() if name == "auto" else sdpa_kernel(names[name]):
        yield


def autocast(spec: Spec, device: str) -> Any:
    import torch

    precision = spec["train"]["precision"]
    if precision.endswith("_in_autocast"):
        return torch.autocast(device, dtype=getattr(torch, DTYPES[precision]))
    if not precision.startswith("amp_"):
        return contextlib.nullcontext()
    return torch.autocast(device, dtype=getattr(torch, DTYPES[precision[4:]]))


def saving(spec: Spec) -> Any:
    import torch

    where = spec["train"].get("save_on_cpu", "none")
    return contextlib.nullcontext() if where == "none" else torch.autograd.graph.save_on_cpu(pin_memory=where == "pinned")


def loss_of(spec: Spec, out: Any) -> Any:
    loss = out[spec["loss"]] if spec.get("loss") else out["loss"]
    return loss.float().mean() if loss.dim() else loss


Phase = Callable[[str], contextlib.AbstractContextManager[Any]]


def make_scaler(spec: Spec, believe: bool = False) -> Any:
    """The GradScaler that HF Trainer has beside autocast to fp16. `believe`: what it finds in weights of no meaning stops no step."""
    import torch

    if spec["train"]["precision"] not in ("amp_fp16", "fp16_in_autocast"):
        return None
    if believe:

        def take_step(_self: Any, optimizer: Any, state: Any, *given: Any, **keywords: Any) -> Any:
            sum(found.item() for found in state["found_inf_per_device"].values())
            return optimizer.step(*given, **keywords)

        torch.amp.GradScaler._maybe_opt_step = take_step
    return torch.amp.GradScaler("cuda")


def averaged_model(spec: Spec, model: Any) -> Any:
    """An average of the weights (EMA), where the spec asks for one."""
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    return AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999)) if spec["train"].get("ema") else None


def train_step(
    spec: Spec, model: Any, optimizer: Any, batch: dict[str, Any], phase: Phase, scaler: Any = None, averaged: Any = None
) -> None:
    """Forward and backward of each micro-batch, clipping and the optimizer, zero_grad; outputs die when the loss is computed, as in
    HF Trainer. With `keep_outputs` they and the loss live to the end of the step.
    """
    import torch

    steps = spec["train"].get("gradient_accumulation_steps", 1)
    for _ in range(steps):
        with phase("forward"):
            with saving(spec), autocast(spec, next(model.parameters()).device.type):
                out = model(**batch)
                loss = loss_of(spec, out)
            if not spec["train"].get("keep_outputs"):
                del out
            if steps > 1:
                loss = loss / steps
        with phase("backward"):
            (scaler.scale(loss) if scaler else loss).backward()
            if not spec["train"].get("keep_outputs"):
                del loss
    with phase("optimizer"):
        if spec["train"].get("clip_grad"):
            if scaler:
                scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], spec["train"]["clip_grad"])
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        if averaged:
            averaged.update_parameters(model)
    with phase("zero_grad"):
        optimizer.zero_grad(set_to_none=True)
