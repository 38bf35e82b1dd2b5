"""What a process takes of the GPU besides its tensors, one cause a run. Prints a JSON object, bytes by NVML.

    probe.py context|cublas|cudnn|nccl

`idle` before CUDA is touched, `context_only` with one tensor, `used_after` with what is probed; of it `reserved_after` is
PyTorch's allocator's.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable

import measure


def cublas() -> None:
    import torch

    a = torch.zeros(512, 512, device="cuda", dtype=torch.bfloat16)
    torch.mm(a, a)


def cudnn() -> None:
    import torch

    layer = torch.nn.Conv2d(3, 64, 7, stride=2, padding=3, device="cuda")
    layer(torch.zeros(8, 3, 224, 224, device="cuda")).sum().backward()


def nccl() -> None:
    import torch

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    torch.distributed.init_process_group("nccl", rank=0, world_size=1)
    torch.distributed.all_reduce(torch.zeros(1 << 20, device="cuda"))


PROBES: dict[str, Callable[[], None]] = {"context": lambda: None, "cublas": cublas, "cudnn": cudnn, "nccl": nccl}


def main() -> None:
    import torch

    result = {"idle": measure.used_memory()}
    kept = torch.zeros(1, device="cuda")
    result |= {"context_only": measure.used_memory(), "device": torch.cuda.get_device_name()}
    PROBES[sys.argv[1]]()
    torch.cuda.synchronize()
    result |= {"used_after": measure.used_memory(), "reserved_after": torch.cuda.memory_reserved()}
    result["versions"] = {"torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
    del kept
    print(json.dumps(result), flush=True)
    os._exit(0)  # a process group does not have to shut down


if __name__ == "__main__":
    main()
