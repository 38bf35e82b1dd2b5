"""Published times of whole steps as oometer jobs, and how far the command's times are from them.

    measured_steps.py --from DATA >tests/measured/time/steps.jsonl
    measured_steps.py --ours MEASURED.jsonl >>tests/measured/time/steps.jsonl
    measured_steps.py [--oometer BINARY] [--each]  # these, and the jobs of tests/measured/h100.jsonl and h200.jsonl

MEASURED.jsonl is of tools/measure_plan.py: a step is the median of a job's warm ones.

DATA is a folder of tables of published measurements, each row with its source: time_finetune.csv (fitcheck 0.3.1, MIT), time_fms.csv
(foundation-model-stack/fms-acceleration, Apache-2.0), time_llmfoundry.csv (mosaicml/llm-foundry, Apache-2.0) and time_timm.csv.gz
(huggingface/pytorch-image-models, Apache-2.0). Taken are the runs that a job can express. By a hash of its name a run is one of those that
the constants in core/time may be fitted to (`"fitted": true`), or is kept back for the interval.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import hashlib
import json
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
STEPS = ROOT / "tests/measured/time/steps.jsonl"


def rows(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        yield from csv.DictReader(file)


def hub(name: str) -> dict[str, Any]:
    for row in json.loads((ROOT / "presets/hub.json").read_text()):
        if row["id"] == name and "config" in row:
            return {k: v for k, v in row["config"].items() if v is not None}
    raise KeyError(name)


SMOLLM2_1_7B = {"model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 24, "num_attention_heads": 32,
                "num_key_value_heads": 32, "vocab_size": 49152, "tie_word_embeddings": True}  # fmt: skip
MISTRAL_7B = {"model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
              "num_key_value_heads": 8, "vocab_size": 32000, "sliding_window": 4096, "tie_word_embeddings": False}  # fmt: skip
# MPT's width, layers and heads (llm-foundry, scripts/train/yamls/pretrain). A Llama of as many parameters stands for it: its MLP has three
# matrices of 8/3 of the width instead of two of 4.
MPT = {"mpt-125m": (768, 12, 12), "mpt-350m": (1024, 24, 16), "mpt-760m": (1536, 24, 12), "mpt-1b": (2048, 24, 16),
       "mpt-3b": (2560, 32, 20), "mpt-7b": (4096, 32, 32), "mpt-13b": (5120, 40, 40), "mpt-30b": (7168, 48, 56)}  # fmt: skip


def lora(rank: int, targets: str) -> dict[str, Any]:
    return {"rank": rank, "alpha": 2 * rank, "target_modules": [t for t in targets.split() if t != "c_attn"]}


def nf4(compute: str, *, double: bool) -> dict[str, Any]:
    return {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": double, "bnb_4bit_compute_dtype": compute}


def of_fitcheck(data: Path) -> Iterator[dict[str, Any]]:
    for row in rows(data / "time_finetune.csv"):
        if row["source"] != "fitcheck":
            continue
        small = row["model"].removeprefix("HuggingFaceTB/")
        config = SMOLLM2_1_7B if small == "SmolLM2-1.7B" else hub(row["model"])
        training = {
            "precision": "fp16", "optimizer": {"name": "adamw", "implementation": "foreach", "param_groups": 1}, "keep_outputs": True,
            "attention": "eager" if row["attention"] == "eager" else "sdpa", "activation_checkpointing": "non-reentrant",
            "lora": lora(32, "q_proj k_proj v_proj o_proj"),
        }  # fmt: skip
        if row["quant"] == "nf4":
            training["quantization"] = nf4("float16", double=False)
        batch, length = int(float(row["batch"])), int(row["seq"])
        yield {
            "name": f"{small.split('/')[-1]} {row['method']} {row['attention']} {batch} x {length}", "source": "fitcheck",
            "job": {"model": {"config": config}, "training": training, "gpu": {"name": "t4"},
                    "data": {"micro_batch_size": batch, "sequence_length": length}},
            "step": float(row["step_s"]), "citation": row["cite"],
        }  # fmt: skip


def of_fms(data: Path) -> Iterator[dict[str, Any]]:
    for row in rows(data / "time_fms.csv"):
        kind = row["framework_config"]
        if row["model"] != "mistralai/Mistral-7B-v0.1" or row["grade"] != "B" or kind not in ("none", "accelerated-peft-bnb"):
            continue
        if kind != "none" and row["n_gpus"] != "1":
            continue  # 4-bit weights under FSDP
        training = {
            "precision": "bf16", "optimizer": {"name": "adamw", "implementation": "fused"}, "attention": "sdpa",
            "activation_checkpointing": "reentrant", "lora": lora(int(float(row["lora_r"])), row["target_modules"]),
        }  # fmt: skip
        if kind != "none":
            training["quantization"] = nf4("bfloat16", double=False)
            training["precision"] = {"weights": "bf16", "autocast": "bf16"}
        job = {"model": {"config": MISTRAL_7B}, "training": training, "gpu": {"name": "a100-80gb"},
               "data": {"micro_batch_size": int(row["per_device_batch"]), "sequence_length": 4096}}  # fmt: skip
        if row["n_gpus"] != "1":
            job["parallel"] = {"strategy": "fsdp1", "data": int(row["n_gpus"])}
            training["lora"]["autocast_adapter_dtype"] = False  # FSDP1 flattens one dtype
        name = f"Mistral-7B {kind} {row['n_gpus']} GPUs, {row['per_device_batch']} x 4096"
        yield {"name": name, "source": "fms", "job": job, "step": float(row["step_s"]), "citation": row["cite"]}


def of_llmfoundry(data: Path) -> Iterator[dict[str, Any]]:
    for row in rows(data / "time_llmfoundry.csv"):
        gpus, length = int(row["n_gpus"]), int(row["seq"])
        if row["model"] not in MPT or gpus > 8 or length > 2048:
            continue  # links between nodes; attention by Triton's kernel, which takes more with longer sequences
        width, layers, heads = MPT[row["model"]]
        config = {"model_type": "llama", "hidden_size": width, "intermediate_size": round(8 / 3 * width / 128) * 128,
                  "num_hidden_layers": layers, "num_attention_heads": heads, "vocab_size": 50368, "tie_word_embeddings": True,
                  "max_position_embeddings": length}  # fmt: skip
        training = {
            "precision": "fp32", "optimizer": {"name": "adamw", "implementation": "foreach"}, "max_grad_norm": 1.0,
            "activation_checkpointing": "non-reentrant" if row["act_ckpt"] == "True" else "none",
            "gradient_accumulation_steps": int(row["grad_accum"]),
        }  # fmt: skip
        job = {"model": {"config": config}, "training": training, "gpu": {"name": row["gpu"].replace("_", "-")},
               "data": {"micro_batch_size": int(row["micro_batch"]), "sequence_length": length},
               "parallel": {"strategy": "fsdp1", "data": gpus, "fsdp": {"mp": True}}}  # fmt: skip
        name = f"{row['model']} {row['gpu']} {gpus} GPUs, {row['micro_batch']} x {row['grad_accum']} x {length}"
        yield {"name": name, "source": "llm-foundry", "job": job, "step": float(row["step_s"]), "citation": row["cite"]}


def of_timm(data: Path) -> Iterator[dict[str, Any]]:
    models = {"vit_large_patch14_clip_224": "clip-vit-l-14", "vit_large_patch14_clip_336": "clip-vit-l-14-336"}
    for row in rows(data / "time_timm.csv.gz"):
        if row["model"] not in models or row["mode"] != "infer" or row["compile"] != "eager" or row["gpu"] == "rtx-pro-6000-maxq":
            continue
        if row["torch"] == "pt113":
            continue  # without scaled_dot_product_attention
        config = json.loads((ROOT / f"presets/models/{models[row['model']]}.json").read_text())["config"]["vision_config"]
        job = {"task": "inference", "model": {"config": config | {"model_type": "clip_vision_model", "hidden_act": "gelu"}}, "training": {"precision": "fp16"},
               "data": {"micro_batch_size": int(row["batch"])}, "gpu": {"name": row["gpu"]}}  # fmt: skip
        name = f"{row['model']} {row['gpu']} {row['layout']} {row['torch']} {row['batch']}"
        yield {"name": name, "source": "timm", "job": job, "step": float(row["step_ms"]) / 1e3, "citation": row["cite"]}


def of_ours(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text().splitlines():
        row = json.loads(line)
        if "job" in row and "python" not in row and row.get("step_seconds") and row["source"].endswith("jobs"):
            seconds = round(statistics.median(row["step_seconds"]), 6)
            citation = f"{row['citation']}, {row['date']}, transformers {row['versions']['transformers']}"
            yield {"name": row["name"], "source": row["source"], "job": row["job"], "step": seconds, "citation": citation}


def may_be_fitted(name: str) -> bool:
    return hashlib.sha256(name.encode()).digest()[0] % 2 == 0


def collect(runs: Iterator[dict[str, Any]]) -> None:
    seen = set()
    for run in runs:
        if (run["name"], run["step"]) in seen:
            continue
        seen.add((run["name"], run["step"]))
        run["fitted"] = may_be_fitted(run["name"])
        run["job"] = {"version": 1, **run["job"]}
        print(json.dumps(run))


def compare(oometer: str, *, each: bool) -> None:
    errors: dict[tuple[str, bool], list[float]] = defaultdict(list)
    inside: dict[tuple[str, bool], int] = defaultdict(int)
    runs = [json.loads(line) for line in STEPS.read_text().splitlines()]
    for gpu in ("h100", "h200"):
        for run in of_ours(ROOT / f"tests/measured/{gpu}.jsonl"):
            runs.append(run | {"source": f"all {run['source']}", "fitted": may_be_fitted(run["name"])})
    for run in runs:
        done = subprocess.run(
            [oometer, "estimate", "--json", "-"], input=json.dumps(run["job"]), capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            sys.exit(f"{run['name']}: {done.stderr}")
        report = json.loads(done.stdout)
        time = report["time"]
        if time is None:
            sys.exit(f"{run['name']}: {report['notes']}")
        key = (run["source"], run["fitted"])
        ratio = time["step"] / run["step"]
        errors[key].append(ratio - 1)
        inside[key] += time["low"] <= run["step"] <= time["high"]
        if each:
            parts = " ".join(f"{k} {v / time['step']:.0%}" for k, v in time["by_kind"].items() if v > 0.01 * time["step"])
            print(
                f"{run['source']:12}{'fitted' if run['fitted'] else '':7}{run['name']:60}{run['step']:9.3f} s, {ratio - 1:+7.1%}  {parts}"
            )
    for (source, fitted), its in sorted(errors.items()):
        off = sorted(abs(e) for e in its)
        print(f"{source:12} {'fitted' if fitted else 'kept back':10} {len(its):4} runs: median {statistics.median(off):.1%}, "
              f"worst {off[-1]:.1%}, {min(its):+.1%} to {max(its):+.1%}, {inside[source, fitted]} in the interval")  # fmt: skip


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--from", type=Path, dest="data")
    arguments.add_argument("--ours", type=Path)
    arguments.add_argument("--oometer", default=str(ROOT / "build/dev/oometer"))
    arguments.add_argument("--each", action="store_true")
    given = arguments.parse_args()
    if given.ours:
        collect(of_ours(given.ours))
    elif given.data:
        collect(run for runs in (of_fitcheck, of_fms, of_llmfoundry, of_timm) for run in runs(given.data))
    else:
        compare(given.oometer, each=given.each)


if __name__ == "__main__":
    main()
