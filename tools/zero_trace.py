"""Runs one rank of DeepSpeed ZeRO on the ghost device, with DeepSpeed's own code, and writes its trace as real_trace.py does.

    zero_trace.py CASE.json OUT.jsonl --ghost DIR [--deepspeed DIR] [--peaks FILE]

The process group is torch's "fake" one, whose collectives do nothing. Each event also has the Python frames that caused it.
`--deepspeed DIR` takes another version of DeepSpeed (made with `pip install --target DIR`).
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import gc
import json
import logging
import os
import re
import sys
import types
from pathlib import Path
from typing import Any

import step
from real_trace import Modules, Peaks, write

H100 = 80 * 2**30 - 700 * 2**20  # what DeepSpeed is told when it asks how much the device has
NO_DECAY = re.compile(r"bias|layernorm|rmsnorm|(?:^|\.)norm(?:$|\.)|_norm(?:$|\.)", re.IGNORECASE)


def resolved(config: dict[str, Any], world: int, spec: step.Spec, model: Any) -> dict[str, Any]:
    """The "auto" entries of a DeepSpeed config, as transformers' Trainer fills them."""
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

    answer = HfTrainerDeepSpeedConfig(copy.deepcopy(config))
    arguments = types.SimpleNamespace(
        world_size=world,
        per_device_train_batch_size=spec["batch"]["mbs"],
        gradient_accumulation_steps=1,
        max_grad_norm=1.0,
        learning_rate=2e-5,
        adam_beta1=0.9,
        adam_beta2=0.999,
        adam_epsilon=1e-8,
        weight_decay=0.0,
        bf16=True,
        fp16=False,
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


def groups_of(model: Any, how_many: int) -> list[dict[str, Any]]:
    """HF Trainer's parameter groups: with weight decay, and without (biases, norms)."""
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    if how_many == 1:
        return [{"params": [p for _, p in named]}]
    decayed = [p for n, p in named if not NO_DECAY.search(n)]
    others = [p for n, p in named if NO_DECAY.search(n)]
    return [g for g in ({"params": decayed, "weight_decay": 0.0}, {"params": others, "weight_decay": 0.0}) if g["params"]]


def run(spec: step.Spec, out: Path | None) -> list[dict[str, Any]]:
    import torch
    import torch.distributed
    from torch.testing._internal.distributed.fake_pg import FakeStore

    step.quiet_torch()
    parallel, train = spec["parallel"], spec["train"]
    world, rank = parallel["world"], parallel.get("rank", 0)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    os.environ |= {"LOCAL_RANK": "0", "LOCAL_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    torch.distributed.init_process_group(backend="fake", store=FakeStore(), rank=rank, world_size=world)
    old_names()
    import deepspeed

    believe_nothing()
    modules, peaks = Modules(), Peaks()
    keep = step.DeviceValues(spec.get("item_int", 0), active=lambda: bool(modules.stack))
    with contextlib.ExitStack() as stack:
        if out:
            torch.cuda.memory._record_memory_history(max_entries=10_000_000, context="all", stacks="python")
            activities = [torch.profiler.ProfilerActivity.CPU]
            profile = stack.enter_context(torch.profiler.profile(activities=activities, profile_memory=True, record_shapes=True))
        stack.enter_context(step.attention_choice(spec))
        with peaks.phase(0, "init"):
            model = step.build_model(spec)
        modules.watch(model)
        with peaks.phase(0, "wrap"):
            options = {"foreach": {"foreach": True}, "fused": {"fused": True}, "for-loop": {"foreach": False}}[train["opt_impl"]]
            optimizer = torch.optim.AdamW(groups_of(model, parallel.get("param_groups", 2)), lr=2e-5, **options)
            config = resolved(parallel["ds_config"], world, spec, model)
            engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
            gc.collect()
        with peaks.phase(0, "inputs"):
            batch = step.make_inputs(spec)
        tensors = [*model.named_parameters(), *model.named_buffers(), *((f"inputs.{k}", v) for k, v in batch.items())]
        named = {t.data_ptr(): n for n, t in tensors if isinstance(t, torch.Tensor)}
        for iteration in (1, 2):
            gc.collect()
            gc.disable()
            with peaks.phase(iteration, "forward"):
                result = engine(**batch)
                loss = step.loss_of(spec, result)
                del result
            with peaks.phase(iteration, "backward"):
                engine.backward(loss)
                del loss
            with peaks.phase(iteration, "optimizer"):
                engine.step()
            gc.enable()
    if out:
        count = write(out, profile, torch.cuda.memory._snapshot()["device_traces"][0], modules, named)
        print(f"{out}: {count} events; DeepSpeed {deepspeed.__version__}")
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
    step.enter_ghost(given.ghost, capability="90")
    if given.deepspeed:
        sys.path.insert(0, given.deepspeed)
    rows = run(step.spec_of(json.loads(given.case.read_text())), given.out)
    table = Peaks()
    table.rows = rows
    table.print()
    if given.peaks:
        given.peaks.write_text(json.dumps(rows) + "\n")
    sys.stdout.flush()
    os._exit(0)  # the fake process group does not shut down


if __name__ == "__main__":
    main()
