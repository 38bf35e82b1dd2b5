"""Scripts that others wrote, as their packages have them: is the peak that `oometer run` finds the oracle's?

    others_scripts.py FOLDER --ghost DIR [NAME ...]     prints a line each; FOLDER takes what the scripts need, made here and tiny
    others_scripts.py FOLDER --ghost DIR --write        the oracle's peaks into others_scripts.json, of those that agree

The oracle is the ghost of tools/README.md: its own device, its own rules for values, and weights that are really there.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parents[1] / "tools"), str(HERE.parents[1] / "python/tests/torch")]
TRL = "--output_dir {out} --max_steps 10 --report_to none --model_name_or_path {llama} --dataset_name "
GLUE = "--model_name_or_path {bert} --output_dir {out}"
STEPS = 3
# name: package, path in it, arguments
SCRIPTS = {
    "sft": ("trl", "scripts/sft.py", TRL + "language"),
    "sft-lora": ("trl", "scripts/sft.py", TRL + "chat --use_peft --gradient_accumulation_steps 2"),
    "dpo": ("trl", "scripts/dpo.py", TRL + "preference"),
    "reward": ("trl", "scripts/reward.py", TRL + "preference"),
    "grpo": ("trl", "scripts/grpo.py", TRL + "prompts --reward_funcs think_format_reward"),
    "rloo": ("trl", "scripts/rloo.py", TRL + "prompts --reward_funcs think_format_reward"),
    "peak-memory": ("accelerate", "test_utils/scripts/external_deps/test_peak_memory_usage.py", GLUE),
    "performance": ("accelerate", "test_utils/scripts/external_deps/test_performance.py", GLUE),
    "checkpointing": ("accelerate", "test_utils/scripts/external_deps/test_checkpointing.py", GLUE),
    "sync": ("accelerate", "test_utils/scripts/test_sync.py", ""),
}


def path_of(name: str) -> Path | None:
    package, path, _ = SCRIPTS[name]
    spec = importlib.util.find_spec(package)
    return Path(spec.submodule_search_locations[0]) / path if spec and spec.submodule_search_locations else None


def digest(name: str) -> str:
    path = path_of(name)
    return hashlib.sha256(path.read_bytes()).hexdigest() if path and path.exists() else ""


def words_of(name: str, folder: Path, weights: bool) -> list[str]:
    end = "-weights" if weights else ""
    places = {"out": folder / "out", "llama": folder / f"llama{end}", "bert": folder / f"bert{end}"}
    return [str(path_of(name)), *SCRIPTS[name][2].format(**places).split()]


def make_weights(folder: Path) -> None:
    """The same models with a checkpoint, for the oracle."""
    import shutil

    import transformers

    for name, cls in (("llama", transformers.AutoModelForCausalLM), ("bert", transformers.AutoModelForMaskedLM)):
        if not (folder / f"{name}-weights").exists():
            shutil.copytree(folder / name, folder / f"{name}-weights")
            config = transformers.AutoConfig.from_pretrained(folder / name)
            cls.from_config(config).save_pretrained(folder / f"{name}-weights")


def oracle(words: list[str]) -> None:
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
    DeviceValues()
    for name in ("isnan", "isinf"):

        def finite(tensor: Any, real: Any = getattr(torch, name)) -> Any:
            result = real(tensor)
            return torch.tensor(False) if tensor.is_cuda and tensor.dim() == 0 else result

        setattr(torch, name, finite)
    seen = 0

    def after(*_: Any) -> None:
        nonlocal seen
        seen += torch.cuda.is_initialized()
        if seen == STEPS:
            stats = torch.cuda.memory_stats()
            print("PEAKS", json.dumps({key: stats[f"{key}_bytes.all.peak"] for key in ("allocated", "reserved")}), flush=True)
            os._exit(0)

    register_optimizer_step_post_hook(after)
    sys.argv = words
    runpy.run_path(words[0], run_name="__main__")


def peaks_of_oracle(name: str, folder: Path) -> Any:
    command = [sys.executable, __file__, "--oracle", *words_of(name, folder, weights=True)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    found = [line for line in done.stdout.splitlines() if line.startswith("PEAKS ")]
    return json.loads(found[-1].removeprefix("PEAKS ")) if found else "failed: " + " ".join(done.stderr.splitlines()[-1:])


def peaks_of_run(name: str, folder: Path) -> Any:
    command = [sys.executable, "-m", "oometer", "run", "--gpu", "a100-80gb", "--steps", str(STEPS), "--json", "--", sys.executable]
    done = subprocess.run(
        [*command, *words_of(name, folder, weights=False)], cwd=folder, capture_output=True, text=True, check=False, timeout=300
    )
    if not done.stdout:
        return "failed: " + " ".join(done.stderr.splitlines()[-1:])
    return {key: json.loads(done.stdout)["peak"][key] for key in ("allocated", "reserved")}


def main() -> None:
    if sys.argv[1:2] == ["--oracle"]:
        oracle(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--ghost")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
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
            recorded[name] = {"script": "/".join(SCRIPTS[name][:2]), "sha256": digest(name), "peak": theirs}
        print(f"{name}: {'equal' if ours == theirs else 'DIFFERS'} {ours} {'' if ours == theirs else theirs} ({seconds:.0f} s)", flush=True)
    if options.write:
        HERE.joinpath("others_scripts.json").write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")
    sys.exit(differ > 0)


if __name__ == "__main__":
    main()
