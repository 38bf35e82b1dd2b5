"""Turns published measurements into jobs: tests/measured/published.jsonl, from a table of rows as measured.csv has them.

    published.py MEASURED.csv     rewrites tests/measured/published.jsonl

`MODELS` and `SOURCES` say what can be expressed: a model is a config, a source a function from a row to a job, or None
where the row cannot be told honestly as one. To add rows, add an entry. `./dev validate` reads the table itself where it
lies beside the checkout (../shared/measured.csv), and otherwise what this has written. tests/measured/README.md has the
fields.
"""

# ruff: noqa: E501, PLR0917  (tables)

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent
OUT = HERE / "tests" / "measured" / "published.jsonl"
TABLE = HERE.parent / "shared" / "measured.csv"
Row = dict[str, str]
Job = dict[str, Any]

GIB = 1 << 30
UNITS = {
    "bytes": 1,
    "MiB": 1 << 20,
    "MB (1024**2)": 1 << 20,
    "MB (as printed)": 1 << 20,
    "GiB": GIB,
    "GB (1e9)": 10**9,
    "G (as printed)": GIB,
    "GB (script divides by 1024^3)": GIB,
}


def llama(hidden: int, intermediate: int, layers: int, heads: int, kv_heads: int, vocabulary: int, **more: Any) -> Job:
    return {
        "config": {
            "model_type": "llama",
            "hidden_size": hidden,
            "intermediate_size": intermediate,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "vocab_size": vocabulary,
            **more,
        }
    }


def qwen(hidden: int, intermediate: int, layers: int, heads: int, vocabulary: int) -> Job:
    """Qwen 1, by analogy: its remote code's blocks are Llama's with the three projections in one, and biases on them."""
    return llama(hidden, intermediate, layers, heads, heads, vocabulary)


def qwen2(hidden: int, intermediate: int, layers: int, heads: int, kv_heads: int, vocabulary: int, **more: Any) -> Job:
    made = llama(hidden, intermediate, layers, heads, kv_heads, vocabulary, **more)
    return {"config": made["config"] | {"model_type": "qwen2"}}


def qwen3(hidden: int, intermediate: int, layers: int, heads: int, **more: Any) -> Job:
    made = llama(hidden, intermediate, layers, heads, 8, 151936, head_dim=128, **more)
    return {"config": made["config"] | {"model_type": "qwen3"}}


LLAMA_3_8B = llama(4096, 14336, 32, 32, 8, 128256)
MODELS: dict[str, Job] = {
    "meta-llama/Llama-2-7b-hf": llama(4096, 11008, 32, 32, 32, 32000),
    "meta-llama/Llama-2-13b-hf": llama(5120, 13824, 40, 40, 40, 32000),
    "meta-llama/Meta-Llama-3-8B": LLAMA_3_8B,
    "meta-llama/Meta-Llama-3.1-8B": LLAMA_3_8B,
    "meta-llama/Llama-3.1-8B": LLAMA_3_8B,
    "meta-llama/Llama-3.2-1B": llama(2048, 8192, 16, 32, 8, 128256, head_dim=64, tie_word_embeddings=True),
    "meta-llama/Llama-3.2-3B": llama(3072, 8192, 28, 24, 8, 128256, head_dim=128, tie_word_embeddings=True),
    "TinyLlama/TinyLlama-1.1B-intermediate-step-1431k-3T": llama(2048, 5632, 22, 32, 4, 32000),
    "01-ai/Yi-6B-Chat": llama(4096, 11008, 32, 32, 4, 64000),
    "01-ai/Yi-34B-Chat": llama(7168, 20480, 60, 56, 8, 64000),
    "Qwen/Qwen-1_8B": qwen(2048, 5504, 24, 16, 151936),
    "Qwen/Qwen-7B": qwen(4096, 11008, 32, 32, 151936),
    "Qwen/Qwen-14B": qwen(5120, 13696, 40, 40, 152064),
    "Qwen/Qwen2.5-0.5B": qwen2(896, 4864, 24, 14, 2, 151936, tie_word_embeddings=True),
    "Qwen/Qwen2.5-1.5B": qwen2(1536, 8960, 28, 12, 2, 151936, tie_word_embeddings=True),
    "Qwen/Qwen2.5-3B": qwen2(2048, 11008, 36, 16, 2, 151936, tie_word_embeddings=True),
    "Qwen/Qwen2.5-7B": qwen2(3584, 18944, 28, 28, 4, 152064),
    "Qwen/Qwen2.5-14B": qwen2(5120, 13824, 48, 40, 8, 152064),
    "Qwen/Qwen2.5-32B": qwen2(5120, 27648, 64, 40, 8, 152064),
    "Qwen/Qwen3-0.6B": qwen3(1024, 3072, 28, 16, tie_word_embeddings=True),
    "Qwen/Qwen3-1.7B": qwen3(2048, 6144, 28, 16, tie_word_embeddings=True),
    "Qwen/Qwen3-4B": qwen3(2560, 9728, 36, 32, tie_word_embeddings=True),
    "Qwen/Qwen3-8B": qwen3(4096, 12288, 36, 32),
    "Qwen/Qwen3-14B": qwen3(5120, 17408, 40, 40),
    "Qwen/Qwen3-32B": qwen3(5120, 25600, 64, 64),
}
GPUS = {
    "A10G": "a10g",
    "A100": "a100-80gb",
    "A100-SXM4-40GB": "a100-40gb",
    "RTX 4090": "rtx-4090",
    "2x RTX 3090": "rtx-3090",
    "NVIDIA L40S": "l40s",
    "H200": "h200",
    "H20": "h20",
    "B200": "b200",
}
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
MLP = ["gate_proj", "up_proj", "down_proj"]
NF4: Job = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_compute_dtype": "bfloat16"}


def number(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def model_of(row: Row) -> Job | None:
    name = row["model"]
    return MODELS.get(name) or MODELS.get(name.removesuffix("-Chat")) or MODELS.get(name.removesuffix("-Instruct"))


def gpu_of(row: Row) -> Job:
    """Of one that is not known by name nothing is asked but the allocator: its rules are the same on all."""
    known = max((name for name in GPUS if row["gpu"].startswith(name)), key=len, default="A100")
    return {"name": GPUS[known]}


def job(row: Row, sequence: int, training: Job, runtime: Job, parallel: Job | None = None) -> Job | None:
    model, batch = model_of(row), number(row["micro_batch"])
    if not model or not batch or "compile" in row["fused_kernels"].replace("torch.compile=False", ""):
        return None
    optimizer = {"name": "adamw", "implementation": "foreach", "param_groups": 1}
    made = {
        "version": 1,
        "model": model,
        "data": {"micro_batch_size": batch, "sequence_length": sequence},
        "training": {"precision": "bf16", "optimizer": optimizer, **training},
        "gpu": gpu_of(row),
        "runtime": runtime,
    }
    return {**made, "parallel": parallel} if parallel else made


def lora(rank: int, targets: list[str], **more: Any) -> Job:
    return {"rank": rank, "alpha": rank, "target_modules": targets, **more}


# --- the sources ------------------------------------------------------------------------------------------------------


# What an experiment's name or its count of trained weights says beside rank and targets (peft, method_comparison/MetaMathQA/experiments).
METAMATH: dict[str, Job] = {
    "adalora--llama-3.2-3B-rank32": {"r": None, "init_r": 64, "target_r": 32, "total_step": 5000},
    "deft--llama-3.2-3B-rank32-para": {"para": True},
    "glora--llama-3.2-3B-vector-paths": {"config_A_B": "vector"},
    "ia3--llama-3.2-3B-all-attn-5k-lr0.005": {"feedforward_modules": ["down_proj", "gate_proj", "up_proj"]},
    "lokr--llama-3.2-3B-rank32-factor4-lr0.003": {"decompose_factor": 4},
    "miss--llama-3.2-3B-bat": {"init_weights": "bat"},
    "miss--llama-3.2-3B-mini": {"init_weights": "mini", "mini_r": 64},
    "oft--llama-3.2-3B-rank32": {"oft_block_size": 0},
    "prefixtuning--llama-3.2-3B-lr_0.001": {"num_virtual_tokens": 200},
    "prefixtuning--llama-3.2-3B-lr_0.005_zero_init": {"num_virtual_tokens": 200},
    "prefixtuning--llama-3.2-3B-tokens50-init_prefix-lr_0.005": {"num_virtual_tokens": 50},
    "prompt_tuning--llama-3.2-3B-default": {"num_virtual_tokens": 200},
    "prompt_tuning--llama-3.2-3B-lr_0.001": {"num_virtual_tokens": 200},
    "prompt_tuning--llama-3.2-3B-sample_vocab-lr_0.001": {"num_virtual_tokens": 200},
    "ptuning--llama-3.2-3B-default": {"num_virtual_tokens": 20},
    "road--llama-3.2-3B-lr_0.001": {"variant": "road_2"},
    "trainable_tokens--llama-3.2-3B-sos+eos": {"target_modules": None, "token_indices": [128000, 128001]},
    "waveft--llama-3.2-3B-n_frequency-5000": {"n_frequency": 5000},
}
METAMATH_OTHERS = {"mica", "bdlora"}  # variants of LoRA that are no method of their own: not supported


def peft_metamath(row: Row) -> Job | None:
    """Its table's figure is of the whole run, generation with 50 samples included; the 99th percentile, in the notes, is of training.
    Which length that step had is not published: 600 tokens make the full fine-tuning (peft-mm-015) right to 0.2 %, and as all rows have
    the same batches, the others can be compared."""
    if row["n_gpus"] != "1" or row["optimizer"] != "AdamW":
        return None
    training: Job = {"keep_outputs": True}
    runtime = {"torch": "2.13", "transformers": "5.13", "peft": "0.19"}
    name = row["source"].partition(": ")[2]
    if row["lora_rank_targets"]:
        match = re.match(r"(\w+) r=(\w+); targets=([\w,.]*); use_dora=(\w+)", row["lora_rank_targets"])
        if not match or "pattern" in row["notes"] + row["lora_rank_targets"] or name.rpartition("-")[2] in METAMATH_OTHERS:
            return None
        if match[1] == "LORA":
            training["lora"] = lora(int(match[2]), match[3].split(","), use_dora=match[4] == "True")
        else:
            adapter: Job = {"peft_type": match[1], "r": number(match[2]), "target_modules": match[3].split(",") if match[3] else None}
            adapter |= METAMATH.get(name, {})
            training["peft"] = {key: value for key, value in adapter.items() if value is not None}
            del runtime["peft"]  # the methods are read in 0.21 alone
            if match[1] == "SHIRA":
                training["loop"] = {"name": "step", "load": "host"}
    elif row["stage"] != "train-full":
        return None
    return job(row, 600, training, runtime)


def litgpt(row: Row) -> Job | None:
    match = re.search(r"r=(\d+)", row["lora_rank_targets"])
    sequence = 1304 if "1304" in row["seq_len"] else 512
    if row["parallelism"] != "none" or "Adapter" in row["lora_rank_targets"] or (row["stage"] != "train-full" and not match):
        return None
    training: Job = {}
    if match:
        targets = row["lora_rank_targets"].split("; ")[-1]
        wide = "mlp" in targets
        training["lora"] = lora(
            int(match[1]), [*ATTENTION, *MLP] if wide else ["q_proj", "v_proj"], dropout=0.05, autocast_adapter_dtype=False
        )
    if "nf4" in row["dtype_precision"]:
        double = "nf4-dq" in row["dtype_precision"]
        training["quantization"] = {**NF4, "bnb_4bit_use_double_quant": double, "prepare_model_for_kbit_training": False}
    elif "quant" in row["dtype_precision"]:
        return None
    return job(row, sequence, training, {})


def torchtune(row: Row) -> Job | None:
    match = re.search(r"(\d{4})", row["seq_len"])
    if not match or "in_bwd" in row["optimizer"] or "bitsandbytes" in row["optimizer"] or "offload" in row["activation_checkpointing"]:
        return None
    training: Job = {"activation_checkpointing": "non-reentrant" if row["activation_checkpointing"].startswith("true") else "none"}
    if row["stage"] != "train-full":
        if row["stage"] != "train-lora" or row["lora_rank_targets"] != "r=8; q,v":
            return None
        training["lora"] = lora(8, ["q_proj", "v_proj"], dropout=0.0, autocast_adapter_dtype=False)
    count = int(row["n_gpus"])
    if count > 1 and "fsdp" not in row["parallelism"]:
        return None
    return job(row, int(match[1]), training, {}, {"strategy": "fsdp2", "data": count} if count > 1 else None)


def fsdp_qlora(row: Row) -> Job | None:
    """Its runs without sharding. The sharded ones put adapters into FSDP units of their own, so that frozen weights need no gradient;
    with a unit a block, as oometer and accelerate have it, FSDP1 makes one for every frozen weight: another program."""
    if "ddp" not in row["parallelism"]:
        return None
    adapters = lora(64, [*ATTENTION, *MLP], dropout=0.1, autocast_adapter_dtype=False)
    training: Job = {"activation_checkpointing": "reentrant", "lora": adapters}
    if row["stage"] == "train-qlora":
        training["quantization"] = {**NF4, "prepare_model_for_kbit_training": False}
    return job(row, int(row["seq_len"]), training, {}, {"strategy": "ddp", "data": 2})


def swift(row: Row) -> Job | None:
    sequence, rank = number(row["seq_len"]), re.match(r"r=(\d+); DEFAULT \(qkv", row["lora_rank_targets"])
    if (
        not sequence
        or row["parallelism"] != "none"
        or "gptq" in row["dtype_precision"]
        or row["optimizer"] != "adamw_torch (swift default)"
    ):
        return None
    training: Job = {
        "attention": "sdpa-flash",
        "activation_checkpointing": "non-reentrant" if row["activation_checkpointing"] == "true" else "none",
    }
    if rank:
        training["lora"] = lora(int(rank[1]), ATTENTION[:3], dropout=0.05, autocast_adapter_dtype=False)
    elif row["stage"] != "train-full":
        return None
    if "bnb" in row["dtype_precision"]:
        training["quantization"] = NF4
    return job(row, sequence, training, {"torch": "2.1", "transformers": "4.37"})


def qwen_profile(row: Row) -> Job | None:
    sequence = number(row["seq_len"])
    if not sequence or row["n_gpus"] != "1" or row["stage"] != "train-lora" or row["dtype_precision"] != "bf16":
        return None
    adapters = lora(64, [*ATTENTION, *MLP], dropout=0.05, autocast_adapter_dtype=False)
    if "embedding and lm_head" in row["lora_rank_targets"]:
        adapters["modules_to_save"] = ["embed_tokens", "lm_head"]
    training = {"attention": "sdpa-flash", "activation_checkpointing": "non-reentrant", "lora": adapters}
    return job(row, sequence, training, {"torch": "2.0", "transformers": "4.37"})


def qwen_speed(row: Row) -> Job | None:
    """generate() of a prompt of so many tokens, greedy."""
    lengths = re.fullmatch(r"input (\d+) \+ generate (\d+)", row["seq_len"])
    model = model_of(row)
    if not model or not lengths or row["dtype_precision"] != "BF16" or row["n_gpus"] != "1" or "transformers" not in row["framework"]:
        return None
    return {
        "version": 1,
        "model": model,
        "task": "inference",
        "data": {"micro_batch_size": 1, "sequence_length": int(lengths[1])},
        "training": {"precision": "bf16", "attention": "sdpa-flash"},
        "inference": {"new_tokens": int(lengths[2])},
        "gpu": gpu_of(row),
    }


def long_context(row: Row) -> Job | None:
    thousands = re.match(r"(\d+)K", row["seq_len"])
    if not thousands or "zero3" not in row["parallelism"]:
        return None
    training = {"attention": "sdpa-flash", "activation_checkpointing": "non-reentrant", "liger": True}
    offload = {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}, "bf16": {"enabled": True}}
    return job(row, int(thousands[1]) * 1024, training, {}, {"strategy": "deepspeed", "data": 8, "ds_config": offload})


def nanovlm(row: Row) -> Job | None:
    """measure_vram.py's loop; its config's defaults are SigLIP2-B/16-256's and SmolLM2-135M's sizes."""
    return {
        "version": 1,
        "model": {"config": {"model_type": "nanovlm", "lm_max_length": 128}},
        "data": {"micro_batch_size": int(row["micro_batch"])},
        "training": {"optimizer": {"name": "adamw", "implementation": "foreach", "param_groups": 1}, "keep_outputs": True},
        "gpu": {"name": "h100-80gb"},
        "runtime": {"torch": "2.7"},
    }


@dataclass
class Source:
    title: str
    job_of: Callable[[Row], Job | None]
    what: str  # which of our figures the metric is: allocated, reserved or device
    same_code: bool  # the code that oometer has read runs the job; else it stands for another framework's, by analogy
    why: str  # what a row of this source leaves open


SOURCES = {
    "peft-mm": Source("PEFT method comparison", peft_metamath, "reserved", True, "The length is one that fits the full fine-tuning run (peft-mm-015), as the lengths are not published."),
    "swiftbench": Source("ms-swift benchmark", swift, "reserved", False, "Its trainer keeps more copies of the logits (what is missing grows as three to eight in fp32), lengths vary, and the table is not monotone in them; Qwen 1 is remote code, here Llama by analogy."),
    "qwenft": Source("Qwen fine-tuning profile", qwen_profile, "device", False, "By which tool it was measured is not said; Qwen 1 is remote code with fused projections, here Llama by analogy."),
    "litgpt": Source("LitGPT config hub", litgpt, "allocated", False, "Samples are padded to the longest of a batch, at most 512 tokens of Alpaca, whose longest samples are mostly shorter; LitGPT's own model and chunked loss, here transformers by analogy."),
    "litgptrt": Source("LitGPT resource tables", litgpt, "allocated", False, "The longest sample of Alpaca sets the peak; LitGPT's own model, here transformers by analogy."),
    "torchtune": Source("torchtune tables", torchtune, "allocated", False, "torchtune's own model, here transformers by analogy; its tables round to a tenth, and some do not say what is counted or how long samples were."),
    "fsdpqlora": Source("fsdp_qlora", fsdp_qlora, "reserved", False, "FSDP's NO_SHARD with its own LoRA layers, here DDP with peft's."),
    "nanovlm": Source("nanoVLM's ladder", nanovlm, "allocated", True, "The version of torch is not published, nor is the padding mask modelled that its collator makes."),
    "qwen25inf": Source("Qwen2.5 speed benchmark", qwen_speed, "allocated", False, "transformers 4.46 with the flash-attn package, here 5.23 with PyTorch's flash attention."),
    "qwen3inf": Source("Qwen3 speed benchmark", qwen_speed, "allocated", False, "After a prompt the figures are the weights, every token's cache and 33 to 48 MiB at any length, too little for a long prompt's own forward: it was not run at once, or is not counted, as it is in the Qwen2.5 benchmark's."),
    "stas": Source("Long context by ZeRO-3", long_context, "reserved", True, "Bucket sizes and Liger's switches are not published."),
}  # fmt: skip

# Rows whose figure cannot be what its configuration needs, or that another figure of the same row contradicts.
WHY = {
    **dict.fromkeys(
        ("peft-mm-001", "peft-mm-016", "peft-mm-017", "peft-mm-021", "peft-mm-022"),
        "One length, 600 tokens, stands for all: how well the allocator's blocks of other steps fit decides what is reserved. Ten steps of random lengths "
        "reserved 9 to 13 % more than one length for (IA)3, 7 to 12 % for LoRA; the other methods were not run so.",
    ),
    "litgpt-016": "8.70 GB is less than the weights, gradients and both moments of 1.24 billion parameters in bf16 (9.9 GB): the published configuration differs from the run's.",
    "litgpt-019": "16.51 GB is less than the weights, gradients and both moments of 3.2 billion parameters in bf16 (25.7 GB): the published configuration differs from the run's.",
    "torchtune-021": "Without checkpointing, what 4 x 2048 tokens keep for backward alone is more than 16.2 GB: the run checkpointed, or its samples were far shorter.",
}


def bytes_of(row: Row, source: Source) -> tuple[str, int] | None:
    """Which figure, and how many bytes."""
    if row["id"].startswith("peft-mm"):  # the whole run's includes generation; the notes have training's 99th percentile
        match = re.search(r"reserved_p99=(\d+) B", row["notes"])
        return ("reserved", int(match[1])) if match else None
    unit = UNITS.get(row["unit"]) or (GIB if row["unit"] == "GB" else None)
    if not unit or not re.fullmatch(r"[\d.]+", row["memory_value"]):
        return None
    what = (
        "reserved"
        if "reserved" in row["metric"]
        else "allocated"
        if "allocated" in row["metric"] or "active" in row["metric"]
        else source.what
    )
    return what, round(float(row["memory_value"]) * unit)


def rows(table: Path) -> Iterator[dict[str, Any]]:
    with table.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            source = SOURCES.get(row["id"].rsplit("-", 1)[0])
            if not source or row["completeness"] == "C":
                continue
            made, measured = source.job_of(row), bytes_of(row, source)
            if made and measured:
                yield {
                    "name": row["id"],
                    "source": source.title,
                    "citation": f"{row['url_or_repo_path']}: {row['memory_value']} {row['unit']}, {row['metric']}",
                    "same_code": source.same_code,
                    "complete": row["completeness"] == "A",
                    "job": made,
                    "measured": {measured[0]: measured[1]},
                    "why": WHY.get(row["id"], source.why),
                }


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    OUT.write_text("".join(json.dumps(row) + "\n" for row in rows(Path(sys.argv[1]))))
