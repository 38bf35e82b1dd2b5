"""Turns fitcheck's archive of runs on a real Tesla T4 into measurements: tests/measured/fitcheck.jsonl.

    import_fitcheck.py DIR     the archive's JSON files, from the sdist of fitcheck-llm 0.3.1 (MIT)

Its scripts/measure.py: LoRA on q, k, v, o of a Hugging Face model, half-precision weights or NF4, AdamW (foreach),
non-reentrant checkpointing; a warm-up step, then a measured one, whose outputs live until its end. SDPA is the
memory-efficient kernel: a T4 has no other fused one. Repeats of a run, which came back equal, are left out.
tests/measured/README.md has the fields.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

OUT = Path(__file__).resolve().parent.parent / "tests" / "measured" / "fitcheck.jsonl"
MIB = 1 << 20
# What each session ran with, by its notes; newest first: a run repeated in a later one is taken from there.
SESSIONS = {
    "t4-sweep-2026-09-15.json": {"torch": "2.14", "transformers": "5.17", "peft": "0.20"},
    "t4-phase3-2026-09-16.json": {"torch": "2.10", "transformers": "5.0", "peft": "0.19"},
}


def job_of(run: dict[str, Any], model: dict[str, Any], runtime: dict[str, str]) -> dict[str, Any]:
    config = {
        "model_type": "qwen2" if "Qwen" in model["name"] else "llama",
        "hidden_size": model["hidden_size"],
        "intermediate_size": model["intermediate_size"],
        "num_hidden_layers": model["num_layers"],
        "num_attention_heads": model["num_attention_heads"],
        "num_key_value_heads": model["num_kv_heads"],
        "vocab_size": model["vocab_size"],
        "tie_word_embeddings": model["tie_word_embeddings"],
    }
    training: dict[str, Any] = {
        "precision": "fp16",
        "optimizer": {"name": "adamw", "implementation": "foreach", "param_groups": 1},
        "attention": run["attn_impl"],
        "activation_checkpointing": "non-reentrant",
        "keep_outputs": True,
        "lora": {"rank": run["lora_rank"], "alpha": 2 * run["lora_rank"], "target_modules": run["lora_targets"]},
    }
    if run["quantization"] == "nf4":
        training["quantization"] = {
            "load_in_4bit": True,
            "bnb_4bit_quant_type": "nf4",
            "bnb_4bit_use_double_quant": run["double_quant"],
            "bnb_4bit_compute_dtype": "float16",
        }
    return {
        "version": 1,
        "model": {"config": config},
        "data": {"micro_batch_size": run["batch_size"], "sequence_length": run["seq_len"]},
        "training": training,
        "gpu": {"name": "t4"},
        "runtime": runtime,
    }


def rows(archive: Path) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for file, runtime in SESSIONS.items():
        for entry in json.loads((archive / file).read_text())["runs"]:
            run, measured = entry["run"], entry["measured"]
            model = entry["model_config"]
            name = f"{model['name']}_{run['attn_impl']}_{run['seq_len']}_{run['batch_size']}_{run['quantization']}"
            found.setdefault(
                name,
                {
                    "name": name,
                    "source": "fitcheck",
                    "citation": f"fitcheck-llm 0.3.1 (MIT), {file}: {entry['config']}",
                    "job": job_of(run, model, runtime),
                    "measured": {
                        "allocated": round(measured["peak_allocated_mib"] * MIB),
                        "reserved": round(measured["peak_reserved_mib"] * MIB),
                        "device": round(measured["process_mib"] * MIB),
                    },
                    "peers": {"fitcheck 0.3.0": round(entry["predicted"]["total_mib"] * MIB)},
                },
            )
    return list(found.values())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    OUT.write_text("".join(json.dumps(row) + "\n" for row in rows(Path(sys.argv[1]))))
