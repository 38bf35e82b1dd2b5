"""What is changed in the libraries of a process of the run, and why. Nothing here changes what a GPU holds."""

import functools
import os
import sys
from typing import Any

LARGE = 1 << 20  # elements: filling larger ones on the host takes time and memory, and nobody reads the values


def of_torch(torch: Any) -> None:
    """The device, the values that are read from it, the steps."""
    if torch.version.cuda is None:
        sys.exit(
            f"oometer run: this is torch {torch.__version__}, built without CUDA. Install the CUDA build, which is PyPI's "
            "(pip install torch, without --index-url .../cpu); it needs no GPU here."
        )
    # cuDNN and NVRTC want a real device. Convolutions take PyTorch's own kernels, with their own workspaces.
    torch.backends.cudnn.enabled = False
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.autograd.set_multithreading_enabled(False)  # no thread of its own for each device: the log is in order

    from oometer.run.values import Rules, Values
    from oometer.run.watch import Watch

    def number(name: str, otherwise: float) -> float:
        return float(os.environ.get(f"OOMETER_RUN_{name}", otherwise))

    rules = Rules(int(number("INTEGER", 0)), bool(number("BOOLEAN", 1)), number("REAL", 1.0))
    values = Values(rules)
    watch = Watch(os.environ["OOMETER_RUN"], int(os.environ.get("OOMETER_RUN_STEPS", "3")), values)
    values.on_gradient = watch.begin
    values.__enter__()
    if os.environ.get("OOMETER_RUN_SNAPSHOT"):
        torch.cuda.memory._record_memory_history(max_entries=5_000_000, stacks="python")
    _leave_large_weights(torch)


def _leave_large_weights(torch: Any) -> None:
    """Weights on the host are address space until somebody writes them; on the device nobody does."""
    init = torch.nn.init
    for name in (
        "normal_",
        "uniform_",
        "trunc_normal_",
        "kaiming_uniform_",
        "kaiming_normal_",
        "xavier_uniform_",
        "xavier_normal_",
        "zeros_",
        "ones_",
        "constant_",
    ):
        fill = getattr(init, name)

        @functools.wraps(fill)
        def filled(tensor: Any, *args: Any, fill: Any = fill, **kwargs: Any) -> Any:
            return tensor if tensor.numel() > LARGE and not tensor.is_meta else fill(tensor, *args, **kwargs)

        setattr(init, name, filled)


def of_ddp(distributed: Any) -> None:
    """It compares shapes with the other ranks', of which nothing comes."""
    distributed._verify_param_shape_across_processes = lambda *_, **__: None


def of_transformers(modeling_utils: Any) -> None:
    """Random weights are not drawn: their initialisation loops over every parameter."""
    modeling_utils.PreTrainedModel.initialize_weights = lambda self: None


def of_triton_jit(jit: Any) -> None:
    """Triton's kernels do nothing either, so they are not compiled."""
    jit.JITFunction.run = lambda *_, **__: None
    jit.JITFunction.__getitem__ = lambda *_: lambda *_, **__: None


def of_triton_autotuner(autotuner: Any) -> None:
    autotuner.Autotuner.run = lambda *_, **__: None
