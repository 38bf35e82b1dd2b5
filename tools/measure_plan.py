"""Measures a plan of jobs on the GPU at hand, unattended.

    measure_plan.py OUT.jsonl [--limit SECONDS] [--only TEXT] [--snapshots FOLDER] [--list]

The plan is below: whole jobs first, what is worth most at the head. Each job runs in a fork of its own: random weights made
on the device, nothing downloaded. One line a job, as tests/measured/README.md has it; running
out of memory is a measurement. Jobs that stand in OUT.jsonl already are passed over, and none is started that the limit
would cut, so the file is whole whenever this stops. Needs torch, transformers and peft; pynvml for what lies outside
PyTorch's allocator; torchvision for its models.

A document of the plan is what measure.py reads: a job; with `lengths`, one step of each; with `spec`, a module by its callable, which is a
graph to oometer (`python` of the line says what to export). With `probe` it has no job: probe.py runs.
"""

from __future__ import annotations

import argparse
import copy
import datetime
import json
import multiprocessing
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import measure
import probe
from step.imports import import_for_forks

Job = dict[str, Any]
SHORTEST = 15  # seconds: building a model and a few steps take no less


def job(model: str, batch: int, length: int | None = None, **training: Any) -> Job:
    training["optimizer"] = training["optimizer"] | {"param_groups": 1}  # as measure.py makes them
    data = {"micro_batch_size": batch} | ({"sequence_length": length} if length else {})
    return {"version": 1, "model": {"preset": model}, "data": data, "training": training}


def with_layers(of: Job, layers: int, part: str = "text_config") -> Job:
    """The same with fewer layers of the language model, so that every length and batch fits."""
    fewer = copy.deepcopy(of)
    given = {"num_hidden_layers": layers}
    fewer["model"]["config"] = {part: given} if part else given
    return fewer


def with_data(of: Job, **data: Any) -> Job:
    return of | {"data": of["data"] | data}


def expandable(of: Job) -> Job:
    return of | {"runtime": {"expandable_segments": True}}


def generation(model: str, batch: int, prompt: int, **inference: Any) -> Job:
    data = {"micro_batch_size": batch, "sequence_length": prompt}
    return {"version": 1, "model": {"preset": model}, "task": "inference", "data": data, "inference": inference}


def module(python: str, arguments: Job, inputs: dict[str, tuple[list[int], str]], batch: int, optimizer: str = "adamw") -> Job:
    """A module of one's own. It classifies what it gets where that has no name of a target."""
    from graph_cases import OPTIMIZERS, spec_of

    training = {"precision": "fp32", "optimizer": OPTIMIZERS[optimizer] | {"param_groups": 1}}
    return {
        "job": {"version": 1, "data": {"micro_batch_size": batch}, "training": training},
        "spec": spec_of(python, arguments, inputs, batch, optimizer, classifies="targets" not in inputs),
        "python": {"callable": python, "arguments": arguments, "inputs": inputs},
    }


# Presets, layers that are kept (all where there is no number; or what else of its config says so), micro-batch and sequence.
FAMILIES: list[tuple[str, int | Job | None, int, int]] = [
    ("falcon-7b", None, 1, 2048),
    ("jamba-1.5-mini", 8, 1, 512),
    ("mamba-1.4b", None, 1, 512),
    ("falcon-mamba-7b", 16, 1, 512),
    ("phi-3.5-moe", 2, 2, 2048),
    ("solar-open-100b", 2, 2, 2048),
    ("nanochat-d32", None, 2, 2048),
    ("trinity-mini", {"num_hidden_layers": 8}, 2, 2048),
    ("starcoderbase-1b", None, 2, 2048),
    ("persimmon-8b", 12, 2, 2048),
    ("internlm3-8b", 16, 2, 2048),
    ("eurobert-610m", None, 8, 1024),
    ("mpnet-base", None, 16, 512),
    ("nomic-embed-text-v1.5", {"architectures": ["NomicBertForMaskedLM"]}, 16, 1024),
    ("mimo-v2-flash", 2, 1, 2048),
    ("cwm", 4, 1, 4096),
    ("youtu-llm-2b", None, 2, 2048),
    ("gte-multilingual-base", {"architectures": ["GteForMaskedLM"]}, 16, 1024),
    ("deepseek-v4-flash", 2, 1, 2048),
    ("gpt-oss-20b", 4, 2, 2048),
    ("gemma-4-e2b", None, 2, 2048),
    ("qwen3.5-35b-a3b-text", 4, 2, 1024),
    ("llama-4-scout-text", 2, 2, 2048),
    ("granite-4.0-h-tiny", None, 2, 1024),
    ("nemotron-3-nano-30b-a3b", {"num_hidden_layers": 9, "hybrid_override_pattern": "MEMEM*EME"}, 2, 1024),
    ("falcon-h1-1.5b", None, 2, 1024),
    ("glm-4.7-flash", 4, 2, 2048),
    ("minimax-m2.5", 2, 2, 2048),
    ("mistral-small-4-119b-text", 2, 2, 2048),
    ("ernie-4.5-21b-a3b", {"num_hidden_layers": 4, "moe_layer_end_index": 3}, 2, 2048),
    ("lfm2-8b-a1b", None, 2, 2048),
    ("dots.llm1", 3, 2, 2048),
    ("hunyuan-a13b", 2, 2, 2048),
    ("mamba-codestral-7b", 8, 1, 1024),
    ("olmo-3-7b", None, 2, 2048),
    ("phi-3-mini", None, 2, 2048),
    ("granite-3.3-2b", None, 2, 2048),
    ("glm-4-9b-0414", None, 1, 2048),
    ("exaone-4.0-1.2b", None, 2, 2048),
    ("apertus-8b", 8, 2, 2048),
    ("starcoder2-3b", None, 2, 2048),
    ("gemma-2-2b", None, 2, 2048),
    ("gpt2-medium", None, 8, 1024),
    ("bloom-560m", None, 4, 1024),
    ("deberta-v3-base", None, 16, 512),
    ("electra-base", None, 32, 512),
    ("qwen3-30b-a3b", 3, 2, 2048),
    ("qwen3.5-0.8b", None, 1, 1024),
    ("gemma-3-1b", None, 2, 2048),
    ("qwen3-0.6b", None, 4, 2048),
    ("deepseek-v2-lite", 3, 2, 2048),
    ("mixtral-8x7b", 2, 2, 2048),
    ("olmoe-1b-7b", 4, 2, 2048),
    ("qwen3-next-80b-a3b", 4, 2, 1024),
    ("lfm2-1.2b", None, 2, 2048),
    ("glm-4.5-air", 2, 2, 2048),
    ("phi-4", 4, 2, 2048),
    ("olmo2-1b", None, 2, 2048),
    ("smollm3-3b", 8, 2, 2048),
    ("command-r7b", 4, 2, 2048),
    ("opt-1.3b", None, 4, 1024),
    ("pythia-1.4b", None, 4, 1024),
    ("bert-base", None, 32, 512),
    ("modernbert-base", None, 16, 512),
    ("t5-base", None, 8, 512),
    ("bart-base", None, 16, 512),
    ("qwen2.5-7b", 4, 3, 1536),
    ("qwen3-8b", 6, 2, 4096),
]

# Models that see or hear: layers of the language model, micro-batch, sequence, what else the data are.
SEEING: list[tuple[str, int | None, int, int, Job]] = [
    ("qwen3-vl-2b", None, 2, 1536, {"image_size": [672, 896]}),
    ("gemma-3-4b", None, 2, 1536, {}),
    ("qwen2.5-omni-7b-thinker", 8, 2, 1536, {"image_size": [448, 672], "audios_per_sample": 0}),
    ("internvl3-2b", None, 2, 1536, {}),
    ("llava-onevision-0.5b", None, 1, 4096, {}),
    ("gemma-4-e4b", None, 1, 1536, {"images_per_sample": 0}),
    ("llama-3.2-11b-vision", None, 1, 1024, {}),
    ("mistral-small-3.1-24b", 6, 1, 2048, {"image_size": [616, 924]}),
    ("paligemma2-3b-pt-224", None, 4, 512, {}),
    ("idefics3-8b", 8, 1, 2048, {"tiles": 5}),
    ("lfm2-vl-450m", None, 2, 1024, {}),
    ("glm-4.1v-9b", 8, 1, 2048, {"image_size": [672, 896]}),
    ("qwen3-vl-30b-a3b", 4, 1, 1536, {"image_size": [672, 896]}),
    ("llava-v1.6-mistral-7b", None, 1, 3072, {}),
    ("aya-vision-8b", 8, 1, 2048, {}),
    ("voxtral-mini-3b", None, 2, 1024, {}),
    ("qwen2-audio-7b", None, 1, 1024, {}),
    ("whisper-small", None, 8, 448, {}),
    ("wav2vec2-base", None, 8, 100, {"audio_seconds": 10}),
]


def seeing(optimizer: Job) -> Iterator[tuple[str, Job]]:
    for preset, layers, batch, length, data in SEEING:
        whole = with_data(job(preset, batch, length, optimizer=optimizer), **data)
        yield f"{preset}-media", with_layers(whole, layers) if layers else whole


def quantized(optimizer: Job) -> Iterator[tuple[str, Job]]:
    """QLoRA, as people fit a model on one GPU."""
    nf4 = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True, "bnb_4bit_compute_dtype": "bfloat16"}
    lora = {"rank": 16, "alpha": 32, "target_modules": "all-linear"}
    more = {"quantization": nf4, "lora": lora, "activation_checkpointing": "non-reentrant"}
    for preset, layers, batch, length in (("qwen3-8b", 4, 4, 2048), ("gemma-3-1b", 26, 4, 2048), ("qwen3-30b-a3b", 2, 1, 2048)):
        yield f"{preset}-qlora-checkpointed", with_layers(job(preset, batch, length, optimizer=optimizer, **more), layers, "")


def families(optimizer: Job) -> Iterator[tuple[str, Job]]:
    """The models that people train now, shortened where a layer is like the next; twice each, plain and checkpointed with LoRA."""
    lora = {"rank": 16, "alpha": 32, "target_modules": "all-linear"}
    for preset, layers, batch, length in FAMILIES:
        whole = job(preset, batch, length, optimizer=optimizer)
        if isinstance(layers, dict):
            whole["model"]["config"] = layers
        yield preset, with_layers(whole, layers, "") if isinstance(layers, int) else whole
    for preset in ("qwen3-8b", "phi-4", "olmo2-7b", "smollm3-3b", "qwen2.5-7b"):
        more = {"lora": lora, "activation_checkpointing": "non-reentrant"}
        yield f"{preset}-lora-checkpointed", job(preset, 4, 2048, optimizer=optimizer, **more)
    for preset in ("vit-base-patch16-224", "dinov2-base"):
        yield preset, job(preset, 64, optimizer=optimizer)


def plan() -> Iterator[tuple[str, Job]]:
    """Names and documents, the most valuable first."""
    llava, fused = "llava-1.5-7b", {"name": "adamw", "implementation": "fused"}
    checkpointed = {"activation_checkpointing": "non-reentrant", "optimizer": fused}
    lora = {"rank": 128, "alpha": 256, "dropout": 0.05, "target_modules": "all-linear"}
    yield "llava-finetune-checkpointed-s2048-b8", job(llava, 8, 2048, stage="finetune", **checkpointed)
    yield "llava-finetune-s2048-b4", job(llava, 4, 2048, stage="finetune", optimizer=fused)
    yield "llava-finetune-s2048-b16", job(llava, 16, 2048, stage="finetune", optimizer=fused)  # runs out of memory
    yield "llava-pretrain-s2048-b8", job(llava, 8, 2048, stage="pretrain", optimizer=fused)
    yield "llava-lora-s2048-b4", job(llava, 4, 2048, stage="finetune", optimizer=fused, lora=lora)
    yield "llava-lora-checkpointed-s2048-b8", job(llava, 8, 2048, stage="finetune", lora=lora, **checkpointed)
    yield "llava-sgd-s2048-b8", job(llava, 8, 2048, stage="finetune", optimizer={"name": "sgd"})
    yield "llava-foreach-s2048-b2", job(llava, 2, 2048, stage="finetune", optimizer={"name": "adamw", "implementation": "foreach"})
    yield "llava-expandable-s2048-b4", expandable(job(llava, 4, 2048, stage="finetune", optimizer=fused))
    yield from seeing(fused)
    yield from families(fused)
    yield from quantized(fused)
    # The paper's two settings over lengths and batches, with eight layers.
    for stage in ("finetune", "pretrain"):
        for length, batch in ((1024, 16), (2048, 8), (2048, 16), (1024, 4), (4096, 4), (717, 3)):
            yield f"llava-8-layers-{stage}-s{length}-b{batch}", with_layers(job(llava, batch, length, stage=stage, optimizer=fused), 8)
    # Kernels and formats.
    for attention in ("eager", "sdpa-flash", "sdpa-efficient", "sdpa-cudnn", "sdpa-math"):
        yield f"vicuna-4-layers-{attention}", with_layers(job("vicuna-7b-v1.5", 4, 2048, attention=attention, optimizer=fused), 4, "")
    for precision in ("fp32", "fp16", "amp-bf16", "amp-fp16"):
        yield f"vicuna-4-layers-{precision}", with_layers(job("vicuna-7b-v1.5", 4, 1024, precision=precision, optimizer=fused), 4, "")
        yield f"clip-{precision}", job("clip-vit-l-14-336", 16, 77, precision=precision, optimizer=fused)
    # Other models.
    yield "llama-3-8-layers", with_layers(job("llama-3-8b", 4, 2048, optimizer=fused), 8, "")
    yield "qwen2.5-8-layers", with_layers(job("qwen2.5-7b", 4, 2048, optimizer=fused), 8, "")
    yield "clip-vit-l-14", job("clip-vit-l-14", 64, 77, optimizer=fused)
    yield "qwen2-vl-2b", with_data(job("qwen2-vl-2b", 2, 1024, optimizer=fused), image_size=[448, 672])
    yield "qwen2.5-vl-3b-checkpointed", with_data(job("qwen2.5-vl-3b", 2, 2048, **checkpointed), image_size=[896, 672])
    yield "smolvlm-500m", with_data(job("smolvlm-500m", 2, 1536, optimizer=fused), tiles=5)
    # What comes after training, and what a long run does to the allocator.
    for implementation in ("dynamic", "static"):
        cache = {"implementation": implementation}
        yield f"vicuna-generation-{implementation}", generation("vicuna-7b-v1.5", 4, 1024, new_tokens=64, cache=cache)
    yield "llava-generation", generation(llava, 2, 1024, new_tokens=64)
    lengths = [512 + 37 * (i * 29 % 42) for i in range(40)]  # up to 2,029, in no order
    longest = with_layers(job(llava, 4, max(lengths), stage="finetune", optimizer=fused), 8)
    why = "lengths change from step to step; the job is the longest one's"
    for name, document in (("", longest), ("-expandable", expandable(longest))):
        yield f"llava-8-layers-lengths{name}", {"job": document, "lengths": lengths, "why": why}
    # What lies outside the allocator.
    for cause in probe.PROBES:
        yield f"probe-{cause}", {"probe": cause}
    # Any module by its graph.
    for name, side, batch in (("resnet50", 224, 64), ("vit_b_16", 224, 64), ("convnext_tiny", 224, 64), ("mobilenet_v2", 224, 128)):
        for optimizer in ("adamw", "sgd"):
            images = {"x": ([3, side, side], "float32")}
            yield f"{name}-{optimizer}", module(f"torchvision.models:{name}", {}, images, batch, optimizer)
    for seed in range(4):
        yield f"mlp-{seed}", module("graph_cases:random_mlp", {"seed": seed}, {"x": ([3, 8, 8], "float32")}, 4096)
    speech = {"input_features": ([80, 3000], "float32"), "decoder_input_ids": ([128], "int64"), "targets": ([128], "int64")}
    yield "whisper-tiny", module("graph_modules:Speech", {}, speech, 8)
    for implementation in ("fused", "foreach", "for-loop"):
        optimizer = {"name": "adamw", "implementation": implementation}
        yield f"vicuna-4-layers-{implementation}", with_layers(job("vicuna-7b-v1.5", 2, 512, optimizer=optimizer), 4, "")
    yield (
        "vicuna-4-layers-accumulated",
        with_layers(job("vicuna-7b-v1.5", 2, 512, optimizer=fused, gradient_accumulation_steps=4, max_grad_norm=1), 4, ""),
    )


def line(name: str, document: Job, result: dict[str, Any], seconds: float) -> dict[str, Any]:
    given = document.get("job", document)
    versions = {key: result[key] for key in ("torch", "transformers", "cuda")}
    measured = {}
    if "out_of_memory" not in result:
        measured = {"allocated": result["max_memory_allocated"], "reserved": result["max_memory_reserved"]}
        if result["idle"] and result["used_after"]:
            measured["device"] = result["used_after"]["used"] - result["idle"]["used"]
    where = {
        "gpu": measure.gpu_of(result["device"], result["usable_bytes"], *result["compute_capability"]),
        "runtime": given.get("runtime", {}) | {key: short(versions[key]) for key in ("torch", "transformers")},
    }
    row = {
        "name": name,
        "source": f"{result['device'].split()[1]} jobs",
        "citation": "tools/measure_plan.py",
        "job": given | where,
        "measured": measured,
    }
    row |= {key: document[key] for key in ("lengths", "python", "why") if key in document}
    row |= {key: result[key] for key in ("device", "phases", "idle", "context_only", "step_seconds", "out_of_memory") if key in result}
    return row | {"versions": versions, "seconds": round(seconds), "date": datetime.date.today().isoformat()}


def short(version: str) -> str:
    """2.15.0+cu132 as a job names it: 2.15."""
    return ".".join(version.split("+", maxsplit=1)[0].split(".")[:2])


def probed(cause: str, seconds: float | None) -> dict[str, Any]:
    """Raises where the probe fails or takes too long."""
    done = subprocess.run([sys.executable, probe.__file__, cause], capture_output=True, text=True, check=True, timeout=seconds)
    return json.loads(done.stdout)


def measured(document: Job, snapshot: Path | None, answer: Connection) -> None:
    """The work of a fork, which begins CUDA itself: sends what was measured, or a traceback."""
    try:
        if document.get("job", document).get("runtime", {}).get("expandable_segments"):
            import torch

            torch.cuda.memory._set_allocator_settings("expandable_segments:True")
        answer.send(measure.measured_here("gpu", document, str(snapshot) if snapshot else None))
    except BaseException:
        answer.send(traceback.format_exc(limit=-3))
    os._exit(0)


def in_a_fork(document: Job, seconds: float | None, snapshot: Path | None) -> dict[str, Any]:
    """Measures in a fork of this process, which has imported everything (10 s and more) and never spoken to CUDA."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    work = multiprocessing.get_context("fork").Process(target=measured, args=(document, snapshot, theirs))
    work.start()
    theirs.close()
    try:
        if not ours.poll(seconds):
            raise TimeoutError("the limit came first")
        result = ours.recv()
    finally:
        work.kill()
        work.join()
    if isinstance(result, str):
        raise RuntimeError(result)
    return result


def run(name: str, document: Job, seconds: float | None, snapshots: Path | None) -> dict[str, Any] | None:
    """The document's line; none, and a word on why, where it took too long or failed."""
    began = time.monotonic()
    try:
        if "probe" in document:
            return {"name": name, "source": "oometer", **document, **probed(document["probe"], seconds)}
        result = in_a_fork(document, seconds, snapshots / f"{name}.pickle" if snapshots else None)
    except (OSError, EOFError, RuntimeError, subprocess.SubprocessError) as error:
        print(f"{name}: {str(error)[-600:]}", file=sys.stderr, flush=True)
        return None
    return line(name, document, result, time.monotonic() - began)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("out", type=Path)
    arguments.add_argument("--limit", type=float, default=float("inf"), help="seconds; default: until the plan is done")
    arguments.add_argument("--only", default="", help="of the plan, what has this in its name")
    arguments.add_argument("--list", action="store_true", help="name the jobs, measure nothing")
    arguments.add_argument("--snapshots", type=Path, help="a folder for each job's memory snapshot, NAME.pickle: some take 100 MB")
    given = arguments.parse_args()
    end = time.monotonic() + given.limit
    if not given.list:
        models = ("LlamaForCausalLM", "LlavaForConditionalGeneration", "Qwen2_5_VLForConditionalGeneration")
        import_for_forks("peft.get_peft_model", *(f"transformers.{model}" for model in models))
    done = {json.loads(row)["name"] for row in given.out.read_text().splitlines()} if given.out.exists() else set()
    for name, wanted in plan():
        if given.only not in name or name in done:
            continue
        if given.list:
            print(name)
            continue
        if end - time.monotonic() < SHORTEST:
            break
        row = run(name, wanted, end - time.monotonic() if given.limit < float("inf") else None, given.snapshots)
        if row is None:
            continue
        with given.out.open("a") as out:
            out.write(json.dumps(row) + "\n")
        print(f"{name}: {row.get('measured', row)}{' OUT OF MEMORY' if 'out_of_memory' in row else ''}", flush=True)


if __name__ == "__main__":
    main()
