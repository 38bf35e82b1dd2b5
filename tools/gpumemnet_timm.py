"""Turns GPUMemNet's runs of image models into jobs for validate.py: each model's graph is exported once, and kept.

Read where the data lies beside the checkout (../shared/gpumemnet: itu-rad/GPUMemNet, arXiv 2602.17817, CC BY 4.0) and timm and
torchvision can be imported. Its figures are nvidia-smi's memory.used on an A100 40 GB, as those of gpumemnet.py.

timm_faketensor.csv: timm's models with 8 to 128 images. Which script ran them is not published: "we added some lines of code to enable
estimation with fake tensor for the TIMM models" (Related_works/README.md). Taken for it is timm's own train.py with its defaults, as
the figures allow no other optimizer: fp32, SGD with momentum, each model's own image size, torch.backends.cudnn.benchmark on, and its
PrefetchLoader (timm/data/loader.py), which holds, on a stream of its own, two batches besides the one in use and one as bytes.
paper_results_data.csv: torchvision's CNNs and timm's xception by the scripts of itu-rad/CARMA (workloads/), with Adam and cuDNN as it
comes. FakeTensor's figure is the largest sum of live bytes in a forward and backward, without an optimizer.

The graphs lie in $XDG_CACHE_HOME/oometer (or ~/.cache), by the versions of timm and torchvision. A process for each core exports them.
"""

from __future__ import annotations

import csv
import functools
import importlib.metadata
import importlib.util
import json
import math
import multiprocessing
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from gpumemnet import MIB, MLPS

TIMM = MLPS.parent / "timm_faketensor.csv"
PAPER = MLPS.parent / "paper_results_data.csv"
# What the process has besides PyTorch's allocator, taken as in gpumemnet.py from one small run: efficientvit_m0 with 8 images had 1,833
# MiB, of which its allocator holds 104 and its loader 10. With cuDNN loaded that is 290 MiB more than gpumemnet.py's; of another thirty
# small models, 1,695 to 1,740.
OUTSIDE = 1719 * MIB
# Within 6 % of the card's end the allocator gives cached segments back, or the run died there: the figure says nothing more than that.
AT_THE_LIMIT = 38_500  # of 40,960
# Neither says its torch. Of timm's models those with RMSNorm ran as with its kernel, since 2.9: five of seven runs are told within 2 %; with
# the five operators of before all would be told 10 to 25 % too large. CARMA's runs are of September 2025. Little else depends on it.
TORCH, TORCH_OF_THE_PAPER = "2.9", "2.4"
PAPERS = "paper-"
OF_THE_PAPER = "GPUMemNet, paper"
WHY = (
    "cuDNN's workspaces: what its plans ask for depends on its version; with torch.backends.cudnn.benchmark each convolution's first call "
    "takes the largest workspace of all its plans, as far as memory is free, and its segment stays"
)
SOURCE = "github:itu-rad/GPUMemNet:Related_works/FakeTensor/fake_tensor.xlsx"
# The paper's name of a model, the callable and its arguments (workloads/*.py of CARMA), the side of its images.
PAPERS_MODELS: dict[str, tuple[str, dict[str, Any], int]] = {
    "vgg16": ("torchvision.models:vgg16", {}, 224),
    "resnet50": ("torchvision.models:resnet50", {}, 224),
    "Xception": ("timm:create_model", {"model_name": "xception"}, 224),
    "mobilenetV2": ("torchvision.models:mobilenet_v2", {}, 224),
    "efficientnet": ("torchvision.models:efficientnet_b0", {}, 224),
    "inception": ("torchvision.models:inception_v3", {"init_weights": False, "aux_logits": False}, 299),
}

# A callable and its arguments; the side of an image, or None for timm's own of the model, or each input's sizes of a sample and type.
Model = tuple[str, dict[str, Any], int | None | dict[str, tuple[list[int], str]]]


# --- graphs -----------------------------------------------------------------------------------------------------------


def cache() -> Path:
    versions = "-".join(f"{name}{importlib.metadata.version(name)}" for name in ("timm", "torchvision"))
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "oometer" / versions


def file_of(name: str, batch: int | None = None) -> Path:
    return cache() / (f"{name}.json" if batch is None else f"{name}@{batch}.json")


def export(task: tuple[str, Model, list[int]]) -> None:
    """Writes a model's graph: for any batch, or one for each where operators differ with it. A file with `error` says why there is none."""
    import torch

    import export_graph

    torch.set_num_threads(1)
    name, (python, arguments, given), batches = task
    unfinished = file_of(name).with_suffix(".part")
    try:
        with torch.device("meta"):
            model = export_graph.load(python, arguments)
        if not isinstance(given, dict):
            given = {"x": ([3, given, given] if given else model.default_cfg["input_size"], "float32")}

        def inputs(batch: int) -> tuple[torch.Tensor, ...]:
            return tuple(torch.empty(batch, *sizes, dtype=getattr(torch, dtype), device="meta") for sizes, dtype in given.values())

        try:
            export_graph.export_graph(model, inputs, unfinished)
        except SystemExit:
            for batch in batches:
                export_graph.export_graph(model, inputs, unfinished, (batch,))
                unfinished.replace(file_of(name, batch))
            unfinished.write_text('{"error": "a graph for each batch"}')
    except Exception as why:
        unfinished.write_text(json.dumps({"error": f"{type(why).__name__}: {why}"[:300]}))
    unfinished.replace(file_of(name))


def export_all(models: dict[str, Model], batches: list[int]) -> None:
    missing = [(name, model, batches) for name, model in models.items() if not file_of(name).exists()]
    if not missing:
        return
    cache().mkdir(parents=True, exist_ok=True)
    print(f"exporting the graphs of {len(missing)} models to {cache()}", file=sys.stderr)
    with multiprocessing.get_context("spawn").Pool(maxtasksperchild=20) as pool:
        pool.map(export, missing, chunksize=1)


def told_without_graph(names: Iterable[str]) -> set[str]:
    """Those that have none, after a line that says why."""
    broken = {name for name in names if not any(cache().glob(f"{name}@*")) and '{"error"' in file_of(name).read_text()[:9]}
    for name in sorted(broken):
        print(f"{name} has no graph: {file_of(name).read_text()}", file=sys.stderr)
    return broken


def graph_of(name: str, batch: int) -> Path:
    """The file for this batch; file_of(name) says why there is none."""
    fixed = file_of(name, batch)
    return fixed if fixed.exists() else file_of(name)


# --- runs -------------------------------------------------------------------------------------------------------------


def tells_a_peak(measured: float, live: float) -> bool:
    """Whether a run of `live` MiB by FakeTensor lived, below the card's limit: else its figure is where it died, or the card's."""
    return live + OUTSIDE / MIB <= measured < AT_THE_LIMIT


def timm_runs(table: Path) -> list[tuple[str, int, float, float]]:
    """Model, batch, MiB measured, MiB by FakeTensor of those that tell a peak."""
    with table.open(newline="", encoding="utf-8") as file:
        read = [(row["Filename"].removesuffix(".out").rsplit("_", 1), row) for row in csv.DictReader(file)]
    runs = [(n, int(b), float(row["Max GPU Memory (MiB)"]), float(row["GB after Backward"])) for (n, b), row in read]
    return [run for run in runs if tells_a_peak(run[2], run[3])]


def paper_runs(table: Path) -> list[tuple[str, int, float, dict[str, float]]]:
    """Model, batch, MiB measured, MiB by other estimates."""
    runs, name = [], ""
    with table.open(newline="", encoding="utf-8") as file:
        for row in csv.reader(file):
            name = row[0] or name
            if name in PAPERS_MODELS:
                _, batch, measured, gpumemnet, fake, horus = row
                runs.append(
                    (name, int(batch), float(measured), {"GPUMemNet": float(gpumemnet), "FakeTensor": float(fake), "Horus": float(horus)})
                )
    return runs


@functools.cache
def about(graph: Path) -> tuple[int, str]:
    """A sample's values, in all channels; the model's class, which is its architecture's name."""
    told = json.loads(graph.read_text())
    _, (_, *sizes) = told["inputs"][0]
    return math.prod(sizes), told["modules"][0][1]


def row_of(source: str, name: str, batch: int, figures: tuple[float, dict[str, float]], optimizer: dict[str, Any]) -> dict[str, Any]:
    measured, peers = figures
    graph = graph_of(name, batch)
    pixels, family = about(graph)
    loader = 0 if source == OF_THE_PAPER else (2 * 4 + 1) * batch * pixels
    return {
        "name": f"{name}_{batch}",
        "source": source,
        "citation": f"{SOURCE}: {measured:.0f} MiB, nvidia-smi",
        "graph": graph,
        "family": family,
        "job": {
            "version": 1,
            "data": {"micro_batch_size": batch},
            "training": {"precision": "fp32", "optimizer": {"implementation": "foreach", **optimizer}, "keep_outputs": True},
            "gpu": {"name": "a100-40gb"},
            "runtime": {"torch": TORCH_OF_THE_PAPER if source == OF_THE_PAPER else TORCH},
        },
        "why": WHY,
        "measured": {"device": int(measured * MIB)},
        "outside": OUTSIDE + loader,
        "peers": {peer: int(figure * MIB) for peer, figure in peers.items()},
    }


def rows() -> Iterator[dict[str, Any]]:
    """A row each for validate.py; none, and a line that says so, without the data or the packages."""
    if not TIMM.exists():
        return
    if not all(importlib.util.find_spec(name) for name in ("timm", "torchvision")):
        print("GPUMemNet's timm runs: skipped, for want of timm and torchvision in this Python", file=sys.stderr)
        return
    runs, papers = timm_runs(TIMM), paper_runs(PAPER)
    models: dict[str, Model] = {name: ("timm:create_model", {"model_name": name}, None) for name in sorted({run[0] for run in runs})}
    models |= {f"{PAPERS}{name}": model for name, model in PAPERS_MODELS.items()}
    export_all(models, sorted({run[1] for run in runs}))
    broken = told_without_graph(models)
    runs = [run for run in runs if run[0] not in broken]
    for name, batch, measured, live in runs:
        optimizer = {"name": "sgd", "momentum": 0.9, "param_groups": 2}
        yield row_of("GPUMemNet, timm", name, batch, (measured, {"FakeTensor": live}), optimizer)
    for name, batch, measured, peers in papers:
        yield row_of(OF_THE_PAPER, f"{PAPERS}{name}", batch, (measured, peers), {"name": "adam", "param_groups": 1})
