"""Turns GPUMemNet's MLP runs into jobs for validate.py: each row becomes the graph of its layers.

Read where the data lies beside the checkout (../shared/gpumemnet/mlp_data_step1.csv: itu-rad/GPUMemNet, arXiv 2602.17817,
CC BY 4.0). A row is a run of its mlp.py: Linear and ReLU, fp32, torch's Adam, cross-entropy, one A100 40 GB; its figure is
nvidia-smi's memory.used. What the process has besides PyTorch's allocator the data do not tell: it is taken from one small run
(2,985 parameters: 1,451 MiB), whose allocator holds 22 MiB (small pools and cuBLAS's workspaces), and added to every answer.
With one output the script takes BCEWithLogitsLoss, which refuses its integer labels: those runs died in their first step, and
are left out.
"""

from __future__ import annotations

import ast
import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MLPS = Path(__file__).resolve().parents[2] / "shared" / "gpumemnet" / "mlp_data_step1.csv"
MIB = 1 << 20
SMALLEST_MIB = 1451  # input:61_output:12_depth:5_arch:pyramid_batch:777
SMALLEST_RESERVED = 22 * MIB  # what that run's allocator holds: a small segment, and one for cuBLAS's workspaces
OUTSIDE = SMALLEST_MIB * MIB - SMALLEST_RESERVED  # of the process, beside its allocator
EVERY = 12  # a sample: a run takes milliseconds, starting the command as long again


def graph_of(features: int, widths: list[int], batch: int) -> dict[str, Any]:
    """Linear layers with ReLU between them, as export_graph.py would write them."""
    graph: dict[str, Any] = {"format": "oometer-graph", "version": 1, "batch": [batch], "modules": [["", "MLP"], ["model", "Sequential"]]}
    parameters: list[Any] = []
    for i, width in enumerate(widths):
        graph["modules"].append([f"model.{2 * i}", "Linear"])
        parameters += [[2 * i + 2, "weight", "float32", [width, features]], [2 * i + 2, "bias", "float32", [width]]]
        if i + 1 < len(widths):
            graph["modules"].append([f"model.{2 * i + 1}", "ReLU"])
        features = width
    count, operators = len(parameters) + 1, []
    for i in range(len(widths)):
        # A layer's input goes when nn.Sequential has the next one; the model's own argument stays.
        operators.append([2 * i + 2, "linear", [f"%{count - 1}", f"%{2 * i}", f"%{2 * i + 1}"], count, [count - 1] if i else []])
        count += 1
        if i + 1 < len(widths):
            operators.append([2 * i + 3, "relu", [f"%{count - 1}"], count, [count - 1]])
            count += 1
    inputs = [["float32", [batch, parameters[0][3][1]]]]
    return {
        **graph,
        "parameters": parameters,
        "buffers": [],
        "inputs": inputs,
        "operators": operators,
        "outputs": [[count - 1, "float32", [batch, features]]],
    }


def rows(table: Path) -> Iterator[dict[str, Any]]:
    with table.open(newline="", encoding="utf-8") as file:
        for number, row in enumerate(csv.DictReader(file)):
            if number % EVERY or "output:1_" in row["Filename"]:
                continue
            widths = [width for kind, width, _ in ast.literal_eval(row["Activations-Params"]) if kind == "linear"]
            features = int(re.findall(r"input:(\d+)_", row["Filename"])[0])
            training = {
                "precision": "fp32",
                "optimizer": {"name": "adam", "implementation": "foreach", "param_groups": 1},
                "keep_outputs": True,
            }
            yield {
                "name": row["Filename"].removesuffix(".out"),
                "source": "GPUMemNet, MLPs",
                "citation": f"github:itu-rad/GPUMemNet:Datasets/MLP/mlp_data_step1.csv: {row['Max GPU Memory (MiB)']} MiB, nvidia-smi",
                "job": {
                    "version": 1,
                    "model": {"graph": graph_of(features, widths, int(row["Batch Size"]))},
                    "data": {"micro_batch_size": int(row["Batch Size"])},
                    "training": training,
                    "gpu": {"name": "a100-40gb"},
                    "runtime": {"torch": "2.4"},
                },
                "measured": {"device": int(row["Max GPU Memory (MiB)"]) * MIB},
                "outside": OUTSIDE,
            }
