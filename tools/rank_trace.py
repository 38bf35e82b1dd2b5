"""Runs one rank of data-parallel training on the ghost device, with the framework's own code, and writes its trace as real_trace.py does.

    rank_trace.py CASE.json OUT.jsonl --ghost DIR [--deepspeed DIR] [--peaks FILE]

Strategies: DeepSpeed ZeRO 0-3, DDP, FSDP1 and FSDP2.

The process group is torch's "fake" one, whose collectives do nothing. Each event also has the Python frames that caused it.
`--deepspeed DIR` takes another version of DeepSpeed (made with `pip install --target DIR`).
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import gc
import importlib
import json
import logging
import os
import re
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from real_trace import Modules, Peaks, finish
from step.batch import make_inputs
from step.device_values import DeviceValues, read_grids, route_evenly, visual_tokens
from step.ghost import enter_ghost, quiet_torch
from step.job import spec_of
from step.model import build_model
from step.spec import DTYPES, Spec
from step.training import attention_choice, autocast, averaged_model, loss_of, saving

H100 = 80 * 2**30 - 700 * 2**20  # what DeepSpeed is told when it asks how much the device has
NO_DECAY = re.compile(r"bias|layernorm|rmsnorm|(?:^|\.)norm(?:$|\.)|_norm(?:$|\.)", re.IGNORECASE)


def resolved(config: dict[str, Any], world: int, spec: Spec, model: Any) -> dict[str, Any]:
    """The "auto" entries of a DeepSpeed config, as transformers' Trainer fills them."""
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

    answer = HfTrainerDeepSpeedConfig(copy.deepcopy(config))
    arguments = types.SimpleNamespace(
        world_size=world,
        per_device_train_batch_size=spec["batch"]["mbs"],
        gradient_accumulation_steps=spec["train"].get("gradient_accumulation_steps", 1),
        max_grad_norm=1.0,
        learning_rate=2e-5,
        adam_beta1=0.9,
        adam_beta2=0.999,
        adam_epsilon=1e-8,
        weight_decay=0.0,
        bf16=spec["train"]["precision"] in ("bf16", "amp-bf16"),
        fp16=spec["train"]["precision"] == "fp16",
        bf16_full_eval=False,
        fp16_full_eval=False,
        fp16_backend="auto",
        half_precision_backend="auto",
        fp16_opt_level="O1",
        save_on_each_node=False,
        warmup_steps=0,
        get_warmup_steps=lambda n: 0,
        tf32=True,
        parallelism_config=None,
        deepspeed_plugin=None,
    )
    answer.trainer_config_process(arguments)
    answer.trainer_config_finalize(arguments, model, 1000)
    return answer.config | {"zero_allow_untested_optimizer": True}


def old_names() -> None:
    """Names that today's libraries no longer have and DeepSpeed 0.12 imports; none is used in a run."""
    import numpy as np
    from torch.distributed.elastic.agent.server import api

    for module, name, value in ((api, "log", logging.getLogger()), (api, "_get_socket_with_port", None), (np, "BUFSIZE", 8192)):
        if not hasattr(module, name):
            setattr(module, name, value)


def believe_nothing() -> None:
    """Gradients are whatever lies in memory: overflow tests run, for what they allocate, but find none."""
    import deepspeed.accelerator.cuda_accelerator as accelerator
    import deepspeed.runtime.zero.stage_1_and_2 as stage2
    import torch
    from deepspeed.runtime.zero import stage3

    accelerator.CUDA_Accelerator.available_memory = lambda self, device_index=None: H100 - torch.cuda.memory_allocated()
    for cls in (stage2.DeepSpeedZeroOptimizer, stage3.DeepSpeedZeroOptimizer_Stage3):

        def has_overflow(self: Any, *args: Any, original: Any = cls.has_overflow, **kwargs: Any) -> bool:
            original(self, *args, **kwargs)
            return False

        cls.has_overflow = has_overflow
    for module in (stage2, stage3):
        if hasattr(module, "is_invalid_grad_norm"):
            module.is_invalid_grad_norm = lambda norm: False
    # Lists are compared with those of rank 0, which a fake process group does not have: this rank takes itself for it there.
    from deepspeed.runtime.zero import utils

    class RankZero:
        def __getattr__(self, name: str, real: Any = utils.dist) -> Any:
            return (lambda *args, **kwargs: 0) if name == "get_rank" else getattr(real, name)

    utils.dist = RankZero()


def groups_of(model: Any, how_many: int, weight_decay: float) -> list[dict[str, Any]]:
    """HF Trainer's parameter groups: with weight decay, and without (biases, norms); get_decay_parameter_names, 5.23."""
    import torch

    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    norms = {n for n, m in model.named_modules() if isinstance(m, torch.nn.LayerNorm)}
    if how_many == 1:
        return [{"params": [p for _, p in named], "weight_decay": weight_decay}]
    decayed = [p for n, p in named if not NO_DECAY.search(n) and n.rpartition(".")[0] not in norms]
    others = [p for n, p in named if NO_DECAY.search(n) or n.rpartition(".")[0] in norms]
    return [g for g in ({"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}) if g["params"]]


def half_or(spec: Spec, name: str | None) -> Any:
    import torch

    return getattr(torch, DTYPES[name]) if name else None


def wrap_deepspeed(spec: Spec, model: Any, optimizer: Any) -> tuple[Any, Callable[[Any], None], Callable[[], None]]:
    import deepspeed

    config = resolved(spec["parallel"]["ds_config"], spec["parallel"]["world"], spec, model)
    optimizers_without_kernels()
    if "optimizer" in config:  # DeepSpeed makes it, of all that trains in one group
        if "zero_allow_untested_optimizer" not in spec["parallel"]["ds_config"]:
            config.pop("zero_allow_untested_optimizer")
        own = {"model_parameters": [p for p in model.parameters() if p.requires_grad]}
    elif config["zero_optimization"].get("offload_optimizer") and config.get("zero_force_ds_cpu_optimizer", True):  # accelerate replaces AdamW
        own = {"optimizer": deepspeed.ops.adam.DeepSpeedCPUAdam(groups_of(model, spec["parallel"].get("param_groups", 2), 0.0))}
    else:
        own = {"optimizer": optimizer(model)}
    engine, *_ = deepspeed.initialize(model=model, config=config, **own)
    return engine, engine.backward, engine.step


def optimizers_without_kernels() -> None:
    """Kernels of DeepSpeed's own optimizers would be compiled here. They take what they need as arguments and allocate nothing, but for LAMB's."""
    from types import SimpleNamespace

    import torch
    from deepspeed.ops import op_builder

    def lamb(p: Any, *_: Any) -> Any:  # csrc/lamb/fused_lamb_cuda.cpp
        w_l2_i, u_l2_i, lamb_coeff_val = (torch.empty(n, dtype=p.dtype, device=p.device) for n in (512, 512, 1))
        del w_l2_i, u_l2_i
        return lamb_coeff_val

    op_builder.FusedLambBuilder.load = lambda self, verbose=True: SimpleNamespace(lamb=lamb)
    for name in ("adam", "lion"):
        kernel = {f"multi_tensor_{name}": lambda *_: None}
        getattr(op_builder, f"Fused{name.title()}Builder").load = lambda self, verbose=True, its=kernel: SimpleNamespace(**its)
    for name in ("adam", "adagrad", "lion"):
        nothing = dict.fromkeys((f"create_{name}", f"{name}_update", f"destroy_{name}"), lambda *_: None)
        getattr(op_builder, f"CPU{name.title()}Builder").load = lambda self, verbose=True, its=nothing: SimpleNamespace(**its)


def wrap_torch(spec: Spec, model: Any, optimizer: Any) -> tuple[Any, Callable[[Any], None], Callable[[], None]]:
    import torch

    wrapped = {"ddp": wrap_ddp, "fsdp1": wrap_fsdp1, "fsdp2": wrap_fsdp2}[spec["parallel"]["strategy"]](spec, model)
    stepped, clip = optimizer(wrapped), spec["train"].get("clip_grad")
    averaged = averaged_model(spec, model)

    def take_step() -> None:
        if clip and spec["parallel"]["strategy"] == "fsdp1":  # as accelerate does
            wrapped.clip_grad_norm_(clip)
        elif clip:
            torch.nn.utils.clip_grad_norm_([p for p in wrapped.parameters() if p.requires_grad], clip)
        stepped.step()
        if averaged:
            averaged.update_parameters(model)
        stepped.zero_grad(set_to_none=True)

    return wrapped, lambda loss: loss.backward(), take_step


def wrap_ddp(spec: Spec, model: Any) -> Any:
    import torch
    import torch.nn.parallel.distributed as module

    # Shapes gathered from other ranks are compared, and the fake group gathers nothing. Its future carries no tensor either,
    # which DDP's own reduction wants: this hook reduces the bucket in place, as that one does.
    module._verify_param_shape_across_processes = lambda *args, **kwargs: None
    wrapped = module.DistributedDataParallel(model, device_ids=[0], **spec["parallel"].get("ddp", {}))

    def reduce(bucket: Any) -> Any:
        torch.distributed.all_reduce(bucket.buffer())
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    wrapped.register_comm_hook(None, lambda _state, bucket: reduce(bucket))
    return wrapped


def wrap_fsdp2(spec: Spec, model: Any) -> Any:
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard

    options = spec["parallel"]["fsdp"]
    mixed = options.get("mp")
    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16 if mixed else half_or(spec, options.get("param_dtype")),
        reduce_dtype=torch.float32 if mixed else half_or(spec, options.get("reduce_dtype")),
    )
    offload = CPUOffloadPolicy(pin_memory=False) if options.get("cpu_offload") else OffloadPolicy()
    mesh = init_device_mesh("cuda", (spec["parallel"]["world"],))
    given = {"mesh": mesh, "mp_policy": policy, "offload_policy": offload}
    given["reshard_after_forward"] = options.get("reshard_after_forward", True)
    for module in model.modules():
        if type(module).__name__ in options["wrap"]:
            fully_shard(module, **given)
    return fully_shard(model, **given)


def wrap_fsdp1(spec: Spec, model: Any) -> Any:
    import functools

    import torch
    from torch.distributed import fsdp
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

    options = spec["parallel"]["fsdp"]
    classes = {type(m) for m in model.modules() if type(m).__name__ in options["wrap"]}
    given = {f"{what}_dtype": half_or(spec, options.get(f"{what}_dtype")) for what in ("param", "reduce", "buffer")}
    if options.get("mp"):
        given = {"param_dtype": torch.bfloat16, "reduce_dtype": torch.float32, "buffer_dtype": torch.bfloat16}
    mixed = fsdp.MixedPrecision(**given, keep_low_precision_grads=options.get("keep_low_precision_grads", False))
    prefetch = options.get("backward_prefetch", "BACKWARD_PRE")
    return fsdp.FullyShardedDataParallel(
        model,
        auto_wrap_policy=functools.partial(transformer_auto_wrap_policy, transformer_layer_cls=classes),
        mixed_precision=mixed if any(given.values()) else None,
        sync_module_states=options.get("sync_module_states", False),
        device_id=0,
        use_orig_params=options.get("use_orig_params", True),
        limit_all_gathers=options.get("limit_all_gathers", True),
        sharding_strategy=fsdp.ShardingStrategy[options.get("sharding", "FULL_SHARD")],
        backward_prefetch=fsdp.BackwardPrefetch[prefetch] if prefetch else None,
        forward_prefetch=options.get("forward_prefetch", False),
        cpu_offload=fsdp.CPUOffload(offload_params=bool(options.get("cpu_offload"))),
    )


@contextlib.contextmanager
def synchronization(wrapped: Any, strategy: str, last: bool) -> Iterator[None]:
    """Accelerator.no_sync around every micro-step but the last (accelerate 1.14, accelerator.py)."""
    if last or strategy == "deepspeed":
        yield
    elif strategy == "fsdp2":
        wrapped.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            wrapped.set_requires_gradient_sync(True)
    else:
        with wrapped.no_sync():
            yield


def zero_init(spec: Spec) -> Any:
    """from_pretrained under ZeRO-3 builds the model inside zero.Init: each parameter is cut as soon as it is there."""
    parallel = spec["parallel"]
    if parallel["strategy"] != "deepspeed" or parallel["ds_config"]["zero_optimization"].get("stage") != 3:
        return contextlib.nullcontext()
    from deepspeed.runtime.zero.partition_parameters import Init
    from peft.utils import integrations

    integrations.check_deepspeed_zero3_enabled = lambda: True  # as where a Trainer holds its HfDeepSpeedConfig
    zero = {k: v for k, v in parallel["ds_config"]["zero_optimization"].items() if v != "auto"}
    precision = spec["train"]["precision"]
    config = {
        "train_micro_batch_size_per_gpu": spec["batch"]["mbs"],
        "fp16" if precision == "fp16" else "bf16": {"enabled": precision != "fp32"},
        "zero_optimization": zero,
    }
    return Init(config_dict_or_path=config)


def run(spec: Spec, out: Path | None, peaks_file: Path | None = None) -> list[dict[str, Any]]:
    import torch
    import torch.distributed
    from torch.testing._internal.distributed.fake_pg import FakeStore

    quiet_torch()
    parallel, train = spec["parallel"], spec["train"]
    world, rank = parallel["world"], parallel.get("rank") or 0
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    os.environ |= {"LOCAL_RANK": "0", "LOCAL_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    torch.distributed.init_process_group(backend="fake", store=FakeStore(), rank=rank, world_size=world)
    wrap = wrap_torch
    if parallel["strategy"] == "deepspeed":
        old_names()
        believe_nothing()
        wrap = wrap_deepspeed
    steps = train.get("gradient_accumulation_steps", 1)
    modules, peaks = Modules(), Peaks()
    route_evenly(spec)
    keep = DeviceValues(read_grids(spec), active=lambda: bool(modules.stack), found=visual_tokens(spec))
    options = {"foreach": {"foreach": True}, "fused": {"fused": True}, "for-loop": {"foreach": False}}[train["opt_impl"]]
    name = train["optimizer"] if "." in train["optimizer"] else "torch.optim.AdamW"
    package, _, class_name = name.rpartition(".")
    options |= train["optimizer_args"]

    def optimizer(module: Any) -> Any:
        cls = getattr(importlib.import_module(package), class_name)
        return cls(groups_of(module, parallel.get("param_groups", 2), options.get("weight_decay", 0.0)), lr=2e-5, **options)

    with contextlib.ExitStack() as stack:
        if out:
            torch.cuda.memory._record_memory_history(max_entries=10_000_000, context="all", stacks="python")
            activities = [torch.profiler.ProfilerActivity.CPU]
            profile = stack.enter_context(torch.profiler.profile(activities=activities, profile_memory=True, record_shapes=True))
        stack.enter_context(attention_choice(spec))
        with peaks.phase(0, "init"):
            model = build_model(spec, inside=zero_init(spec))
        modules.watch(model)
        with peaks.phase(0, "wrap"):
            wrapped, backward, take_step = wrap(spec, model, optimizer)
            gc.collect()
        with peaks.phase(0, "inputs"):
            batch = make_inputs(spec)
        tensors = [*model.named_parameters(), *model.named_buffers(), *((f"inputs.{k}", v) for k, v in batch.items())]
        named = {t.data_ptr(): n for n, t in tensors if type(t) in (torch.Tensor, torch.nn.Parameter) and t.device.type == "cuda"}
        for iteration in (1, 2):
            gc.collect()
            gc.disable()
            for micro_step in range(steps):
                with synchronization(wrapped, parallel["strategy"], micro_step == steps - 1):
                    with peaks.phase(iteration, "forward"):
                        with saving(spec), autocast(spec, "cuda"):
                            result = wrapped(**batch)
                            loss = loss_of(spec, result)
                            del result
                        if steps > 1 and parallel["strategy"] != "deepspeed":
                            loss = loss / steps
                    with peaks.phase(iteration, "backward"):
                        backward(loss)
                        del loss
                        if micro_step < steps - 1 and parallel["strategy"] == "deepspeed":
                            take_step()  # the engine counts them: as accelerate does after each backward
            with peaks.phase(iteration, "optimizer"):
                take_step()
            gc.enable()
    finish(peaks, peaks_file, out and (out, profile, modules, named))
    del keep
    return peaks.rows


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("case", type=Path)
    arguments.add_argument("out", type=Path, nargs="?")
    arguments.add_argument("--ghost", help="the folder of the ghost's libraries (or GHOST_DIR)")
    arguments.add_argument("--deepspeed", help="a folder with another version of DeepSpeed")
    arguments.add_argument("--peaks", type=Path, help="write the peaks by phase here, as JSON")
    given = arguments.parse_args()
    os.environ |= {"DS_IGNORE_CUDA_DETECTION": "1", "TORCHELASTIC_RESTART_COUNT": "0", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}
    enter_ghost(given.ghost, capability="90")
    if given.deepspeed:
        sys.path.insert(0, given.deepspeed)
    run(spec_of(json.loads(given.case.read_text())), given.out, given.peaks)
    sys.stdout.flush()
    os._exit(0)  # the fake process group does not shut down


if __name__ == "__main__":
    main()
