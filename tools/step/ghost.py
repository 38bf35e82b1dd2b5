"""The ghost device: a stand-in for the CUDA libraries whose kernels do nothing."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def ghost_environment(folder: str | Path, capability: str = "80", gibibytes: int = 16384) -> dict[str, str]:
    """What a process needs to see the ghost device: a stand-in for the CUDA libraries whose kernels do nothing."""
    folder = Path(folder).resolve()
    libraries = [folder / "libghost.so", folder / "libghostnvml.so"]
    if not all(p.exists() for p in libraries):
        raise SystemExit(f"no ghost in {folder}: build it first")
    quiet = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TOKENIZERS_PARALLELISM": "false"}
    quiet |= {"PYTHONWARNINGS": "ignore", "TORCH_CPP_LOG_LEVEL": "ERROR", "OMP_NUM_THREADS": "1"}
    quiet["PYTHONHASHSEED"] = "1"  # Gemma 3 makes its rotary embeddings in the order of a set of texts
    return {
        "LD_PRELOAD": ":".join(map(str, libraries)),
        "TRANSFORMERS_DISABLE_TORCH_CHECK": "1",
        "GHOST_MEM_GIB": os.environ.get("GHOST_MEM_GIB", str(gibibytes)),
        "GHOST_SM": os.environ.get("GHOST_SM", capability),
        **quiet,
    }


def enter_ghost(folder: str | Path | None, capability: str = "80") -> None:
    """Starts this program again with the ghost device loaded, unless it already is."""
    folder = folder or os.environ.get("GHOST_DIR")
    if not folder:
        raise SystemExit("name the ghost's folder: --ghost DIR, or GHOST_DIR in the environment")
    wanted = ghost_environment(folder, capability)
    if os.environ.get("LD_PRELOAD") != wanted["LD_PRELOAD"]:
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **wanted})


def quiet_torch() -> None:
    """Everything on one thread, no cuDNN: as the ghost device wants it."""
    import logging

    import torch

    torch.backends.cudnn.enabled = False
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.autograd.set_multithreading_enabled(False)
    logging.disable(logging.WARNING)
