#!/usr/bin/env python3
"""Classes of transformers, tiny, as `export_graph.py --hf` writes them: tests/reference/graphs_transformers.jsonl.

transformers_cases.py FILE.jsonl --check                      # exports them all again: the same graphs; needs torch and transformers
transformers_cases.py FILE.jsonl --ghost DIR [--only NAME]    # records them, with what training them takes on the ghost
transformers_cases.py TRACE.jsonl --ghost DIR --trace NAME    # one case's log, for trace_diff.py
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

Config = dict[str, Any]
TOKENS = {"vocab_size": 128, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
TEXT = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, **TOKENS}
IMAGES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 32, "patch_size": 8}
LAYERS = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 16, "head_dim": 16}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}


def text(model_type: str, **more: Any) -> Config:
    return {"model_type": model_type, **TEXT, **more}


MAMBA_2 = {"hidden_size": 64, "num_hidden_layers": 2, "num_heads": 8, "head_dim": 16, "state_size": 16, "n_groups": 2, "chunk_size": 16}
DELTA_NET = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16}
HYBRID = {"layer_types": ["linear_attention", "full_attention"], "head_dim": 16, "shared_expert_intermediate_size": 32}
BART = {"d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96, "decoder_start_token_id": 2}
CASES: dict[str, tuple[str, Config]] = {
    "llama": ("causal-lm", text("llama")),
    "llava": (
        "image-text-to-text",
        {
            "model_type": "llava",
            "text_config": text("llama"),
            "vision_config": {"model_type": "clip_vision_model", **IMAGES},
            "image_token_index": 3,
        },
    ),
    "gpt2": ("causal-lm", {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, **TOKENS}),
    "phi3": ("causal-lm", text("phi3")),
    "gemma2": ("causal-lm", text("gemma2", **LAYERS)),
    "gemma3": ("causal-lm", text("gemma3_text", **LAYERS)),
    "olmo2": ("causal-lm", text("olmo2")),
    "mixtral": ("causal-lm", text("mixtral", num_local_experts=4, num_experts_per_tok=2)),
    "qwen3_next": ("causal-lm", text("qwen3_next", **DELTA_NET, **HYBRID, **EXPERTS)),
    "mamba2": ("causal-lm", {"model_type": "mamba2", **MAMBA_2, **TOKENS}),
    "bert": ("masked-lm", text("bert")),
    "mistral": ("causal-lm", text("mistral", sliding_window=16)),
    "qwen3": ("causal-lm", text("qwen3", head_dim=16)),
    "qwen3_moe": ("causal-lm", text("qwen3_moe", head_dim=16, **EXPERTS)),
    "gpt_oss": ("causal-lm", text("gpt_oss", num_local_experts=4, num_experts_per_tok=2, **LAYERS)),
    "gpt_neox": ("causal-lm", text("gpt_neox")),
    "opt": (
        "causal-lm",
        {
            "model_type": "opt",
            "hidden_size": 64,
            "ffn_dim": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "word_embed_proj_dim": 64,
            **TOKENS,
        },
    ),
    "falcon": ("causal-lm", text("falcon")),
    "cohere": ("causal-lm", text("cohere")),
    "glm4": ("causal-lm", text("glm4", head_dim=16)),
    "t5": (
        "seq2seq-lm",
        {"model_type": "t5", "d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0, **TOKENS},
    ),
    "bart": ("seq2seq-lm", {"model_type": "bart", "encoder_attention_heads": 4, "decoder_attention_heads": 4, **BART, **TOKENS}),
    "roberta": ("sequence-classification", text("roberta", num_labels=3, max_position_embeddings=130)),
    "modernbert": ("masked-lm", text("modernbert", cls_token_id=1, sep_token_id=2, local_attention=16)),
    "electra": ("question-answering", text("electra")),
    "deberta": ("token-classification", text("deberta-v2", num_labels=3)),
    "vit": ("image-classification", {"model_type": "vit", **IMAGES, "num_labels": 10}),
    "dinov2": ("image-classification", {"model_type": "dinov2", **IMAGES, "num_labels": 10}),
}
SEQUENCE, BATCH = 48, 3
ONE_BATCH = {"llava"}  # torch.cat(list(features)): as many operands as images


def exported(name: str) -> tuple[Any, dict[str, Any]]:
    """The model on the meta device, and its graph."""
    import export_graph

    task, config = CASES[name]
    batch = (BATCH,) if name in ONE_BATCH else (2, 3)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(config))
        model = export_graph.from_transformers(str(path), task, "bfloat16")
        out = Path(folder) / "graph.json"
        export_graph.export_graph(model, lambda size: export_graph.inputs_of_task(model, task, SEQUENCE, size), out, batch)
        return model, json.loads(out.read_text())


def spec_of(task: str, config: Config, model: Any) -> dict[str, Any]:
    """The same training, as step/ reads it."""
    import export_graph
    from step.spec import tensor

    inputs = export_graph.inputs_of_task(model, task, SEQUENCE, BATCH)
    given = {key: value for key, value in config.items() if key != "model_type"}
    return {
        "model": {"class": type(model).__name__, "config_class": type(model.config).__name__, "config": given},
        "train": {"precision": "bf16", "optimizer": "adamw", "opt_impl": "foreach", "attn": model.config._attn_implementation},
        "inputs": {name: tensor(list(t.shape), str(t.dtype).removeprefix("torch.")) for name, t in inputs.items()},
    }


def measured(spec: dict[str, Any], trace: Path | None = None) -> dict[str, Any]:
    import real_trace
    from step.device_values import route_evenly

    route_evenly()
    rows = real_trace.run(spec, trace)
    phases: dict[int, dict[str, Any]] = {1: {}, 2: {}}
    for row in rows:
        iteration, phase = row.pop("iteration"), row.pop("phase")
        phases.get(iteration, {})[phase] = row
    return {"iterations": [{"phases": phases[i]} for i in (1, 2)]}


def counted(spec: dict[str, Any]) -> dict[str, int]:
    """In a process of its own: FlopCounterMode is a dispatch mode, which changes what PyTorch allocates."""
    import flops
    from step.device_values import route_evenly

    route_evenly()
    return flops.count(spec)


def check(file: Path) -> int:
    import torch
    import transformers

    lines = [json.loads(line) for line in file.read_text().splitlines()]
    with_versions = lines[0]["transformers"], lines[0]["graph"]["torch"].split("+")[0]
    here = transformers.__version__, torch.__version__.split("+")[0]
    if here != with_versions:
        print(f"skipped: recorded with transformers {with_versions[0]} and torch {with_versions[1]}; here are {here[0]} and {here[1]}")
        return 0
    failed = []
    for line in lines:
        _, graph = exported(line["name"])
        graph["torch"] = line["graph"]["torch"]
        print(f"{line['name']}: {'the same graph' if graph == line['graph'] else 'ANOTHER GRAPH'}", flush=True)
        failed += [line["name"]] if graph != line["graph"] else []
    return 1 if failed or {line["name"] for line in lines} != set(CASES) else 0


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("file", type=Path)
    arguments.add_argument("--check", action="store_true")
    arguments.add_argument("--ghost", help="the folder of the ghost's libraries (or GHOST_DIR)")
    arguments.add_argument("--only", default="", help="cases whose name begins so")
    arguments.add_argument("--trace", metavar="NAME")
    given = arguments.parse_args()
    os.environ["TRANSFORMERS_DISABLE_TORCH_CHECK"] = "1"  # as the ghost has it
    if os.environ.get("PYTHONHASHSEED") != "0":  # rotary embeddings go through set(layer_types), in an order of each process's own
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | {"PYTHONHASHSEED": "0"})
    if given.check:
        if missing := [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]:
            print(f"skipped: {' and '.join(missing)} not installed")
            return 0
        return check(given.file)
    from step.ghost import enter_ghost

    enter_ghost(given.ghost)
    import transformers

    from flops import apart

    if given.trace:
        measured(spec_of(*CASES[given.trace], exported(given.trace)[0]), given.file)
        return 0
    with given.file.open("w") as out:
        for name, (task, config) in CASES.items():
            if not name.startswith(given.only):
                continue
            model, graph = exported(name)
            spec = spec_of(task, config, model)
            truth = apart(lambda spec=spec: measured(spec), "80") | {"flops": apart(lambda spec=spec: counted(spec), "80")}
            training = {"precision": "bf16", "optimizer": {"name": "adamw", "implementation": "foreach", "param_groups": 1}}
            job = {"data": {"micro_batch_size": BATCH}, "training": training, "gpu": {"name": "a100-80gb"}, "runtime": {"cudnn": False}}
            line = {"name": name, "task": task, "config": config, "transformers": transformers.__version__, "graph": graph}
            line["cases"] = [{"name": "adamw", "job": job, "truth": truth}]
            print(name, flush=True)
            out.write(json.dumps(line, separators=(",", ":")) + "\n")
            out.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
