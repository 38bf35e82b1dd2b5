"""Writes the accuracy page from what was measured: docs/accuracy.md, docs/accuracy.svg and web/accuracy.html.

    accuracy.py [--oometer FILE] [--check]     --check writes nothing: exit status 1 if a file is out of date

Of every measurement of tests/measured (published.jsonl as committed, so that the page is the same everywhere): predicted
beside measured; beside that what other tools' formulas say of the same cases. `./dev validate --write` runs this.
"""

# ruff: noqa: E501  (text)
from __future__ import annotations

import html
import json
import math
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibrate import GPUMEMNET, left_out, percent, spread
from documents import Document, Section, markdown, page, write
from step.job import config_of
from validate import HERE, MEASURED, WHAT, answers, errors_of

GIB = 1 << 30
Json = dict[str, Any]


# --- what others would say --------------------------------------------------------------------------------------------


@dataclass
class Case:
    row: Json
    report: Json
    what: str  # allocated, reserved or device: the widest thing that was measured

    @property
    def measured(self) -> int:
        return int(self.row["measured"][self.what])

    @property
    def predicted(self) -> int:
        peak = self.report["peak"]
        return int(peak["total" if self.what == "device" else self.what])

    @property
    def all_train(self) -> bool:
        return "lora" not in self.training

    @property
    def training(self) -> Json:
        return dict(self.row["job"].get("training", {}))

    @property
    def config(self) -> Json:
        return config_of(self.row["job"]["model"])


def weight_bytes(case: Case) -> float:
    training = case.training
    wide = 4.0 if training.get("precision", "bf16") in {"fp32", "amp-bf16", "amp-fp16"} else 2.0
    return 0.5 if "quantization" in training else wide


def accelerate_estimate(case: Case) -> float:
    """accelerate 1.x, commands/estimate.py, estimate_training_usage: Adam in half precision is twice the model in fp32."""
    return 8.0 * case.report["model"]["parameters"]


def deepspeed_estimate(case: Case) -> float | None:
    """deepspeed 0.19.8, estimate_zero2_model_states_mem_needs(params, 1 GPU, cpu_offload=False): 2 + 18 bytes a parameter."""
    return 20.0 * case.report["model"]["parameters"]


def bytes_a_parameter(case: Case) -> float:
    """24 bytes for each trained parameter (weight, gradient, two moments, copies), and the weights that do not train."""
    model = case.report["model"]
    return 24.0 * model["trainable"] + weight_bytes(case) * (model["parameters"] - model["trainable"])


def megatron(case: Case) -> float:
    """Korthikanti et al. 2022 (arXiv 2205.05198), section 4: weights, 16 bytes for each trained parameter, sbh(34 + 5as/h) bytes of
    activations a layer (34 sbh where attention's scores are not kept), or 2 sbh and one layer's where each is recomputed; the output
    layer's 4 sbh (1 + v/h)."""
    model, job = case.report["model"], case.row["job"]
    config, training, data = case.config, case.training, job["data"]
    tokens = data["micro_batch_size"] * data["sequence_length"]
    sbh = tokens * config["hidden_size"]
    layer = 34.0 * sbh
    if training.get("attention") == "eager":
        layer += 5.0 * config["num_attention_heads"] * data["sequence_length"] * tokens
    layers = config["num_hidden_layers"]
    kept = layers * layer if training.get("activation_checkpointing", "none") == "none" else layers * 2.0 * sbh + layer
    output = 4.0 * tokens * (config["hidden_size"] + config["vocab_size"])
    frozen = model["parameters"] - model["trainable"]
    return 16.0 * model["trainable"] + weight_bytes(case) * frozen + kept + output


PEERS: dict[str, Callable[[Case], float | None]] = {
    "accelerate estimate-memory": accelerate_estimate,
    "DeepSpeed's ZeRO-2 estimator": deepspeed_estimate,
    "24 bytes a trained parameter": bytes_a_parameter,
    "Megatron's closed form": megatron,
}


# --- figures ----------------------------------------------------------------------------------------------------------


HEAD = ["runs", "n", "mean", "median", "95 %", "largest", "≤ 1 %", "≤ 3 %", "≤ 5 %", "≤ 10 %"]


def cases_of(oometer: Path) -> list[Case]:
    lines = [json.loads(line) for file in sorted(MEASURED.glob("*.jsonl")) for line in file.read_text().splitlines()]
    rows = [row for row in lines if not row.keys() & {"probe", "python"}]
    found = []
    for row, report in zip(rows, answers(oometer, rows), strict=True):
        if "error" not in report and not row.get("out_of_memory"):
            widest = next(what for what in ("device", "reserved", "allocated") if what in row["measured"])
            found.append(Case(row, report, widest))
    return found


def same_code(case: Case) -> bool:
    return bool(case.row.get("same_code", True))


def by_source(cases: list[Case]) -> list[list[str]]:
    groups: dict[str, list[float]] = {}
    for case in cases:
        training = case.training
        kind = " QLoRA" if "quantization" in training else " LoRA" if "lora" in training else ""
        for what, error in errors_of(case.row, case.report).items():
            label = f"{case.row['source']}{kind if 'peers' in case.row else ''}: {WHAT[what]}"
            groups.setdefault(label, []).append(error)
    return [[label, *spread(errors)] for label, errors in groups.items()]


def against_others(cases: list[Case]) -> list[list[str]]:
    rows = [["oometer", *spread(case.predicted / case.measured - 1 for case in cases)]]
    own: dict[str, list[float]] = {}
    for case in cases:
        for peer, figure in case.row.get("peers", {}).items():
            own.setdefault(peer, []).append(figure / case.measured - 1)
        for peer, formula in PEERS.items():
            if (figure := formula(case)) is not None:
                own.setdefault(peer, []).append(figure / case.measured - 1)
    return rows + [[peer, *spread(errors)] for peer, errors in own.items()]


def verdicts(cases: list[Case], gpus: list[Json]) -> list[list[str]]:
    """Each run asked of each GPU of the catalogue: whether what was measured is below what that GPU gives, and what was said."""
    said: dict[str, list[tuple[bool, bool]]] = {}
    for case in cases:
        peak, interval = case.report["peak"], case.report["interval"]
        offset = 0 if case.what == "device" else peak["outside_allocator"]  # what was measured is without it
        for gpu in gpus:
            truth = case.measured <= gpu["usable_bytes"]
            figures = {"oometer: fits or tight": peak["total"] - offset, "oometer: fits": interval["high"] - offset}
            figures |= {peer: figure for peer, formula in PEERS.items() if (figure := formula(case)) is not None}
            for name, figure in figures.items():
                said.setdefault(name, []).append((figure <= gpu["usable_bytes"], truth))
    return [
        [
            name,
            str(len(pairs)),
            percent(sum(a and not b for a, b in pairs) / len(pairs)),
            percent(sum(b and not a for a, b in pairs) / len(pairs)),
        ]
        for name, pairs in said.items()
    ]


def claim(read: list[Case], gpus: list[Json]) -> str:
    """What matters most: whether "fits" can be relied on."""
    questions = [
        (case.report["interval"]["high"] - (0 if case.what == "device" else case.report["peak"]["outside_allocator"]), case.measured, gpu)
        for case in read
        for gpu in gpus
    ]
    false = sum(high <= gpu["usable_bytes"] < measured for high, measured, gpu in questions)
    said = "never" if false == 0 else f"{false} times"
    return (
        f"“Fits” was {said} wrong in {len(read)} runs on real GPUs, each held against every NVIDIA GPU of the catalogue: "
        f"{len(questions):,} questions."
    )


def by_family(cases: list[Case]) -> list[list[str]]:
    """Of runs of code that oometer reproduces, the widest figure of each, by the model's class in transformers."""
    groups: dict[str, list[float]] = {}
    for case in filter(same_code, cases):
        groups.setdefault(case.config.get("model_type", "graph"), []).append(case.predicted / case.measured - 1)
    return [[kind, *spread(errors)] for kind, errors in sorted(groups.items(), key=lambda group: -len(group[1]))]


def inside(cases: list[Case]) -> str:
    kinds: dict[bool, list[tuple[str, float]]] = {False: [], True: []}
    widths: dict[bool, list[float]] = {False: [], True: []}
    held = 0
    for case in (c for c in cases if c.what == "device" and same_code(c)):
        peak, interval = case.report["peak"], case.report["interval"]
        quantized = "quantization" in case.training
        kinds[quantized].append((case.row["name"], case.row["measured"]["reserved"] / peak["reserved"] - 1))
        widths[quantized].append((interval["high"] - interval["low"]) / peak["total"])
        held += interval["low"] <= case.measured <= interval["high"]
    count = sum(map(len, kinds.values()))
    alone = sum(left_out(runs, lambda i, j: i == j) for runs in kinds.values())
    return (
        f"Of {count} runs whose whole device was measured, {held} lie inside the interval of their answer. It was made from a quarter of them, so what "
        f"counts is another test: each left out in turn, and judged by the others, {alone} of {count} lie inside. The interval’s median width "
        f"is {percent(statistics.median(widths[False]))} of the total without quantisation, and {percent(statistics.median(widths[True]))} "
        "with weights in 4 bits. Jobs of which no like run was measured have the wider of the two."
    )


# --- the picture ------------------------------------------------------------------------------------------------------

SIDE, MARGIN, LEAST, MOST = 440, 44, 0.8, 144.0  # GiB


def position(gib: float) -> float:
    return (math.log(gib) - math.log(LEAST)) / (math.log(MOST) - math.log(LEAST)) * (SIDE - MARGIN - 8)


def sources_of(cases: list[Case]) -> list[str]:
    """Those with most runs first: each has a colour of its own."""
    sources = [case.row["source"] for case in cases]
    return sorted(set(sources), key=lambda source: (-sources.count(source), source))


def band(share: float, size: float) -> str:
    """What lies within so large an error, between two parallels: both axes are logarithmic."""
    up, down = position(LEAST * (1 + share)), position(LEAST * (1 - share))
    left, bottom, right = MARGIN, 8 + size, MARGIN + size
    return (
        f'<path class="band" d="M{left} {bottom - up:.1f}L{right - up:.1f} 8H{right}V{8 - down:.1f}L{left - down:.1f} {bottom}H{left}Z">'
        f"<title>within {share:.0%} of what was measured</title></path>"
    )


def legend(cases: list[Case]) -> str:
    """The colours of the sources, below the picture."""
    parts = []
    for i, source in enumerate(sources_of(cases)):
        x, y = MARGIN + (i % 2) * (SIDE - MARGIN) / 2, SIDE + 14 + (i // 2) * 18
        runs = [case for case in cases if case.row["source"] == source]
        parts.append(f'<circle class="{"read" if same_code(runs[0]) else "analogy"} s{i % COLOURS}" cx="{x + 5}" cy="{y - 4}" r="4"/>')
        parts.append(f'<text x="{x + 16}" y="{y}">{html.escape(source)} ({len(runs)})</text>')
    return "".join(parts)


def picture(cases: list[Case], style: str) -> str:
    """Predicted over measured, both logarithmic: filled where the run's code is what oometer has read, hollow by analogy."""
    size = SIDE - MARGIN - 8
    sources = sources_of(cases)
    height = SIDE + 18 * math.ceil(len(sources) / 2) + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="scatter" viewBox="0 0 {SIDE} {height}" role="img" '
        f'aria-label="Predicted peaks over measured ones, {len(cases)} runs, from {LEAST:g} to {MOST:g} GiB">{style}'
    ]
    parts += [band(share, size) for share in (0.2, 0.1)]
    for gib in (1, 2, 4, 8, 16, 32, 64, 128):
        at = position(gib)
        x, y = MARGIN + at, 8 + size - at
        parts.append(f'<path class="grid" d="M{x:.1f} 8V{8 + size}M{MARGIN} {y:.1f}H{MARGIN + size}"/>')
        parts.append(f'<text x="{x:.1f}" y="{8 + size + 16}" text-anchor="middle">{gib}</text>')
        parts.append(f'<text x="{MARGIN - 6}" y="{y + 4:.1f}" text-anchor="end">{gib}</text>')
    parts.append(f'<path class="same" d="M{MARGIN} {8 + size}L{MARGIN + size} 8"/>')
    for case in sorted(cases, key=same_code):
        x, y = MARGIN + position(case.measured / GIB), 8 + size - position(case.predicted / GIB)
        name = f"{case.row['name']}: {case.measured / GIB:.2f} GiB measured, {case.predicted / GIB:.2f} predicted"
        kind = f"{'read' if same_code(case) else 'analogy'} s{sources.index(case.row['source']) % COLOURS}"
        parts.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"><title>{html.escape(name)}</title></circle>')
    parts.append(f'<text x="{MARGIN + size / 2}" y="{SIDE - 6}" text-anchor="middle">measured, GiB</text>')
    parts.append(f'<text transform="translate(12 {8 + size / 2}) rotate(-90)" text-anchor="middle">predicted, GiB</text>')
    return "".join([*parts, legend(cases), "</svg>"])


# As in web/src/styles/accuracy.css, which has the page's.
COLOURS = 8
STYLE = """<style>
text { font: 11px system-ui, sans-serif; fill: #57606a } .grid { stroke: #d0d7de; fill: none } .same { stroke: #57606a; stroke-dasharray: 4 3 }
.band { fill: #57606a; fill-opacity: .1 } circle { color: #3a70e0; fill: currentColor; fill-opacity: .75; stroke: currentColor }
.analogy { fill: none } .s1 { color: #df741b } .s2 { color: #5c1a96 } .s3 { color: #00a094 } .s4 { color: #931f50 } .s5 { color: #716d05 }
.s6 { color: #2b6a2f } .s7 { color: #646d76 }
@media (prefers-color-scheme: dark) { text { fill: #9aa4ae } .grid { stroke: #333b44 } .same { stroke: #9aa4ae } .band { fill: #9aa4ae }
  circle { color: #4580dd } .s1 { color: #f08437 } .s2 { color: #c793ff } .s3 { color: #3ddccb } .s4 { color: #e0629f } .s5 { color: #d8d250 }
  .s6 { color: #8fd06a } .s7 { color: #8d969f } }
</style>"""


# --- the two documents ------------------------------------------------------------------------------------------------


def language_models(cases: list[Case]) -> list[Case]:
    """Those of which the formulas speak, on one GPU: nanoVLM's runs and those of several are not theirs."""
    needed = {"hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"}
    jobs = [(case, case.row["job"]) for case in cases if same_code(case)]
    return [
        case
        for case, job in jobs
        if job.get("task", "train") == "train"
        and "parallel" not in job
        and needed <= case.config.keys()
        and "sequence_length" in job["data"]
    ]


def nvidia() -> list[Json]:
    return [gpu for gpu in json.loads((HERE / "presets" / "gpus.json").read_text()) if gpu["vendor"] == "nvidia"]


def sections(cases: list[Case]) -> list[Section]:
    read, gpus = language_models(cases), nvidia()
    return [
        Section(
            "By family",
            "Runs of the code that oometer reproduces, by the model_type of their config. To see a row again: ./dev validate runs every job of "
            "tests/measured and prints its error beside its name.",
            HEAD,
            by_family(cases),
        ),
        Section(
            "By source",
            "./dev validate prints signed errors, and explains each error of 10 % or more. fitcheck, PEFT, nanoVLM and the long-context runs "
            "used the code that oometer reproduces. The other sources used their own models and trainers, with lengths and tools that are only "
            "partly published; a transformers job stands in for them, so these rows show how far an analogy goes.",
            HEAD,
            by_source(cases),
        ),
        Section(
            "Beside other estimates",
            f"{len(read)} runs of the code that oometer reproduces (LoRA, QLoRA and full fine-tuning), compared with published formulas. "
            "accelerate's and DeepSpeed's are meant for runs that train every weight. Sources: tools/accuracy.py. Estimators that were "
            "published with runs of their own are in docs/comparison.md.",
            HEAD,
            against_others(read),
        ),
        Section(
            "Fits or not",
            "Each of these runs, checked against every NVIDIA GPU of the catalogue. A false “fits” promises a run that would die. "
            "oometer says “tight” where only the upper end of its interval does not fit.",
            ["said", "questions", "false “fits”", "false “does not fit”"],
            verdicts(read, gpus),
        ),
        Section("The interval", inside(cases)),
        Section("The interval of convolutions", inside_of_convolutions()),
    ]


def inside_of_convolutions() -> str:
    told = json.loads(GPUMEMNET.read_text())
    sides = told["interval"]
    return (
        "Which plan cuDNN chooses, and what its benchmark tries, no formula tells, so a graph with convolutions has an interval of its own: "
        f"{sides['below'] / 100:.1f} % below to {sides['above'] / 100:.1f} % above the simulated reserved bytes, the conformal quantiles of the signed "
        f"errors of {told['runs']} runs of image models (docs/comparison.md). With each of their {told['families']} architectures left out in turn, "
        f"{percent(sides['held_out'])} of its runs lie inside what the others' make."
    )


INTRO = (
    "Predicted against measured, for every published run on a real GPU whose configuration can be written as a job. The citations are in "
    "tests/measured. A filled dot is a run of code that oometer reproduces; a hollow dot is another framework's run, answered by analogy. "
    "Each dot shows the widest figure that was measured: the whole device, else reserved, else allocated bytes. A colour is a source, the dashed "
    "line is exact, and the two bands hold what is within 10 % and 20 %."
)


def document(cases: list[Case]) -> Document:
    return Document(
        "Accuracy",
        "What oometer predicts, beside what was measured on real GPUs.",
        claim(language_models(cases), nvidia()),
        INTRO,
        sections(cases),
        ("![Predicted over measured peaks](accuracy.svg)", picture(cases, "")),
    )


def files(oometer: Path) -> dict[Path, str]:
    cases = cases_of(oometer)
    written = document(cases)
    return {
        HERE / "docs" / "accuracy.md": markdown(written),
        HERE / "docs" / "accuracy.svg": picture(cases, STYLE) + "\n",
        HERE / "web" / "accuracy.html": page(written),
    }


if __name__ == "__main__":
    sys.exit(write(__doc__, files))
