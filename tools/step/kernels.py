"""A job's runtime.kernels on a ghost: the packages whose kernels transformers calls where they are installed.

Their Python code runs as it is, from the folder that OOMETER_KERNELS names (README.md says how to fill it). Triton's kernels
are not launched, and the CUDA extensions beside them have stand-ins in packages/.
"""

from __future__ import annotations

import os
import sys
import types
from typing import Any

from step.patches import PACKAGES, launch_nothing

# Job key: the package of that operation.
OPERATIONS = {"linear_attention": "fla", "mamba": "mamba_ssm", "causal_conv1d": "causal_conv1d"}
# Compute capability: what one block can have of shared memory, bytes (CUDA C programming guide, "Technical specifications
# per compute capability"). fla chooses tiles by it.
SHARED_MEMORY = {
    (7, 5): 64 << 10,
    (8, 0): 163 << 10,
    (8, 6): 99 << 10,
    (8, 9): 99 << 10,
    (9, 0): 227 << 10,
    (10, 0): 227 << 10,
    (12, 0): 99 << 10,
}


class TritonDriver:
    """What Triton would learn of the device from a real driver."""

    def get_current_target(self) -> Any:
        import torch

        major, minor = torch.cuda.get_device_capability()
        return types.SimpleNamespace(backend="cuda", arch=10 * major + minor, warp_size=32)

    def get_current_device(self) -> int:
        return 0

    @property
    def utils(self) -> TritonDriver:
        return self

    def get_device_properties(self, device: int) -> dict[str, int]:
        import torch

        properties = torch.cuda.get_device_properties(device)
        shared = SHARED_MEMORY[torch.cuda.get_device_capability()]
        return {"max_shared_mem": shared, "multiprocessor_count": properties.multi_processor_count}


def use_kernels(kernels: str | dict[str, str]) -> None:
    """To be called before transformers imports the model: its functions look for their packages when they are made."""
    chosen = {name: kernels if isinstance(kernels, str) else kernels.get(name, "torch") for name in OPERATIONS}
    sys.path += [os.environ["OOMETER_KERNELS"], str(PACKAGES)]
    for operation, package in OPERATIONS.items():
        if chosen[operation] != "packages":
            sys.modules[package] = None  # type: ignore[assignment]  # an import fails, as where it is not installed
    import triton
    from triton.runtime.autotuner import Autotuner

    triton.runtime.driver.set_active(TritonDriver())
    launch_nothing()
    Autotuner.best_config = property(lambda self: self.configs[0])  # mamba_ssm asks which was the fastest
