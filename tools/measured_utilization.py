"""Published utilization of GPUs, against the command's `time.utilization` and its kernels' bounds.

    measured_utilization.py DATA [--oometer BINARY] [--fit]
    measured_utilization.py DATA --kernels     # with torch and torchvision

DATA is a folder of tables of published measurements. util_gpumemnet_mlp.csv.gz (itu-rad/GPUMemNet, CC BY 4.0) has averages of DCGM's
samples, one a second without those that are zero, of MLPs on an A100 40 GB: mlp.py there trains in fp32 with torch's Adam for 75 s. It
reads shuffled batches of 4,096 samples from a TensorDataset in the main process, the last smaller than the others, copies each from
pageable memory, and reads its loss twice and writes two progress bars in each step. What that loop costs between the kernels is no affair
of a training elsewhere, so it stands here: LOOP, which `--fit` fits to the half of the runs that a hash of their names chooses, with the
one constant of core/time/utilization.cpp.

kernels_orion.csv.gz (eth-easl/orion, MIT) has the kernels of eight networks on a V100, each with its duration and whether Nsight Compute
found it bound by computing or by memory. Their convolutions and products are compared with the command's in order; that other kernels are
bound by memory is the command's rule. Those of unknown bound are left out.
"""

from __future__ import annotations

import argparse
import ast
import csv
import gzip
import json
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from typing import Any

from gpumemnet import graph_of
from measured_steps import may_be_fitted

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = 4096  # mlp.py's --num_samples


@dataclass(frozen=True)
class Loop:
    """Seconds of mlp.py's loop in which the GPU has nothing to do, and what else its engine is active for."""

    step: float  # of each step
    sample: float  # indexing a sample, and a row of the batch
    element: float  # stacking and copying a feature
    copy: float  # of that in which the copy counts as activity
    engine: float  # of each kernel: kEngineSeconds in core/time/utilization.cpp


LOOP = Loop(step=6.8e-4, sample=1.6e-6, element=2.7e-9, copy=4.1e-10, engine=2.5e-6)


def table(data: Path, name: str) -> Iterator[dict[str, str]]:
    with gzip.open(data / name, "rt", encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def job_of(row: dict[str, str], batch: int) -> dict[str, Any]:
    widths = [width for kind, width, _ in ast.literal_eval(row["layers"]) if kind == "linear"]
    features = int(re.findall(r"input:(\d+)_", row["file"])[0])
    adam = {"name": "adam", "implementation": "foreach", "param_groups": 1}
    return {
        "model": {"graph": graph_of(features, widths, batch)},
        "data": {"micro_batch_size": batch},
        "training": {"precision": "fp32", "optimizer": adam, "keep_outputs": True},
        "gpu": {"name": "a100-40gb"},
        "runtime": {"torch": "2.4"},
    }


def answers(oometer: str, jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    text = "".join(json.dumps({"version": 1} | job) + "\n" for job in jobs)
    command = [oometer, "estimate", "--jsonl", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


@dataclass(frozen=True)
class Epoch:
    """What the command says of one pass over the samples: seconds of kernels, and of these by what they use."""

    name: str
    features: int
    measured: dict[str, float]
    steps: int = 0
    kernels: int = 0
    busy: float = 0
    smact: float = 0
    smocc: float = 0

    def add(self, answer: dict[str, Any], times: int) -> Epoch:
        time = answer["time"]
        used, step = time["utilization"], times * time["step"]
        return replace(
            self,
            steps=self.steps + times,
            kernels=self.kernels + times * sum(kind["kernels"] for kind in answer["work"]["by_kind"].values()),
            busy=self.busy + times * (time["step"] - time["by_kind"].get("idle", 0)),
            smact=self.smact + step * used["smact"],
            smocc=self.smocc + step * used["smocc"],
        )

    def computed(self, loop: Loop) -> dict[str, float]:
        elements = SAMPLES * self.features
        seconds = self.busy + loop.step * self.steps + loop.sample * SAMPLES + loop.element * elements
        active = min(seconds, self.busy + loop.engine * self.kernels + loop.copy * elements) / seconds
        return {"gputl": active, "gract": active, "smact": self.smact / seconds, "smocc": self.smocc / seconds}


def epochs(data: Path, oometer: str) -> list[Epoch]:
    # With one output mlp.py takes BCEWithLogitsLoss, which refuses its labels: those runs died in their first step.
    rows = [row for row in table(data, "util_gpumemnet_mlp.csv.gz") if "output:1_" not in row["file"]]
    asked: list[tuple[int, int, dict[str, Any]]] = []  # of which row, how often in an epoch, which job
    for i, row in enumerate(rows):
        full, last = divmod(SAMPLES, int(row["batch"]))
        asked += [(i, full, job_of(row, int(row["batch"])))]
        asked += [(i, 1, job_of(row, last))] if last else []
    found = [
        Epoch(
            row["file"],
            int(re.findall(r"input:(\d+)_", row["file"])[0]),
            {"gputl": float(row["gputl_pct"]) / 100} | {key: float(row[key]) for key in ("gract", "smact", "smocc")},
        )
        for row in rows
    ]
    for (i, times, _), answer in zip(asked, answers(oometer, [job for *_, job in asked]), strict=True):
        found[i] = found[i].add(answer, times)
    return found


def fit(runs: list[Epoch]) -> Loop:
    """The constants with the smallest mean absolute error of GRACT and SMACT: each by turns up or down, by ever smaller steps."""

    def off(loop: Loop) -> float:
        computed = [(run.computed(loop), run.measured) for run in runs]
        return statistics.fmean(abs(its[key] - measured[key]) for its, measured in computed for key in ("gract", "smact"))

    best, error, step = LOOP, off(LOOP), 0.5
    while step > 0.01:
        better = False
        for field in fields(Loop):
            for factor in (1 + step, 1 / (1 + step)):
                other = replace(best, **{field.name: getattr(best, field.name) * factor})
                if (now := off(other)) < error:
                    best, error, better = other, now, True
        step = step if better else step / 1.5
    return best


def compare_runs(runs: list[Epoch], loop: Loop) -> None:
    print(" ".join(f"{field.name} {value:.3g}" for field, value in zip(fields(Loop), astuple(loop), strict=True)))
    for fitted in (True, False):
        its = [run for run in runs if may_be_fitted(run.name) == fitted]
        print(f"{'fitted' if fitted else 'kept back'}: {len(its)} runs")
        for key in ("gputl", "gract", "smact", "smocc"):
            off = [run.computed(loop)[key] - run.measured[key] for run in its]
            worst = sorted(map(abs, off))
            print(f"  {key}: off by {statistics.fmean(worst):.4f}, nine of ten by {worst[len(worst) * 9 // 10]:.3f}, "
                  f"mean {statistics.fmean(off):+.4f}")  # fmt: skip


def network(name: str, batch: int, folder: Path, *, trains: bool) -> dict[str, Any]:
    import torch
    import torchvision
    from export_graph import export_graph

    model = getattr(torchvision.models, name)().train(trains)
    path = folder / "graph.json"
    export_graph(model, lambda n: (torch.empty(n, 3, 224, 224, device="meta"),), path, inference=not trains)
    graph = {"model": {"graph": json.loads(path.read_text())}, "data": {"micro_batch_size": batch}}
    return graph | ({"training": {"precision": "fp32"}} if trains else {"task": "inference", "training": {"precision": "fp32"}})


def bert(_: Path) -> dict[str, Any]:
    # 96 blocks of 8 on a multiprocessor, of 512 elements each: 2 x 384 tokens of 1,024.
    return {
        "model": {"preset": "bert-large"}, "task": "inference", "data": {"micro_batch_size": 2, "sequence_length": 384},
        "training": {"precision": "fp32", "attention": "eager"},
    }  # fmt: skip


WORKLOADS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "resnet101_4_fwd_new": lambda folder: network("resnet101", 4, folder, trains=False),
    "mobilenetv2_4_fwd": lambda folder: network("mobilenet_v2", 4, folder, trains=False),
    "efficientnet_4_fwd_new": lambda folder: network("efficientnet_v2_m", 4, folder, trains=False),
    "resnet101_32_fb1": lambda folder: network("resnet101", 32, folder, trains=True),
    "mobilenetv2_32_fb1": lambda folder: network("mobilenet_v2", 32, folder, trains=True),
    "mobilenetv2_96_fb1": lambda folder: network("mobilenet_v2", 96, folder, trains=True),
    "bert_2_fwd": bert,
}


def bounds_of(oometer: str, job: dict[str, Any]) -> dict[str, list[str]]:
    """Of the last iteration's convolutions and products, in their order."""
    text = json.dumps({"version": 1, "gpu": {"name": "v100-16gb"}} | job)
    log = subprocess.run([oometer, "log", "--work", "-"], input=text, capture_output=True, text=True, check=False)
    if log.returncode:
        sys.exit(log.stderr)
    works = [json.loads(line) for line in log.stdout.splitlines()]
    found: dict[str, list[str]] = {"gemm": [], "convolution": []}
    for work in works:
        if work["iteration"] == works[-1]["iteration"] and work["kind"] in found:
            found[work["kind"]] += [work["bound"]] * work["times"]
    return found


def kind_of(kernel: str) -> str:
    if kernel == "Conv" or "::conv_depthwise" in kernel:
        return "convolution"
    return "gemm" if "gemm" in kernel else "other"


def compare_kernels(data: Path, oometer: str) -> None:
    kernels: dict[str, list[dict[str, str]]] = {}
    for row in table(data, "kernels_orion.csv.gz"):
        kernels.setdefault(row["workload"], []).append(row)
    totals = {"right": 0, "all": 0}
    for workload, rows in sorted(kernels.items()):
        if workload not in WORKLOADS:
            print(f"{workload:24} no job of oometer")
            continue
        with tempfile.TemporaryDirectory() as folder:
            ours = bounds_of(oometer, WORKLOADS[workload](Path(folder)))
        theirs = {kind: sum(kind_of(row["kernel"]) == kind for row in rows) for kind in ours}
        counts = {kind: len(its) for kind, its in ours.items()}
        if counts != theirs:
            print(f"{workload:24} other kernels: {theirs}, of oometer {counts}")
            continue
        order = {kind: iter(its) for kind, its in ours.items()}
        right = known = 0
        for row in rows:
            kind = kind_of(row["kernel"])
            bound = next(order[kind]) if kind in order else "memory"
            if row["bound"] == "unknown":
                continue
            known += int(row["duration_ns"])
            right += int(row["duration_ns"]) * (bound == row["bound"])
        totals["right"] += right
        totals["all"] += known
        print(f"{workload:24} {right / known:6.1%} of {known / 1e6:.1f} ms")
    print(f"{'all':24} {totals['right'] / totals['all']:6.1%} of {totals['all'] / 1e6:.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--oometer", default=str(ROOT / "build/native/oometer"))
    parser.add_argument("--fit", action="store_true", help="fit LOOP, instead of taking it as it is")
    parser.add_argument("--kernels", action="store_true", help="compare what bounds kernels, instead")
    options = parser.parse_args()
    if options.kernels:
        compare_kernels(options.data, options.oometer)
        return
    runs = epochs(options.data, options.oometer)
    compare_runs(runs, fit([run for run in runs if may_be_fitted(run.name)]) if options.fit else LOOP)


if __name__ == "__main__":
    main()
