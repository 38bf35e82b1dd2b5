"""NeMo Automodel's own loop: its model, its sharding and the step of its recipe (install it with --no-deps --target, into PYTHONPATH)."""

from __future__ import annotations

import gc
import time
from types import SimpleNamespace
from typing import Any

from step.spec import DTYPES, Spec

NAMES = ("nemo_automodel.NeMoAutoModelForCausalLM", "nemo_automodel.recipes.llm.train_ft.TrainFinetuneRecipeForNextTokenPrediction")


def training_of(spec: Spec) -> dict[str, Any]:
    """The job's training section, but for what other loops say in the same words."""
    loop = spec["loop"]
    ckpt = loop.get("activation_checkpointing", False)
    out: dict[str, Any] = {"max_grad_norm": loop.get("max_grad_norm", 1.0), "loop": {"name": "step", "project": "automodel"}}
    if spec.get("parallel", {}).get("strategy") == "fsdp2":
        out["loop"]["load"] = "host"
    out["activation_checkpointing"] = "non-reentrant" if ckpt else "none"
    if loop.get("use_cache", True) and not ckpt:
        out["use_cache"] = True
    if steps := loop.get("args", {}).get("gradient_accumulation_steps"):
        out["gradient_accumulation_steps"] = steps
    if peft := loop.get("peft"):
        targets = peft.get("target_modules", ["*_proj"])
        if peft.get("use_memory_efficient_lora", True):
            strategy = spec.get("parallel", {}).get("strategy")
            on_meta = strategy == "fsdp2" or strategy is None and not loop.get("force_hf")
            by = "automodel-triton" if peft.get("use_triton") else "automodel"
            out["loop"]["lora_function"] = by if on_meta else f"{by}-mlp"
        lora = {"rank": peft.get("dim", 8), "alpha": peft.get("alpha", 32), "dropout": peft.get("dropout", 0.0), "autocast_adapter_dtype": False}
        out["lora"] = lora | {"target_modules": ".*_proj" if targets == ["*_proj"] else targets}
    return out


def fsdp_of(spec: Spec) -> dict[str, Any]:
    return {"preparer": "automodel", "reduce_dtype": "fp32"} | ({"param_dtype": "bf16"} if spec["train"]["precision"] == "fp32" else {})


def distributed_setup(spec: Spec) -> Any:
    """As the recipe reads its section `distributed`. Kernels of torch.compile are launched by no driver."""
    import torch.distributed as dist
    from torch._inductor.runtime import static_triton_launcher

    import torch
    from nemo_automodel.components.distributed import ddp, mesh_utils

    ddp._resolve_ddp_device = lambda: torch.device("cuda", 0)
    mesh_utils._mesh_device_type = lambda: "cuda"  # of a group that is not NCCL's
    static_triton_launcher.StaticallyLaunchedTritonKernel.run = lambda *_, **__: None
    from nemo_automodel.recipes._dist_utils import create_distributed_setup_from_config

    if not dist.is_initialized():  # as initialize_distributed on one GPU
        from step.process_group import join_group

        join_group(1)
    parallel = spec.get("parallel", {})
    section = {"strategy": parallel.get("strategy", "fsdp2"), **parallel.get("options", {})}
    section["activation_checkpointing"] = spec["loop"].get("activation_checkpointing", False)
    return create_distributed_setup_from_config({"distributed": section}, world_size=parallel.get("world", 1))


def make_model(spec: Spec, setup: Any) -> Any:
    """from_config with the recipe's arguments, of weights that nobody loads."""
    import torch
    import transformers
    from nemo_automodel import NeMoAutoModelForCausalLM
    from nemo_automodel.components._peft.lora import PeftConfig

    train, loop = spec["train"], spec["loop"]
    cls = getattr(transformers, spec["model"]["class"])
    config = cls.config_class(**spec["model"]["config"], architectures=[spec["model"]["class"]])
    more = {"attn_implementation": train.get("attn", "sdpa"), "use_liger_kernel": False, "force_hf": loop.get("force_hf", False)}
    if backend := loop.get("backend"):
        from nemo_automodel.components.models.common import BackendConfig

        more["backend"] = BackendConfig(**backend)
    if loop.get("peft"):
        more["peft_config"] = PeftConfig(**loop["peft"])
    dtype = getattr(torch, DTYPES[train["precision"]])
    return NeMoAutoModelForCausalLM.from_config(config, torch_dtype=dtype, distributed_setup=setup, **more)


def make_recipe(spec: Spec, setup: Any, model: Any, optimizers: list[Any]) -> Any:
    """The recipe as its setup() leaves it, without files, loggers and data."""
    import torch
    from nemo_automodel.components.loss.masked_ce import MaskedCrossEntropy
    from nemo_automodel.recipes.llm.train_ft import TrainFinetuneRecipeForNextTokenPrediction

    recipe = TrainFinetuneRecipeForNextTokenPrediction.__new__(TrainFinetuneRecipeForNextTokenPrediction)
    parts = recipe._distributed_setup_attributes(setup)
    named = ("distributed_setup", "mesh_context", "distributed_config", "device_mesh", "moe_mesh", "pp_enabled")
    values = dict(zip((*named, "pipeline_config", "moe_parallel_config", "activation_checkpointing"), parts, strict=True))
    values |= {"model_parts": [model], "optimizer": optimizers, "loss_fn": MaskedCrossEntropy(**spec["loop"].get("loss_fn", {}))}
    values |= {"dist_env": SimpleNamespace(device=torch.device("cuda", 0), world_size=spec.get("parallel", {}).get("world", 1), is_main=True)}
    values |= {"domain_mixture": None, "te_fp8": None, "tokenizer": None, "lr_scheduler": None, "timestamp": time.perf_counter()}
    values |= {"checkpointer": SimpleNamespace(maybe_wait_for_staging=lambda: None), "mfu_calculator": None}
    values |= {"cfg": {}, "step_scheduler": SimpleNamespace(step=0, epoch=0), "magi": SimpleNamespace(enabled=False, custom=False), "pp": None}
    torch.cuda.empty_cache()
    for key, value in values.items():
        recipe.__dict__[key] = value
    return recipe


def train(spec: Spec, recipe: Any, samples: Any, phases: Any, peaks: Any) -> list[dict[str, int]]:
    """run_train_validation_loop's steps."""
    import torch

    micro_steps = spec["loop"].get("args", {}).get("gradient_accumulation_steps", 1)
    data, steps = samples.dataset(), []
    rows = iter(range(10**9))
    for step in range(1, spec.get("steps", 3) + 1):
        gc.collect()
        torch.cuda.reset_peak_memory_stats()
        gc.disable()
        phases.begin(step, "forward")
        batches = [samples.collate([data[next(rows)] for _ in range(samples.batch)]) for _ in range(micro_steps)]
        recipe._run_train_optim_step(batches, spec["loop"].get("max_grad_norm", 1.0))
        gc.enable()
        steps.append(peaks())
    phases.end()
    return steps
