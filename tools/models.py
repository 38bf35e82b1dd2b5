"""Writes docs/models.md: what each class of models can be asked, by asking for it.

    models.py [--oometer FILE] [--check]

Each class is tried with one preset in a dozen set-ups. A cell says "not yet" where oometer refuses, and "no" where the libraries refuse.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from documents import Document, Section, markdown, write

HERE = Path(__file__).resolve().parent.parent
Job = dict[str, Any]
LORA = {"rank": 16, "alpha": 32}
NF4 = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True, "bnb_4bit_compute_dtype": "bfloat16"}
# Words of a refusal that is ours. What else is refused, the libraries refuse.
OURS = re.compile(r"not supported|not modelled|supported with|is supported")
TARGETS: tuple[Any, ...] = ("all-linear", ["q_proj", "v_proj"], ["query_key_value"], ["in_proj"])


def with_lora(training: Job) -> list[Job]:
    """Whatever targets the model has: it is asked whether LoRA works, not where."""
    return [
        {"training": training | {"lora": LORA}},
        *({"training": training | {"lora": LORA | {"target_modules": targets}}} for targets in TARGETS),
    ]


def set_ups(length: int) -> dict[str, list[Job]]:
    """By the table's column: jobs of which one must be answered."""
    zero3: Job = {"strategy": "deepspeed", "zero_stage": 3, "data": 8}
    padded: Job = {"lengths": {"batches": [[length // 2, length]]}}
    packed: Job = {"packed": [[length // 2, length - length // 2]]}
    return {
        "step": [{}],
        "LoRA": with_lora({}),
        "QLoRA": with_lora({"quantization": NF4}),
        "`Trainer`": [{"training": {"loop": {"name": "transformers.Trainer", "args": args}}} for args in ({}, {"bf16": True})],
        "`SFTTrainer`": with_lora({"loop": "trl.SFTTrainer"}),
        "`DPOTrainer`": with_lora({"loop": "trl.DPOTrainer"}),
        "padding": [{"data": padded}, {"data": padded, "training": {"loop": "transformers.Trainer"}}],
        "packing": [
            {"data": packed, "training": {"loop": "trl.SFTTrainer"}},
            {"data": packed | {"images_per_sample": 0}, "training": {"loop": "trl.SFTTrainer"}},
        ],
        "flash-attn": [{"training": {"attention": "flash_attention_2"}}],
        "Liger": [{"training": {"liger": True}}, {"training": {"liger": {"swiglu": False}}}],
        "ZeRO-3": [{"parallel": zero3}],
        "FSDP": [{"parallel": {"strategy": strategy, "data": 8}} for strategy in ("fsdp2", "fsdp1")],
        "`generate`": [{"task": "inference"}, {"task": "inference", "data": {"images_per_sample": 1}}],
    }


def run(oometer: Path, *arguments: str, job: Job | None = None) -> subprocess.CompletedProcess[str]:
    given = None if job is None else json.dumps(job)
    return subprocess.run([oometer, *arguments], input=given, capture_output=True, text=True, check=False)


def cell(oometer: Path, preset: str, length: int, jobs: list[Job]) -> str:
    """yes, not yet, or no, as the libraries refuse it."""
    why = ""
    for job in jobs:
        asked: Job = {"version": 1, "model": {"preset": preset}, "gpu": {"name": "b200"}} | job
        data: Job = asked.get("data", {})
        if length and "lengths" not in data:
            asked["data"] = {"sequence_length": length} | data
        elif not data:
            asked["data"] = {"micro_batch_size": 2}  # norms of a batch refuse a single image behind a pool of one
        answer = run(oometer, "estimate", "--json", "-", job=asked)
        if answer.returncode != 2:
            return "yes"
        why += answer.stderr
    return "not yet" if OURS.search(why) else "no"


def classes(oometer: Path) -> dict[str, tuple[str, int]]:
    """The first preset of each class, and a length that its samples may have; 0 where it reads no text."""
    found: dict[str, tuple[str, int]] = {}
    for file in sorted((HERE / "presets" / "models").glob("*.json")):
        traits = json.loads(run(oometer, "traits", "--preset", file.stem).stdout)
        length = traits["sequence_length"] or 1024
        if traits["max_position_embeddings"]:
            length = min(length, traits["max_position_embeddings"])
        found.setdefault(traits["class"], (file.stem, length if traits["text"] else 0))
    return found


def row(oometer: Path, name: str, preset: str, length: int) -> list[str]:
    return [f"{name} ({preset})", *(cell(oometer, preset, length, jobs) for jobs in set_ups(length).values())]


def files(oometer: Path) -> dict[Path, str]:
    known = classes(oometer)
    with ThreadPoolExecutor() as pool:
        rows = list(pool.map(lambda name: row(oometer, name, *known[name]), sorted(known, key=str.lower)))
    lead = (
        f"One preset of each of {len(rows)} classes, put into each set-up. “not yet”: oometer refuses it by name. “no”: the libraries "
        "themselves refuse it or stop (transformers 5.23, TRL 1.16, peft 0.21, DeepSpeed 0.19.8, Liger 0.8.5), or it means nothing for the "
        "class; `oometer estimate` says in a sentence why. `step` is a training step of one's own in full; FSDP is FSDP1 or FSDP2."
    )
    table = Section(
        "Classes",
        "A class without a preset is not here; its config.json is taken all the same.",
        ["class (preset)", *set_ups(2)],
        rows,
        worded=True,
    )
    return {HERE / "docs" / "models.md": markdown(Document("Models", "", "Which model can be asked what.", lead, [table]))}


if __name__ == "__main__":
    sys.exit(write(__doc__, files))
