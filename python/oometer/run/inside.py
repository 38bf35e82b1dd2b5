"""Inside a process of the run: what happens when it imports torch and other libraries."""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

from oometer.run import changes


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls a function once a module has been executed."""

    def __init__(self, then: dict[str, Callable[[Any], None]]) -> None:
        self.then = then

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        then = self.then.pop(name, None)
        if then is None:
            return None
        spec = importlib.util.find_spec(name) if path is None else importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_then(module: types.ModuleType) -> None:
            execute(module)
            then(module)

        spec.loader.exec_module = execute_and_then  # type: ignore[method-assign]
        return spec


def enter() -> None:
    """Waits for torch and its friends. Called once, at the process's start."""
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # compiled kernels would do nothing either, and take minutes
    sys.meta_path.insert(
        0,
        _AfterImport(
            {
                "torch": changes.of_torch,
                "torch.nn.parallel.distributed": changes.of_ddp,
                "triton.runtime.jit": changes.of_triton_jit,
                "triton.runtime.autotuner": changes.of_triton_autotuner,
                "transformers.modeling_utils": changes.of_transformers,
            }
        ),
    )
