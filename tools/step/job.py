"""From an oometer job to a spec."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from step.batch import PAIRS, idefics3_tiles, images_of, inputs_of, processors_own
from step.spec import CLASSES, DTYPES, GRIDS, MINICPM_V, QWEN3_VL, WAVEFORMS, Spec, tensor

PRESETS = Path(__file__).resolve().parents[2] / "presets"
# Names in published files that transformers has no class of: the class and the config that it takes.
PUBLISHED = {"InternLM3ForCausalLM": {"class": "LlamaForCausalLM", "config_class": "InternLM3Config"}}
# The dotted names of a model's tower and projector.
PARTS = {
    "smolvlm": ("vision_model", "connector"),
    "idefics3": ("vision_model", "connector"),
    "idefics2": ("vision_model", "connector"),
    "mllama": ("vision_model", "multi_modal_projector"),
    "kimi_k25": ("vision_tower", "mm_projector"),
    "lfm3_vl": ("vision_tower", "multi_modal_projector"),
    "lighton_ocr": ("vision_encoder", "vision_projection"),
    "llama4": ("vision_model", "multi_modal_projector"),
    "muse_glimmer": ("vision_tower", "vision_projection"),
    "paddleocr_vl": ("visual", "projector"),
    "deepseek_vl": ("vision_model", "aligner"),
    "kosmos-2.5": ("vision_model", "image_to_text_projection"),
    "janus": ("vision_model", "aligner"),
    "gemma3n": ("vision_tower", "embed_vision"),
    "video_llava": ("image_tower", "multi_modal_projector"),
    **{kind: ("vision_tower", "merger") for kind in MINICPM_V},
    "ovis2": ("vision_tower", "visual_embeddings_table"),
}
QWEN3_VL_FROZEN = ["visual.pos_embed", "visual.patch_embed", "visual.blocks", "visual.deepstack_merger_list"]  # LLaMA-Factory's tower
QWEN_VL_STAGES: dict[str, dict[str, list[str]]] = {
    "pretrain": {"only": ["visual.merger"]},
    "finetune": {"freeze": ["visual.patch_embed", "visual.blocks"]},
    "full": {},
}


def precision_of(given: str | dict[str, str]) -> str:
    """As a spec spells it; of types apart only weights in half precision under autocast to it."""
    if isinstance(given, str):
        return given.replace("-", "_")
    if given not in ({"weights": "bf16", "autocast": "bf16"}, {"weights": "fp16", "autocast": "fp16"}):
        raise SystemExit(f"precision {given} is not recorded yet")
    return f"{given['weights']}_in_autocast"


def config_of(model: dict[str, Any]) -> dict[str, Any]:
    """A job's model as a config.json: its preset's, and what the job has of its own."""
    config: dict[str, Any] = {}
    if "preset" in model:
        found = [p for p in PRESETS.rglob("*.json") if p.stem == model["preset"]]
        if not found:
            raise SystemExit(f"no preset called {model['preset']} under {PRESETS}")
        preset = json.loads(found[0].read_text())
        config = preset.get("config", preset)
    return merged(config, model.get("config", {}))


def model_of(job: dict[str, Any]) -> dict[str, Any]:
    config = config_of(job["model"])
    architectures = config.pop("architectures", None)
    name = architectures[0] if architectures else CLASSES.get(config.get("model_type", ""))
    if not name:
        raise SystemExit("the model's class is not known: give config.architectures")
    out = PUBLISHED.get(name, {"class": name}) | {"config": config}
    if job.get("runtime", {}).get("experts"):
        out["experts"] = job["runtime"]["experts"]
    if job.get("runtime", {}).get("kernels", "torch") != "torch":
        out["kernels"] = job["runtime"]["kernels"]
    return out


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    out = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(out.get(key), dict)
        out[key] = merged(out[key], value) if both else value
    return out


def stage_of(stage: str, kind: str) -> dict[str, list[str]]:
    tower, projector = PARTS.get(kind, ("vision_tower", "multi_modal_projector"))
    no_grad = {"no_grad": [tower if kind == "llama4" else f"model.{tower}"]}
    return {"pretrain": {"only": [projector], **no_grad}, "finetune": {"freeze": [tower], **no_grad}, "full": {}}[stage]


def spec_of(document: dict[str, Any]) -> Spec:
    if "spec" in document:
        return dict(document["spec"])
    if "job" not in document and "model" in document and "class" in document["model"]:
        return document
    job = document.get("job", document)
    data, model = job.get("data", {}), model_of(job)
    training, parallel = job.get("training", {}), job.get("parallel", {})
    optimizer = training.get("optimizer", {})
    attention = training.get("attention", "sdpa")
    stage = training.get("stage", "full")
    name = optimizer.get("name", "adamw")
    train: dict[str, Any] = {
        "precision": precision_of(training.get("precision", "bf16")),
        "optimizer": "sgd_momentum" if name == "sgd" and optimizer.get("momentum") else name,
        "optimizer_args": optimizer.get("args", {}),
        "opt_impl": optimizer.get("implementation", "foreach" if "." in name else "fused"),
        "paged": optimizer.get("paged", False),
        **checkpointing_of(training.get("activation_checkpointing", "none")),
        "attn": attention.split("-")[0],
        "stage": stage,
    }
    if "-" in attention:
        train["sdpa_kernel"] = attention.split("-")[1]
    if training.get("max_grad_norm"):
        train["clip_grad"] = training["max_grad_norm"]
    if training.get("gradient_accumulation_steps", 1) > 1:
        train["gradient_accumulation_steps"] = training["gradient_accumulation_steps"]
    if stage == "custom":
        keys = (("freeze", "freeze"), ("only", "train_only"), ("no_grad", "no_grad"))
        train |= {ours: training[theirs] for ours, theirs in keys if training.get(theirs)}
    elif model["config"].get("model_type") in GRIDS and model["config"]["model_type"] not in PARTS:
        train |= QWEN_VL_STAGES[stage]
        if model["config"].get("model_type") in QWEN3_VL and stage == "finetune":
            train["freeze"] = QWEN3_VL_FROZEN
    elif model["config"].get("model_type") in WAVEFORMS:
        train["freeze_feature_encoder"] = stage == "finetune"
    elif "vision_config" in model["config"]:
        train |= stage_of(stage, model["config"].get("model_type", ""))
    if training.get("lora"):
        lora = training["lora"]
        train["lora"] = {"r": lora.get("rank", 8), "lora_alpha": lora.get("alpha", 8), "lora_dropout": lora.get("dropout", 0.0)}
        train["lora"] |= {
            k: lora[k] for k in ("bias", "target_modules", "target_parameters", "modules_to_save", "also_train") if lora.get(k)
        }
        more = ("use_rslora", "use_dora", "lora_bias", "autocast_adapter_dtype")
        train["lora"] |= {k: lora[k] for k in more if k in lora}
        train["lora_kernels"] = [k for k in ("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel") if lora.get(k)]
    if training.get("ia3"):
        train["ia3"] = dict(training["ia3"])
    for key in ("liger", "chunked_cross_entropy", "cut_cross_entropy", "save_on_cpu", "quantization", "float32_modules", "keep_outputs", "ema"):
        if training.get(key):
            train[key] = dict(training[key]) if isinstance(training[key], dict) else training[key]
    spec: Spec = {
        "name": job["model"].get("name", job["model"].get("preset", "job")),
        "model": model,
        "batch": {"mbs": data.get("micro_batch_size", 1), "seq_len": data.get("sequence_length")},
        "inputs": inputs_of(model, data, DTYPES[train["precision"]]),
        "train": train,
        "steps": 2,
    }
    if "routing" in data:
        spec["routing"] = data["routing"]
    if training.get("loss"):
        spec["loss"] = training["loss"]
    if job.get("task") == "inference":
        train.get("quantization", {})["prepare_model_for_kbit_training"] = False
        spec["inference"] = inference_of(job.get("inference", {}))
        if spec["inference"]["cache"]["implementation"] == "static":  # _prefill cuts its inputs by a StaticLayer's length
            spec["item_int"] = -1 - spec["inference"]["turn_tokens"]
        for labels in ("labels", "mask_labels", "class_labels"):
            spec["inputs"].pop(labels, None)
        spec["inputs"].pop("return_loss", None)
        processors_own(model["config"].get("model_type"), spec["inputs"])
        if more := spec["inference"]["turn_images"]:
            turn = inputs_of(model, data | {"images_per_sample": more}, DTYPES[train["precision"]])
            processors_own(model["config"].get("model_type"), turn)
            spec["inference"]["turn_inputs"] = {k: v for k, v in turn.items() if k not in ("input_ids", "labels")}
        if "input_ids" in spec["inputs"] and model["config"].get("model_type") not in PAIRS:
            spec["inputs"]["attention_mask"] = tensor(spec["inputs"]["input_ids"]["shape"])
    if model["config"].get("model_type") in ("smolvlm", "idefics3"):  # how many tiles of each sample are not padding
        spec["item_int"] = idefics3_tiles(model["config"], data)
    elif model["config"].get("model_type") == "idefics2":
        spec["item_int"] = images_of(data)
    if parallel.get("strategy", "none") != "none":
        spec["parallel"] = {**parallel, "world": parallel.get("data", 1), "param_groups": optimizer.get("param_groups", 2)}
        spec["parallel"].setdefault("ds_config", plain_deepspeed(parallel.get("zero_stage", 2)))
    return spec


def inference_of(given: dict[str, Any]) -> dict[str, Any]:
    out = {"new_tokens": 256, "turns": 1, "turn_tokens": 128, "turn_images": 0, "logits": "last", "cache": {}} | given
    out["cache"] = {"implementation": "dynamic"} | out["cache"]
    return out


def checkpointing_of(given: Any) -> dict[str, Any]:
    options = dict(given) if isinstance(given, dict) else {"mode": given}
    mode = options.pop("mode", "non-reentrant")
    return {"ckpt": {"none": False, "non-reentrant": "nonreentrant"}.get(mode, mode), "ckpt_options": options}


def plain_deepspeed(stage: int) -> dict[str, Any]:
    automatic = ("train_micro_batch_size_per_gpu", "train_batch_size", "gradient_accumulation_steps")
    return dict.fromkeys(automatic, "auto") | {"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": stage}}
