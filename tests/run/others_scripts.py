"""Scripts that others wrote, as their packages have them: is the peak that `oometer run` finds the oracle's?

    others_scripts.py FOLDER --ghost DIR [NAME ...]     prints a line each; FOLDER takes what the scripts need, made here and tiny
    others_scripts.py FOLDER --ghost DIR --write        the oracle's peaks into others_scripts.json, of those that agree

The oracle is the ghost of tools/README.md: its own device, its own rules for values, and weights that are really there.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parents[1] / "tools"), str(HERE.parents[1] / "python/tests/torch")]
STEPS = 3


@dataclass(frozen=True)
class Script:
    package: str
    path: str
    arguments: str
    # What the oracle cannot know: how many True masks of a shape have, as the data are made. It has "all" for others.
    found: dict[tuple[int, ...], int] = field(default_factory=dict)
    as_module: bool = False  # python -m


TRL = "--output_dir {out} --max_steps 10 --report_to none --model_name_or_path {llama} --dataset_name "
GLUE = "--model_name_or_path {bert} --output_dir {out}"
FLAG = "--model_name_or_path {bert} --train_data {retrieval} --output_dir {out} --report_to none --max_steps 10 --train_group_size 4 "
FLAG += "--per_device_train_batch_size 4 --save_strategy no"
CLIP = "--dataset-type synthetic --train-num-samples 64 --batch-size 8 --workers 0 --model {clip} --epochs 1 --logs {out} --name {name} "
SCRIPTS = {
    "sft": Script("trl", "scripts/sft.py", TRL + "language"),
    "sft-lora": Script("trl", "scripts/sft.py", TRL + "chat --use_peft --gradient_accumulation_steps 2"),
    # 8 pairs, whose chosen and rejected turns are of 25 words and an end each
    "dpo": Script("trl", "scripts/dpo.py", TRL + "preference", {(16, 40): 16 * 26, (8, 40): 8 * 26}),
    # 8 rows in their order, so that 4 of them are wanted answers, of 24 words and an end each
    "kto": Script(
        "trl",
        "scripts/kto.py",
        TRL + "unpaired",
        {(8, 33): 8 * 25, (8,): 4, (4, 33): 4 * 25},
    ),
    "reward": Script("trl", "scripts/reward.py", TRL + "preference"),
    "distillation": Script("trl", "scripts/distillation.py", TRL + "prompts --teacher_model_name_or_path {llama}"),
    "grpo": Script("trl", "scripts/grpo.py", TRL + "prompts --reward_funcs think_format_reward"),
    "rloo": Script("trl", "scripts/rloo.py", TRL + "prompts --reward_funcs think_format_reward"),
    "peak-memory": Script("accelerate", "test_utils/scripts/external_deps/test_peak_memory_usage.py", GLUE),
    "performance": Script("accelerate", "test_utils/scripts/external_deps/test_performance.py", GLUE),
    "checkpointing": Script("accelerate", "test_utils/scripts/external_deps/test_checkpointing.py", GLUE),
    "sync": Script("accelerate", "test_utils/scripts/test_sync.py", ""),
    "embedder": Script("FlagEmbedding", "finetune/embedder/encoder_only/base/__main__.py", FLAG, as_module=True),
    "embedder-m3": Script("FlagEmbedding", "finetune/embedder/encoder_only/m3/__main__.py", FLAG, as_module=True),
    "reranker": Script("FlagEmbedding", "finetune/reranker/encoder_only/base/__main__.py", FLAG, as_module=True),
    "clip": Script("open_clip_train", "main.py", CLIP + "--precision amp_bf16", as_module=True),
}


def path_of(name: str) -> Path | None:
    script = SCRIPTS[name]
    spec = importlib.util.find_spec(script.package)
    return Path(spec.submodule_search_locations[0]) / script.path if spec and spec.submodule_search_locations else None


def version_of(name: str) -> str:
    """The distribution of a package and its version."""
    package = SCRIPTS[name].package
    distribution = importlib.metadata.packages_distributions()[package][0]
    return f"{distribution} {importlib.metadata.version(distribution)}"


def digest(name: str) -> str:
    path = path_of(name)
    return hashlib.sha256(path.read_bytes()).hexdigest() if path and path.exists() else ""


def words_of(name: str, folder: Path, weights: bool) -> list[str]:
    script, end = SCRIPTS[name], "-weights" if weights else ""
    places = {"out": folder / "out", "llama": folder / f"llama{end}", "bert": folder / f"bert{end}"}
    places |= {"retrieval": folder / "retrieval/train.jsonl", "clip": "RN50", "name": f"{name}{end}"}
    module = f"{script.package}/{script.path}".removesuffix(".py").removesuffix("/__main__").replace("/", ".")
    return [*(["-m", module] if script.as_module else [str(path_of(name))]), *script.arguments.format(**places).split()]


def make_weights(folder: Path) -> None:
    """The same models with a checkpoint, for the oracle."""
    import shutil

    import transformers

    for name, cls in (("llama", transformers.AutoModelForCausalLM), ("bert", transformers.AutoModelForMaskedLM)):
        if not (folder / f"{name}-weights").exists():
            shutil.copytree(folder / name, folder / f"{name}-weights")
            config = transformers.AutoConfig.from_pretrained(folder / name)
            cls.from_config(config).save_pretrained(folder / f"{name}-weights")


def oracle(name: str, words: list[str]) -> None:
    """In a process of its own: the script on the ghost, until so many optimizer steps."""
    from step.ghost import enter_ghost, quiet_torch

    enter_ghost(None)
    quiet_torch()
    import runpy

    import torch
    import transformers.modeling_utils
    from step.device_values import DeviceValues
    from torch.optim.optimizer import register_optimizer_step_post_hook

    from triton.runtime import autotuner, jit

    jit.JITFunction.run = lambda *_, **__: None  # the ghost's kernels do nothing, nor do Triton's
    jit.JITFunction.__getitem__ = lambda *_: lambda *_, **__: None
    autotuner.Autotuner.run = lambda *_, **__: None
    transformers.modeling_utils.PreTrainedModel.initialize_weights = lambda self: None
    DeviceValues(found=dict(SCRIPTS[name].found))
    for asks in ("isnan", "isinf"):

        def finite(tensor: Any, real: Any = getattr(torch, asks)) -> Any:
            result = real(tensor)
            return torch.tensor(False) if tensor.is_cuda and tensor.dim() == 0 else result

        setattr(torch, asks, finite)
    seen = 0

    def after(*_: Any) -> None:
        nonlocal seen
        seen += torch.cuda.is_initialized()
        if seen == STEPS:
            stats = torch.cuda.memory_stats()
            print("PEAKS", json.dumps({key: stats[f"{key}_bytes.all.peak"] for key in ("allocated", "reserved")}), flush=True)
            os._exit(0)

    register_optimizer_step_post_hook(after)
    if words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")


def peaks_of_oracle(name: str, folder: Path) -> Any:
    command = [sys.executable, __file__, "--oracle", name, *words_of(name, folder, weights=True)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    found = [line for line in done.stdout.splitlines() if line.startswith("PEAKS ")]
    return json.loads(found[-1].removeprefix("PEAKS ")) if found else "failed: " + " ".join(done.stderr.splitlines()[-1:])


def peaks_of_run(name: str, folder: Path) -> Any:
    command = [sys.executable, "-m", "oometer", "run", "--gpu", "a100-80gb", "--steps", str(STEPS), "--json", "--", sys.executable]
    done = subprocess.run(
        [*command, *words_of(name, folder, weights=False)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if not done.stdout:
        return "failed: " + " ".join(done.stderr.splitlines()[-1:])
    return {key: json.loads(done.stdout)["peak"][key] for key in ("allocated", "reserved")}


def main() -> None:
    if sys.argv[1:2] == ["--oracle"]:
        oracle(sys.argv[2], sys.argv[3:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--ghost")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_intermixed_args()
    names, recorded = options.names or list(SCRIPTS), {}
    os.environ["GHOST_DIR"] = options.ghost or os.environ["GHOST_DIR"]
    import materials

    folder = options.folder.resolve()
    materials.make_all(folder)
    make_weights(folder)
    differ = 0
    for name in names:
        start = time.perf_counter()
        ours = peaks_of_run(name, folder)
        seconds = time.perf_counter() - start
        theirs = peaks_of_oracle(name, folder)
        differ += ours != theirs
        if ours == theirs and isinstance(ours, dict):
            script = SCRIPTS[name]
            recorded[name] = {
                "script": f"{script.package}/{script.path}",
                "version": version_of(name),
                "sha256": digest(name),
                "arguments": script.arguments,
                "peak": theirs,
            }
        print(f"{name}: {'equal' if ours == theirs else 'DIFFERS'} {ours} {'' if ours == theirs else theirs} ({seconds:.0f} s)", flush=True)
    if options.write:
        HERE.joinpath("others_scripts.json").write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")
    sys.exit(differ > 0)


if __name__ == "__main__":
    main()
