"""Writes oometer beside other estimators of GPU memory: docs/comparison.md and web/comparison.html.

    comparison.py [--oometer FILE] [--check]     --check writes nothing: exit status 1 if a file is out of date

The comparison of arXiv 2602.17817 (GPUMemNet, Horus, FakeTensor on the same runs), and what others published of runs of their own.
Figures of GPUMemNet's runs are kept in tests/measured/gpumemnet.json (calibrate.py). `./dev validate --write` runs this.
"""

# ruff: noqa: E501  (text)
from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from accuracy import HEAD, Case, cases_of, same_code
from calibrate import GPUMEMNET, spread
from documents import Document, Section, markdown, page, write
from validate import HERE, answers, errors_of

LEAD = (
    "arXiv 2602.17817 sets estimators of GPU memory side by side on the same runs: a formula (Horus), live tensors without a GPU (FakeTensor), "
    "and a trained classifier (GPUMemNet). Here are those runs with oometer beside them, then PyTorch's own recordings and the model of "
    "arXiv 2512.07853. The figures of the others are their authors'. Errors are of the peak: predicted over measured, less one."
)
# What each is, as its paper or source says. The time of an answer is for LLaVA-1.5 7B where it has one (./dev bench).
TOOLS = [
    ["oometer", "a config.json or a graph of the model", "bytes, with an interval", "any of the catalogue", "0.5 ms"],
    ["FakeTensor (PyTorch)", "the model's code and PyTorch", "live bytes of tensors", "none is asked for", "2.6 s a step"],
    [
        "xMem (arXiv 2510.21048)",
        "the script, run on a CPU for some steps",
        "bytes",
        "by an allocator that is simulated",
        "as long as those steps take",
    ],
    [
        "GPUMemNet (arXiv 2602.17817)",
        "counts of layers, parameters and activations",
        "a class, 8,000 MiB wide for CNNs",
        "trained on an A100 40 GB",
        "milliseconds",
    ],
    ["Horus (TPDS 2021)", "counts of parameters and activations", "bytes", "the same answer for each", "that of a formula"],
    ["LLMem (arXiv 2404.10933)", "the model's code, and a GPU for a probe", "bytes", "the one at hand", "a probing run"],
]
# Of runs that are not published with their settings, so that nobody can set a figure beside theirs.
CLAIMS = [
    ["arXiv 2512.07853", "LLaVA-1.5 7B, training", "8.7 % in the mean; 13 % over more settings"],
    [
        "xMem (arXiv 2510.21048)",
        "25 models, 5,209 runs, one GPU",
        "median error 91 % below that of earlier estimators, which are not named with figures",
    ],
    ["VeritasEst (arXiv 2504.03887)", "image models", "error 84 % below that of earlier ones"],
    ["LLMem (arXiv 2404.10933)", "full fine-tuning of decoders", "up to 1.6 % on one GPU, 3.0 % in the mean on several"],
    [
        "GPUMemNet (arXiv 2602.17817)",
        "MLPs, CNNs and Transformers made at random",
        "up to 98, 80 and 86 % of runs in the right class (itu-rad/GPUMemNet, three folds)",
    ],
    ["SimuMax", "Megatron on A100s, systems calibrated by the authors", "−4.8 to +0.2 %"],
    ["ftune", "LoRA and QLoRA of 7B and 8B", "−4.4 to +5.5 %, five runs"],
]


def recordings(oometer: Path) -> list[list[str]]:
    """Peak reserved of real PyTorch on one GPU (tests/reference/single_gpu.jsonl), by FakeTensor's live bytes and by oometer."""
    rows = [json.loads(line) for line in (HERE / "tests" / "reference" / "single_gpu.jsonl").read_text().splitlines()]
    fake, ours = [], []
    for row, report in zip(rows, answers(oometer, rows), strict=True):
        recorded = row["truth"].get("real", row["truth"])["iterations"]
        reserved = max(iteration["reserved"] for iteration in recorded)
        fake.append(max(max(phases.values()) for phases in row["truth"]["phases"]) / reserved - 1)
        ours.append(report["peak"]["reserved"] / reserved - 1)
    return [["oometer", *spread(ours)], ["FakeTensor", *spread(fake)]]


def llava(cases: list[Case]) -> list[list[str]]:
    """The whole model on real GPUs, by us."""
    runs = [case for case in cases if case.row["name"].startswith("llava-") and "llava-1.5-7b" in str(case.row["job"]["model"])]
    whole = [case for case in runs if "config" not in case.row["job"]["model"]]
    return [
        [
            f"{case.row['source'].split()[0]}: {case.row['name'].removeprefix('llava-')}",
            *(f"{case.row['measured'][what] / 1e9:.2f} GB" for what in ("allocated", "reserved", "device")),
            *(f"{error:+.2%}".replace("%", " %") for error in errors_of(case.row, case.report).values()),
        ]
        for case in whole
    ]


def by_gpu(cases: list[Case]) -> list[list[str]]:
    """The widest figure of each run of code that oometer reproduces, by the GPU that ran it."""
    groups: dict[str, list[float]] = {}
    for case in filter(same_code, cases):
        groups.setdefault(case.row["job"]["gpu"]["name"], []).append(case.predicted / case.measured - 1)
    return [[gpu, *spread(errors)] for gpu, errors in sorted(groups.items(), key=lambda group: -len(group[1])) if len(errors) > 1]


def sections(cases: list[Case], oometer: Path) -> list[Section]:
    told: dict[str, Any] = json.loads(GPUMEMNET.read_text())
    return [
        Section("What each needs and answers", "A formula of layers, and a classifier of them, do not know adapters, quantisation, checkpointing, ZeRO or FSDP; those that run the model's own code do, as far as that code says it.",
                ["estimator", "needs", "answers", "other GPUs", "time of an answer"], TOOLS, worded=True),  # fmt: skip
        Section(
            "Image models of the paper",
            "torchvision's VGG, ResNet, MobileNet, EfficientNet and Inception and timm's Xception with 32 and 128 images, Adam, cuDNN as it "
            "comes, an A100 40 GB. GPUMemNet answers in classes of 8,000 MiB.",
            HEAD,
            [[name, *row] for name, row in told["paper"].items()],
        ),
        Section(
            "Language models of the paper",
            "BERT, XLNet and GPT-2 as itu-rad/CARMA's scripts train them on an A100 40 GB: 512 tokens, fp32, AdamW, SDPA (XLNet: einsum). Each is a "
            "graph of transformers' own model. gpt2_large and the XLNets ran on two GPUs by torch.nn.DataParallel: a GPU's share is answered. "
            "What the rows leave open is said by ./dev validate.",
            ["run", "measured", "oometer", "GPUMemNet", "Horus"],
            told["language"],
        ),
        Section(
            "Image models at large",
            f"{told['runs']} runs of {told['models']} of timm's models with 8 to 128 images, fp32, on an A100 40 GB by nvidia-smi "
            f"({told['source']}). Each was exported as a graph of its operators by tools/export_graph.py, and what oometer answers is held against "
            f"what the whole device had. Those that died or came within 6 % of the card's end are left out; {told['refused']} models have "
            "an operator that is not modelled. What the process holds besides PyTorch's allocator is taken from one small run. The script "
            "was not published; timm's own train.py is assumed, with torch.backends.cudnn.benchmark on. By a model's class, of which "
            f"there are {told['families']}: what is off by more than a tenth are convolutions whose plans cuDNN tried. FakeTensor's figure "
            "is the authors', live bytes of forward and backward.",
            HEAD,
            [
                *([name, *row] for name, row in told["all"].items()),
                *([f"oometer: {row[0]}", *row[1:]] for row in told["by_family"]),
            ],
        ),
        Section(
            "MLPs at random",
            "Every twelfth of the 3,000 MLPs that GPUMemNet was trained on, with Adam in fp32 on the same A100. Their figures are nvidia-smi's, "
            "so that most of a small run is the process itself, which is taken from the smallest.",
            HEAD,
            [["oometer", *told["mlps"]]],
        ),
        Section(
            "Real PyTorch, without a GPU",
            "LLaVA-1.5, CLIP and Llama on one GPU, by real PyTorch with its own allocator over a driver whose kernels do nothing: peak reserved, "
            "beside the live bytes that FakeTensor counted in the same steps (tools/measure.py --fake).",
            HEAD,
            recordings(oometer),
        ),
        Section(
            "LLaVA-1.5 7B, the model of arXiv 2512.07853",
            "The whole model with micro-batch b and sequence s on an H100 and an H200, by us (tests/measured): full fine-tuning, pre-training of the projector, LoRA, generation. The paper has "
            "8.7 % in the mean of its own runs, whose settings are not published one by one.",
            ["run", "allocated", "reserved", "whole device", "error", "of reserved", "of the device"],
            llava(cases),
        ),
        Section("By GPU", "Runs of the code that oometer reproduces, ours and published ones (docs/accuracy.md).", HEAD, by_gpu(cases)),
        Section("Published, but of other runs", "Claims of papers and repositories. Their runs cannot be set beside ours: neither settings nor figures "
                "of single runs are published.", ["estimator", "runs", "what it says"], CLAIMS, worded=True),  # fmt: skip
        Section(
            "Time and utilization",
            "How far times of steps are off, by source and with what was kept back, is in docs/time.md.",
        ),
        Section(
            "A learned correction",
            "There is none, as none helps. tools/correction.py learns what is left over of 295 measured steps on 8 GPUs and of 410 peaks "
            "of reserved memory on 7, as one factor or by a ridge regression on the report's figures, and judges each GPU by what the others "
            "taught. Steps are 4.5 % off as computed (median; nine of ten within 19 %), 5.2 % with a factor (19 %) and 4.7 % with the regression "
            "(19 %). Peaks are off by less than 0.05 % as computed (nine of ten within 5.5 %), the same with a factor, which is 1, and by 2.0 % "
            "with the regression (13 %).",
        ),
    ]  # fmt: skip


def claim() -> str:
    told = json.loads(GPUMEMNET.read_text())
    medians = {name: row[2] for name, row in told["paper"].items()}
    others = ", ".join(f"{name}'s {median}" for name, median in medians.items() if name != "oometer")
    return f"On the paper's own image models oometer's median error is {medians['oometer']}; {others}."


def document(oometer: Path) -> Document:
    text = "oometer beside other estimators of GPU memory, on the same runs."
    return Document("Comparison", text, claim(), LEAD, sections(cases_of(oometer), oometer))


def files(oometer: Path) -> dict[Path, str]:
    written = document(oometer)
    return {HERE / "docs" / "comparison.md": markdown(written), HERE / "web" / "comparison.html": page(written)}


if __name__ == "__main__":
    sys.exit(write(__doc__, files))
