#!/usr/bin/env python3
"""Rewrites the tables of README.md from the command and the reference cases. Python's standard library only.

    readme_tables.py [--command build/native/oometer] [--check]

What stands between `<!-- table:NAME -->` and `<!-- /table:NAME -->` is replaced: `accuracy` compares every case of tests/reference with
oometer's answer; `measured` does so with tests/measured; `paper` is the set-up of arXiv 2512.07853, with recorded runs of DeepSpeed where there are any. --check writes nothing:
its exit status is 1 if README.md is not what would be written.
"""

from __future__ import annotations

import argparse
import copy
import json
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from validate import MEASURED, errors_of, measurements, peer_errors_of

ROOT = Path(__file__).resolve().parent.parent
GIB = 2**30

Json = dict[str, Any]


class Oometer:
    def __init__(self, command: Path) -> None:
        self.command = command

    def __call__(self, job: Json) -> Json | None:
        """The job's report, or nothing if it is refused."""
        done = subprocess.run([self.command, "estimate", "--json", "-"], input=json.dumps(job), capture_output=True, text=True)
        return json.loads(done.stdout) if done.returncode == 0 else None


def cases(kind: str) -> Iterator[Json]:
    """Of all families, or of the one file of that name."""
    folder = ROOT / "tests" / "reference"
    for path in sorted(folder.glob(f"*/{kind}.jsonl")) or [folder / f"{kind}.jsonl"]:
        for line in path.read_text().splitlines():
            yield json.loads(line)


def truth_of(case: Json, statistic: str) -> int | None:
    """The worse of two iterations, without a dispatch mode where that was recorded too."""
    truth = case["truth"].get("real", case["truth"])
    if "iterations" not in truth:
        return None
    return max(iteration[statistic] for iteration in truth["iterations"])


def table(header: list[str], rows: list[list[str]]) -> str:
    rule = ["---"] + ["---:"] * (len(header) - 1)
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, rule, *rows])


def percent(value: float) -> str:
    return "0" if value == 0 else "< 0.001 %" if value < 1e-5 else f"{100 * value:.3f} %"


# --- accuracy ---------------------------------------------------------------------------------------------------------


def group_of(kind: str, case: Json) -> str:
    name, training = case["name"], case["job"]["training"]
    where = "ZeRO and FSDP" if "parallel" in case["job"] else "one GPU"
    if kind in ("training", "ranks") and (option := option_of(training)):
        return f"tiny models {option}, {where}"
    if training.keys() & {"lora", "ia3"}:
        models = "LLaVA-1.5 7B and 13B, Llama with LoRA" if kind == "single_gpu" else "tiny models with LoRA, DoRA, (IA)³"
        return f"{models}, {where}"
    if kind == "single_gpu":
        if name.startswith("tiny_"):
            return "tiny LLaVA and Llama, one GPU"
        families = {
            "llavanext": "LLaVA-NeXT 7B",
            "llava": "LLaVA-1.5 7B and 13B",
            "clip": "CLIP",
            "qwen25vl": "Qwen2.5-VL 3B",
            "smolvlm": "SmolVLM and Idefics3",
            "idefics3": "SmolVLM and Idefics3",
        }
        return next((family for start, family in families.items() if name.startswith(start)), "Llama, Vicuna") + ", one GPU"
    if kind == "training":
        return "tiny models, one choice of the form a case, one GPU"
    models = {"zero2": "LLaVA-1.5 7B", "distributed": "LLaVA-1.5 7B and Llamas"}.get(kind, "tiny models")
    return f"{models}, {strategy_of(case['job']['parallel'])}"


def option_of(training: Json) -> str | None:
    if training.get("quantization"):
        return "with QLoRA"
    if training.get("optimizer", {}).get("implementation", "").startswith("bnb-"):
        return "with bitsandbytes' AdamW"
    if training.get("chunked_cross_entropy"):
        return "with the loss by chunks"
    checkpointing = training.get("activation_checkpointing")
    if training.get("save_on_cpu") or (isinstance(checkpointing, dict) and checkpointing.get("offload")):
        return "with saved tensors in host memory"
    if training.get("liger"):
        return "with Liger's kernels"
    return "with chosen blocks checkpointed" if isinstance(checkpointing, dict) else None


def strategy_of(parallel: Json) -> str:
    named = {"ddp": "DDP", "fsdp1": "FSDP1", "fsdp2": "FSDP2"}
    if parallel["strategy"] in named:
        return named[parallel["strategy"]]
    stage = parallel["zero_stage"] if "zero_stage" in parallel else parallel["ds_config"]["zero_optimization"]["stage"]
    return f"DeepSpeed ZeRO-{stage}"


def accuracy(oometer: Oometer) -> str:
    errors: dict[str, dict[str, list[float]]] = {}
    verdicts = right = refused = 0
    for kind in ("single_gpu", "training", "zero2", "distributed", "ranks"):
        for case in cases(kind):
            report = oometer(case["job"])
            if report is None:
                refused += 1
                continue
            if "usable_bytes" in case["job"].get("gpu", {}):  # a run under a limit: the question is whether it fits
                verdicts += 1
                right += report["fits"] == ("out_of_memory" not in case["truth"])
                continue
            found = errors.setdefault(group_of(kind, case), {"allocated": [], "reserved": []})
            for statistic, values in found.items():
                truth = truth_of(case, statistic)
                if truth:
                    values.append(abs(report["peak"][statistic] / truth - 1))
    rows = [
        [group, str(len(found["allocated"]))]
        + [percent(of(found[statistic])) for statistic in ("allocated", "reserved") for of in (statistics.median, max)]
        for group, found in errors.items()
    ]
    lines = [table(["cases", "number", "allocated: median error", "max", "reserved: median error", "max"], rows)]
    lines.append(
        f"\nUnder a limit of 77 or 79 GiB, with and without `expandable_segments`, oometer says whether the run dies in {right} of {verdicts} cases."
    )
    if refused:
        lines.append(f"Not in the table, because refused as not modelled yet: {refused} of the recorded cases.")
    return "\n".join(lines)


# --- real GPUs --------------------------------------------------------------------------------------------------------


def measured(oometer: Oometer) -> str:
    """Of our own runs and of those whose measurers also predicted; docs/accuracy.md has the others."""
    errors: dict[str, dict[str, list[float]]] = {}
    for row in measurements([MEASURED / f"{name}.jsonl" for name in ("h100", "h200", "fitcheck")]):
        report = oometer(row["job"])
        if report is None or not row["measured"]:
            continue
        for what, error in errors_of(row, report).items():
            errors.setdefault(run_of(row), {}).setdefault(what, []).append(abs(error))
        for error in peer_errors_of(row).values():
            errors[run_of(row)].setdefault("peer", []).append(abs(error))
    rows = [
        [group, str(len(found["allocated"])), percent(statistics.median(found["allocated"])), percent(max(found["allocated"]))]
        + [f"{100 * statistics.mean(found[what]):.2g} %" if what in found else "" for what in ("reserved", "device", "peer")]
        for group, found in errors.items()
    ]
    return table(
        ["runs", "number", "allocated: median error", "max", "reserved: mean", "whole device: mean", "the same by their own predictor"],
        rows,
    )


def run_of(row: Json) -> str:
    ours = {"H100 jobs": "33 models on an H100", "H200 jobs": "64 models on an H200"}
    ours["H100 trainers"] = "Trainer, SFT, DPO, KTO and reward training on an H100"
    ours["H200 trainers"] = "Trainer, SFT, DPO, KTO, ORPO and reward training on an H200"
    if row["source"] in ours:
        return ours[row["source"]]
    kind = "QLoRA" if "quantization" in row["job"]["training"] else "LoRA"
    return f"{kind} on a {row['job']['gpu']['name'].upper()} ({row['source']})"


# --- the paper's table ------------------------------------------------------------------------------------------------

STAGES = {"pre": "pre-training", "ft": "fine-tuning"}
WORLDS = (1, 2, 4, 8)


def paper(oometer: Oometer) -> str:
    recorded = {case["name"]: case for case in cases("zero2")}
    rows = []
    for stage, words in STAGES.items():
        for length, batch in ((1024, 16), (2048, 8)):
            for checkpoint in ("", "_ckpt"):
                cells = []
                for world in WORLDS:
                    name = f"A_zero2_llava7b_{stage}_s{length}_m{batch}_w{world}{checkpoint}"
                    case = recorded.get(name)
                    job = copy.deepcopy((case or recorded[name.replace(f"_w{world}", "_w8")])["job"])
                    job["parallel"]["data"] = world
                    report = oometer(job)
                    if report is None:
                        sys.exit(f"{name}: refused")
                    peak = report["peak"]
                    cells.append(f"{peak['allocated'] / GIB:.2f} / {peak['reserved'] / GIB:.2f}{mark(case, peak)}")
                rows.append([words, str(length), str(batch), "yes" if checkpoint else "no", *cells])
    return "\n".join(
        [
            table(["stage", "SeqLen", "MBS", "checkpointing", *(f"DP {world}" for world in WORLDS)], rows),
            "",
            "GiB of each GPU (rank 0): peak allocated / peak reserved of PyTorch's allocator, bf16, AdamW, SDPA, DeepSpeed 0.19.8; the CUDA context",
            "and NCCL come on top (the command's `outside allocator`). ✓: a recorded run of real DeepSpeed has the same peak allocated, to 0.01 %,",
            "and the same peak reserved, to 1 %; ≈: the same allocated only; no mark: computed, and not checked against a recording of that",
            f"version. {other_versions(oometer)}",
        ]
    )


def other_versions(oometer: Oometer) -> str:
    """What recordings of another version say of the column without one."""
    found = [case for case in cases("zero2") if re.match(r"A3_ds0144_.*_w4", case["name"])]
    reports = [(case, oometer(case["job"])) for case in found]
    same = sum(report is not None and mark(case, report["peak"]) == " ✓" for case, report in reports)
    return f"Of DeepSpeed 0.14.4 there are {len(found)} recordings at DP 4 (SeqLen 1024); {same} agree in the same way."


def mark(case: Json | None, peak: Json) -> str:
    if case is None:
        return ""
    off = {statistic: abs(peak[statistic] / (truth_of(case, statistic) or 1) - 1) for statistic in ("allocated", "reserved")}
    if off["allocated"] > 1e-4:
        return f" (recorded: {(truth_of(case, 'allocated') or 0) / GIB:.2f})"
    return " ✓" if off["reserved"] <= 0.01 else " ≈"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", type=Path, default=ROOT / "build" / "native" / "oometer")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    oometer = Oometer(arguments.command.resolve())
    readme = ROOT / "README.md"
    text = before = readme.read_text()
    for name, make in (("accuracy", accuracy), ("measured", measured), ("paper", paper)):
        between = re.compile(f"(<!-- table:{name} -->\n).*?(<!-- /table:{name} -->)", re.DOTALL)
        body = make(oometer)
        text, count = between.subn(lambda match: f"{match[1]}{body}\n{match[2]}", text)
        if count != 1:
            sys.exit(f"README.md has no one place for the table '{name}'")
    if arguments.check:
        return int(text != before)
    readme.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
