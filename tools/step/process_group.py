"""One process of several: a process group whose collectives do nothing."""

from __future__ import annotations

import ctypes
import os
from typing import Any


def join_group(world: int, rank: int = 0) -> None:
    """Makes this process one of `world`, each with a GPU, as torchrun starts them; accelerate takes the group that is there."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel, distributed
    from torch.testing._internal.distributed.fake_pg import FakeStore

    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": str(world)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    dist.init_process_group(backend="fake", store=FakeStore(), rank=rank, world_size=world)
    # DDP compares shapes of the other ranks, of which nothing comes.
    distributed._verify_param_shape_across_processes = lambda *_, **__: None

    def all_reduce(_state: Any, bucket: Any) -> Any:
        """In place, as DDP's own hook does it, which wants a tensor of the group's future."""
        dist.all_reduce(bucket.buffer())
        done = torch.futures.Future()  # type: ignore[var-annotated]
        done.set_result(bucket.buffer())
        return done

    gather = dist.all_gather_into_tensor

    def all_gather(output_tensor: Any, input_tensor: Any, *given: Any, **keywords: Any) -> Any:
        """Every rank has what this one has. accelerate reads shapes of what it pads; the ghost keeps values in the host's memory."""
        work = gather(output_tensor, input_tensor.view(-1), *given, **keywords)
        if input_tensor.nbytes <= 4096:
            for i in range(world):
                ctypes.memmove(output_tensor.data_ptr() + i * input_tensor.nbytes, input_tensor.data_ptr(), input_tensor.nbytes)
        return work

    dist.all_gather_into_tensor = all_gather
    all_reduce.__annotations__.clear()  # which DDP wants to be its own class
    make = DistributedDataParallel.__init__

    def make_with_hook(self: Any, *given: Any, **keywords: Any) -> None:
        make(self, *given, **keywords)
        self.register_comm_hook(None, all_reduce)

    DistributedDataParallel.__init__ = make_with_hook  # type: ignore[method-assign]


def tame_deepspeed(gpu_bytes: int = 80 << 30) -> None:
    """DeepSpeed on the ghost, whose gradients are whatever lies in memory: they never overflow. The GPU has `gpu_bytes`."""
    import torch
    import torch._dynamo.polyfills.loader  # zero.Init replaces functions whose signatures these modules read
    import torch._dynamo.polyfills.tensor  # noqa: F401
    from deepspeed.accelerator import cuda_accelerator
    from deepspeed.runtime.zero import stage3, stage_1_and_2

    cuda_accelerator.CUDA_Accelerator.available_memory = lambda *_: gpu_bytes - torch.cuda.memory_allocated()
    for optimizer in (stage_1_and_2.DeepSpeedZeroOptimizer, stage3.DeepSpeedZeroOptimizer_Stage3):
        asked = optimizer.has_overflow

        def has_overflow(self: Any, *given: Any, asked: Any = asked, **keywords: Any) -> bool:
            asked(self, *given, **keywords)
            return False

        optimizer.has_overflow = has_overflow
    for module in (stage_1_and_2, stage3):
        if hasattr(module, "is_invalid_grad_norm"):
            module.is_invalid_grad_norm = lambda _: False
