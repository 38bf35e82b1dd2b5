"""What is changed in the libraries of a process of the run, and why. Nothing here changes what a GPU holds."""

import functools
import os
import sys
import traceback
from typing import Any

from oometer.run import places

LARGE = 1 << 20  # elements: filling larger ones on the host takes time and memory, and nobody reads the values


def of_torch(torch: Any) -> None:
    """The device, the values that are read from it, the steps."""
    if torch.version.cuda is None:
        built = "for ROCm" if getattr(torch.version, "hip", None) else "without CUDA"
        sys.exit(
            f"oometer run: this is torch {torch.__version__}, built {built}. Install the CUDA build, which is PyPI's "
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
    if os.environ.get("OOMETER_RUN_SNAPSHOT") or os.environ.get("OOMETER_RUN_HOLDERS"):
        from oometer.run.holders import Holders

        watch.holders = Holders()
    _leave_large_weights(torch)
    _draw_twice(torch, values)
    if os.environ.get("OOMETER_RUN_SANDBOX"):
        torch.save = lambda _, file, *given, **keywords: _not_written(file)


def _not_written(file: Any) -> None:
    from oometer.run import watch

    watch.current.note(f"{file} was not written (--sandbox)")


def of_safetensors(safetensors: Any) -> None:
    if os.environ.get("OOMETER_RUN_SANDBOX"):
        safetensors.save_file = lambda _, file, *given, **keywords: _not_written(file)


def of_jax(_: Any) -> None:
    where = places.place_of(traceback.extract_stack())
    sys.exit(f"oometer run: the script imports jax, whose memory is not seen: expected PyTorch{where}")


def _leave_large_weights(torch: Any) -> None:
    """Weights on the host are address space until somebody writes them; on the device nobody does. But there `trunc_normal_`
    has temporaries as large as the weight."""
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
            large = tensor.numel() > LARGE and not tensor.is_meta
            is_left = large and not (tensor.is_cuda and fill.__name__ == "trunc_normal_")
            return tensor if is_left else fill(tensor, *args, **kwargs)

        setattr(init, name, filled)


def _draw_twice(torch: Any, values: Any) -> None:
    """Newer versions of `trunc_normal_` draw again what is out of bounds until nothing is: here once."""
    init = torch.nn.init
    draw = init._no_grad_trunc_normal_

    @functools.wraps(draw)
    def drawn(*args: Any, **kwargs: Any) -> Any:
        values.redraws = 1
        try:
            return draw(*args, **kwargs)
        finally:
            values.redraws = None

    init._no_grad_trunc_normal_ = drawn


def of_ddp(distributed: Any) -> None:
    """It compares shapes with the other ranks', of which nothing comes."""
    distributed._verify_param_shape_across_processes = lambda *_, **__: None


def of_deepspeed_utils(utils: Any) -> None:
    """Rank 0 would be asked for its own list; the others' are the same as ours."""
    utils.assert_ints_same_as_other_ranks = lambda _: None


def of_deepspeed_stage(stage: Any) -> None:
    """Gradients are whatever lies in memory: they never overflow, and their norm is a number."""
    for name in ("DeepSpeedZeroOptimizer", "DeepSpeedZeroOptimizer_Stage3"):
        if optimizer := getattr(stage, name, None):
            asked = optimizer.has_overflow

            def has_overflow(self: Any, *given: Any, asked: Any = asked, **keywords: Any) -> bool:
                asked(self, *given, **keywords)
                return False

            optimizer.has_overflow = has_overflow
    if hasattr(stage, "is_invalid_grad_norm"):
        stage.is_invalid_grad_norm = lambda _: False


def of_transformers(modeling_utils: Any) -> None:
    """Random weights are not drawn: their initialisation loops over every parameter. Those that are not here are empty."""
    from oometer.run import watch
    from oometer.run.weights import MissingWeights

    modeling_utils.PreTrainedModel.initialize_weights = lambda self: None
    if hasattr(modeling_utils, "_get_resolved_checkpoint_files"):  # since 4.50
        MissingWeights(modeling_utils, watch.current.note)


def of_triton_jit(jit: Any) -> None:
    """Triton's kernels do nothing either, so they are not compiled."""
    jit.JITFunction.run = lambda *_, **__: None
    jit.JITFunction.__getitem__ = lambda *_: lambda *_, **__: None


def of_triton_autotuner(autotuner: Any) -> None:
    autotuner.Autotuner.run = lambda *_, **__: None
