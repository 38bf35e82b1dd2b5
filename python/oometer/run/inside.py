"""Inside a process of the run: what happens when it imports torch and other libraries."""

import faulthandler
import importlib.abc
import importlib.machinery
import importlib.util
import os
import signal
import sys
import traceback
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from oometer.run import changes, places, world


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls a function once a module has been executed."""

    def __init__(self, then: dict[str, Callable[[Any], None]]) -> None:
        self.then = then
        self.asking: set[str] = set()  # names whose real finder is being asked

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in self.then or name in self.asking:
            return None
        self.asking.add(name)
        try:
            spec = importlib.util.find_spec(name) if path is None else importlib.machinery.PathFinder.find_spec(name, path)
        finally:
            self.asking.discard(name)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_then(module: types.ModuleType) -> None:
            execute(module)
            if then := self.then.pop(name, None):  # not before: some only ask whether there is such a module
                then(module)

        spec.loader.exec_module = execute_and_then  # type: ignore[method-assign]
        return spec


def _on_exception(kind: type[BaseException], error: BaseException, trace: types.TracebackType | None) -> None:
    """What a process failed with, for the command: also before it imports torch."""
    if not issubclass(kind, KeyboardInterrupt):
        said = f"{kind.__name__}: {error}{places.place_of(traceback.extract_tb(trace))}"
        (Path(os.environ["OOMETER_RUN"]) / f"{os.getpid()}.failed").write_text(said, encoding="utf-8")
    sys.__excepthook__(kind, error, trace)


def enter() -> None:
    """Waits for torch and its friends. Called once, at the process's start."""
    # Where a process is that crashes, or that hangs outside Python and cannot be interrupted, for the command.
    stacks = (Path(os.environ["OOMETER_RUN"]) / f"{os.getpid()}.stack").open("w", encoding="utf-8")
    faulthandler.enable(stacks)
    faulthandler.register(signal.SIGRTMAX, stacks)
    sys.excepthook = _on_exception
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # compiled kernels would do nothing either, and take minutes
    if os.environ.get("OOMETER_RUN_WORLD"):
        world.enter_alone()
    sys.meta_path.insert(
        0,
        _AfterImport(
            {
                "torch": changes.of_torch,
                "torch.distributed.distributed_c10d": world.of_distributed,
                "torch.nn.parallel.distributed": changes.of_ddp,
                "deepspeed.runtime.zero.utils": changes.of_deepspeed_utils,
                "deepspeed.runtime.zero.stage_1_and_2": changes.of_deepspeed_stage,
                "deepspeed.runtime.zero.stage3": changes.of_deepspeed_stage,
                "safetensors.torch": changes.of_safetensors,
                "jax": changes.of_jax,
                "triton.runtime.jit": changes.of_triton_jit,
                "triton.runtime.autotuner": changes.of_triton_autotuner,
                "transformers.modeling_utils": changes.of_transformers,
            }
        ),
    )
