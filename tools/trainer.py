"""Runs the loop that people run (transformers.Trainer, TRL's, one by hand) in real PyTorch on the ghost or a GPU, and measures each step.

    trainer.py SPEC.json ... --ghost DIR [-o CASES.jsonl]       each in a fork of one process that has imported everything
    trainer.py SPEC.json ... --gpu [-o MEASURED.jsonl]          the same on the GPU at hand, as lines of tests/measured/README.md
    trainer.py SPEC.json --ghost DIR --trace OUT.jsonl          one, with every malloc and free (tools/README.md: a log)
    trainer.py SPEC.json --job                                  the job that says the same

A spec says what a person's script says, in that script's terms:

    "model":  {"class", "config"}
    "train":  {"precision": the weights' own type, "attn", "lora": LoraConfig's arguments, "freeze": [...], "no_grad": [...],
               "quantization": BitsAndBytesConfig's arguments with "prepare_model_for_kbit_training",
               "lora_kernels": Axolotl's, "cut_cross_entropy": its, "float32_modules": [...],
               "peft": {"type": "VeraConfig", "args": {...}, "autocast_adapter_dtype", "adapters": [names], "active": one of them}}
    "loop":   {"kind": "trainer" | "sft" | "dpo" | "kto" | "reward" | "orpo" | "pairwise" | "custom_dpo" | "custom_kto" | "hand", "args": {TrainingArguments or SFTConfig}, "load": "cpu" | "cuda", "compute_metrics",
               "eval_batches"; "optimizer": {"class", "args", "rest": {"class", "args"}, "in_backward"} is given to Trainer, or used by a loop by hand;
               "project": "axolotl" of "trainer", with "ckpt" and args.activation_offloading as its loader and its mixin take them; of "hand":
               "autocast", "use_cache", "keep_outputs", "ckpt", "opt_impl", "max_grad_norm", "param_groups"; of LLaMA-Factory's trainers (tools/step/llamafactory.py)
               "finetuning_args": FinetuningArguments of its own, "ckpt"}
    "data":   {"lengths": [[tokens of each sample] of each micro-batch], "pad_to", "side", "labels": "all" | "completion",
               "packed": [[lengths] of each row], "attention_mask", "pixel": a sample's pixel_values (an image classifier's has nothing else), "images": the job's words for them, "image_token": [id, n],
               "gemma4_image": [height, width] of a sample's, "grid_thw": of a sample's image (Qwen-VL), "image_sizes": [height, width] of it, "audio": a sample's input_features beside its text,
               "extra": {key: {"shape", "fill", "dtype"; "frames" of "input_features_mask"} or {"of_tokens": true}},
               "input_features": a sample's, whose labels are all its text,
               "media": the job's words for what else there is, made as measure.py makes it; with "whole" the text, too; "targets": labels of each
               sample, of a model that makes another text of its text}
    "parallel": {"strategy": "ddp" | "deepspeed" with "ds_config" | "fsdp1" | "fsdp2", "world": GPUs}; FSDP's options are the trainer's fsdp_config;
               "prepare": "axolotl" has its fsdp2_prepare_model (install it with --no-deps --target, into PYTHONPATH)
    "trl":    its version, if it is not that of requirements.txt (install it with --no-deps --target, into PYTHONPATH)
    "batch":  {"mbs"}, "steps": optimizer steps, "item_int": what an integer read from the device is, "item_bool": what a bool is

What torch.compile makes (torchao's optimizers) is compiled, and its kernels do nothing. Triton then needs TRITON_LIBCUDA_PATH, a folder with the ghost
as libcuda.so.1, and TORCHINDUCTOR_COMPILE_THREADS=1. Record such a spec twice: the first time Inductor tunes kernels, with a buffer of the L2's size.

A case's truth is {"steps": [peaks from on_step_begin to on_step_end], "evals": [...], "saves": [...]}.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import datetime
import gc
import importlib
import json
import math
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import real_trace
from measure import gpu_of
from step import automodel, llamafactory
from step.batch import gemma4_inputs, inputs_of, make_inputs
from step.device_values import DeviceValues, asking, modalities, read_grids, route_evenly, visual_tokens
from step.ghost import enter_ghost, quiet_torch
from step.imports import import_for_forks
from step.kernels import use_kernels
from step.model import build_model
from step.patches import fuse_adapters, launch_nothing
from step.process_group import join_group, tame_deepspeed
from step.spec import CLASSES, DTYPES, FLAT_VL, KIMI_VL, Spec

LOOPS = {"trainer": "transformers.Trainer", "sft": "trl.SFTTrainer", "dpo": "trl.DPOTrainer", "kto": "trl.KTOTrainer"}
LOOPS |= {"reward": "trl.RewardTrainer", "orpo": "trl.experimental.orpo.ORPOTrainer"}
LOOPS |= {kind: f"llamafactory.{name}" for kind, name in llamafactory.TRAINERS.items()}
TRL = {"sft", "dpo", "kto", "reward", "orpo"}
LLAMAFACTORY = set(llamafactory.TRAINERS)
PAIRS = {"dpo", "reward", "orpo", "pairwise", "custom_dpo"}  # whose samples are two rows
# PeftType of a config class whose name does not say it in capitals (peft/utils/peft_types.py).
PEFT_TYPES = {"AdaptionPrompt": "ADAPTION_PROMPT", "LNTuning": "LN_TUNING", "MultitaskPromptTuning": "MULTITASK_PROMPT_TUNING"}
PEFT_TYPES |= {
    "PrefixTuning": "PREFIX_TUNING",
    "PromptEncoder": "P_TUNING",
    "PromptTuning": "PROMPT_TUNING",
    "TrainableTokens": "TRAINABLE_TOKENS",
}
CHECKPOINTING = {None: "none", "nonreentrant": "non-reentrant", "reentrant": "reentrant"}
OF_TEXT = ("input_ids", "position_ids", "attention_mask", "labels", "image_embeds_position_mask")  # among a batch's inputs
IMAGES = {"SmolVLMForConditionalGeneration", "Idefics3ForConditionalGeneration"}


def job_of(spec: Spec) -> dict[str, Any]:
    """The job that asks for the spec's run."""
    train, loop = spec["train"], spec["loop"]
    cls = spec["model"]["class"]
    kinds = {name: kind for kind, name in CLASSES.items()}
    kinds |= {"SmolVLMForConditionalGeneration": "smolvlm", "Olmo2ForCausalLM": "olmo2"}
    if classifies(spec) or cls not in kinds:
        import transformers

        kinds[cls] = getattr(transformers, cls).config_class.model_type
    config = {"model_type": kinds.get(cls, cls)} | spec["model"]["config"] | {"architectures": [cls]}
    out: dict[str, Any] = {"version": 1, "model": {"config": config, "name": spec["name"]}, "task": "train"}
    out["data"] = data_of(spec)
    training: dict[str, Any] = {"precision": train["precision"], "attention": train.get("attn", "sdpa")}
    if train.get("freeze") or train.get("only") or train.get("no_grad"):
        keys = (("freeze", "freeze"), ("train_only", "only"), ("no_grad", "no_grad"))
        training |= {"stage": "custom"} | {ours: train[theirs] for ours, theirs in keys if train.get(theirs)}
    if train.get("lora"):
        names = {"r": "rank", "lora_alpha": "alpha", "lora_dropout": "dropout"}
        training["lora"] = {names.get(key, key): value for key, value in train["lora"].items()}
        training["lora"] |= dict.fromkeys(train.get("lora_kernels", ()), True)
    if train.get("cut_cross_entropy"):
        training["cut_cross_entropy"] = True
    for key in ("quantization", "float32_modules"):
        if train.get(key):
            training[key] = train[key]
    if train.get("peft"):
        training["peft"] = peft_of(train["peft"])
    if loop["kind"] == "automodel":
        training |= automodel.training_of(spec)
        if not loop.get("force_hf"):
            config["model_type"] = f"automodel_{config['model_type']}"
    elif loop["kind"] == "hand":
        training["loop"] = "step" if loop.get("load") == "cuda" else {"name": "step", "load": "host"}
        if not loop.get("optimizer"):
            training["optimizer"] = {"implementation": loop.get("opt_impl", "fused"), "param_groups": loop.get("param_groups", 2)}
        training["activation_checkpointing"] = CHECKPOINTING[loop.get("ckpt")]
        training["max_grad_norm"] = loop.get("max_grad_norm")
        training |= {key: True for key in ("use_cache", "keep_outputs") if loop.get(key)}
        if loop.get("autocast"):
            training["precision"] = {"weights": train["precision"], "autocast": loop["autocast"]}
        if steps := loop.get("args", {}).get("gradient_accumulation_steps"):
            training["gradient_accumulation_steps"] = steps
    else:
        if loop.get("reference"):
            out["model"]["reference"] = loop["reference"]
        training["loop"] = {"name": LOOPS[loop["kind"]], "args": loop.get("args", {}) | {"max_steps": spec.get("steps", 3)}}
        training["loop"]["args"].setdefault("save_strategy", "no")
        training["loop"]["args"] |= fsdp_of(spec)
        if loop.get("load") == "cuda":
            training["loop"]["load"] = "device"
        if loop.get("compute_metrics"):
            training["loop"]["compute_metrics"] = True
        if loop.get("project"):
            training["loop"]["project"] = loop["project"]
            if loop["kind"] == "trainer":
                training["activation_checkpointing"] = CHECKPOINTING[loop.get("ckpt")]
        if loop["kind"] in LLAMAFACTORY:
            tell_llamafactory(spec, out["model"], training)
    if loop.get("optimizer"):
        training["optimizer"] = optimizer_of(loop["optimizer"])
    out["training"] = training
    if parallel := spec.get("parallel"):
        out["parallel"] = {"strategy": parallel["strategy"], "data": parallel["world"]}
        if "ds_config" in parallel:
            out["parallel"] |= {"ds_config": parallel["ds_config"], "rank": 0}
        if loop["kind"] == "automodel" and parallel["strategy"] == "fsdp2":
            out["parallel"]["fsdp"] = automodel.fsdp_of(spec)
        if "prepare" in parallel:
            out["parallel"]["fsdp"] = {"preparer": parallel["prepare"]}
    out["gpu"] = {"name": "a100-80gb"}
    out["runtime"] = {"framework": "transformers", "cudnn": False} | ({"trl": spec["trl"]} if "trl" in spec else {})
    if "kernels" in spec["model"]:
        out["runtime"]["kernels"] = spec["model"]["kernels"]
    return out


def tell_llamafactory(spec: Spec, model: dict[str, Any], training: dict[str, Any]) -> None:
    """What its FinetuningArguments say: of a full run the weights are float32, and those of the reference as published."""
    train, loop = spec["train"], spec["loop"]
    own = dict(loop.get("finetuning_args", {}))
    if not own.pop("pure_bf16", False) and not train.get("lora"):
        if loop["kind"] != "pairwise" and own.get("pref_loss") not in ("orpo", "simpo") and train["precision"] != "fp32":
            model["reference_dtype"] = train["precision"]
        training["precision"] = "fp32"
    training["loop"]["args"] |= own
    training["activation_checkpointing"] = CHECKPOINTING[loop.get("ckpt")]


def classifies(spec: Spec) -> bool:
    return spec["model"]["class"].endswith(("ForSequenceClassification", "ForImageClassification"))


def peft_of(peft: dict[str, Any]) -> Any:
    """The job's training.peft: an adapter_config.json, or several of them that differ in their names."""
    name = peft["type"].removesuffix("Config")
    one = {"peft_type": PEFT_TYPES.get(name, name.upper())} | peft.get("args", {})
    if not peft.get("autocast_adapter_dtype", True):
        one["autocast_adapter_dtype"] = False
    names = peft.get("adapters", ["default"])
    if names == ["default"]:
        return one
    return [one | {"name": name, "active": name == peft.get("active", names[0])} for name in names]


def optimizer_of(spec: Spec) -> Spec:
    out = {"name": spec["class"], "args": spec.get("args", {})}
    if spec.get("in_backward"):
        out["in_backward"] = True
    return out | ({"rest": optimizer_of(spec["rest"])} if spec.get("rest") else {})


def make_optimizer(spec: Spec, params: Any) -> Any:
    module, _, name = spec["class"].rpartition(".")
    return getattr(importlib.import_module(module), name)(params, **spec.get("args", {}))


def make_optimizers(spec: Spec, model: Any) -> list[Any]:
    """One, or, with "rest", one of the matrices of the layers and one of the others."""
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    if spec.get("in_backward"):
        own = {p: make_optimizer(spec, [p]) for _, p in named}

        def step(parameter: Any) -> None:
            own[parameter].step()
            own[parameter].zero_grad()

        for _, p in named:
            p.register_post_accumulate_grad_hook(step)
        return []
    if not spec.get("rest"):
        by_name = spec["class"] == "adam_mini.Adam_mini"
        return [make_optimizer(spec, named if by_name else [p for _, p in named])]
    matrices = [p for n, p in named if p.dim() == 2 and "layers." in n]
    rest = [p for n, p in named if not (p.dim() == 2 and "layers." in n)]
    return [make_optimizer(spec, matrices), make_optimizer(spec["rest"], rest)]


def data_of(spec: Spec) -> dict[str, Any]:
    data, batch = spec["data"], spec["batch"]
    out: dict[str, Any] = {"micro_batch_size": batch["mbs"]}
    if spec["model"]["class"].endswith("ForImageClassification"):
        return out | {"image_size": data["pixel"][1:]}
    if data.get("whole"):
        return out | data["media"]
    lengths = data.get("lengths")
    full = lengths and len({n for row in lengths for n in row}) == 1
    with_mask = data.get("attention_mask", not data.get("packed")) and spec["loop"]["kind"] not in TRL | LLAMAFACTORY
    if data.get("packed"):
        out |= {"packed": data["packed"], "sequence_length": max(map(sum, data["packed"]))}
    elif full and not with_mask:
        out["sequence_length"] = data.get("pad_to") or lengths[0][0]
    else:
        out["lengths"] = {"batches": lengths}
        out["sequence_length"] = data.get("pad_to") or max(n for row in lengths for n in row)
        if spec["loop"]["kind"] in TRL and "max_length" not in spec["loop"].get("args", {}):
            out["sequence_length"] = min(out["sequence_length"], 1024)  # SFTConfig's max_length and its kin's (trl 1.16)
        out["steps"] = spec.get("steps", 3)
        if data.get("pad_to"):
            out["padding"] = "max"
    if data.get("side") == "left":
        out["padding_side"] = "left"
    if data.get("labels") == "completion":
        out["scored"] = "completion"
    arguments = spec["loop"].get("args", {})
    if arguments.get("eval_strategy", "no") != "no" and lengths:
        size, count = arguments.get("per_device_eval_batch_size", 8), spec["loop"].get("eval_batches", 2)
        every = [n for row in lengths for n in row]
        out["evaluation"] = {"lengths": {"batches": [[every[(i * size + j) % len(every)] for j in range(size)] for i in range(count)]}}
    if data.get("pixel"):
        tiled = len(data["pixel"]) == 4 and not data.get("flat_pixel")
        out["images_per_sample"] = 1
        if tiled:
            out["tiles"] = data["pixel"][0]
    elif data.get("gemma4_image"):
        out |= {"images_per_sample": 1, "image_size": data["gemma4_image"]}
    elif "vision_config" in spec["model"]["config"]:
        out["images_per_sample"] = 0
    if data.get("targets"):
        out["target_length"] = data["targets"]
    return out | data.get("images", {}) | data.get("media", {})


def media_of(spec: Spec) -> Spec:
    """The spec of a micro-batch as step.device_values asks for it: what there is to read of its images and its audio."""
    data, mbs = spec["data"], spec["batch"]["mbs"] * (2 if spec["loop"]["kind"] in PAIRS else 1)
    inputs: Spec = {"input_ids": {"shape": [mbs, 0]}}
    if grid := data.get("grid_thw"):
        inputs["image_grid_thw"] = {"values": [grid] * mbs}
    if size := data.get("image_sizes"):
        inputs["image_sizes"] = {"values": [size] * mbs}
    if audio := data.get("audio"):
        inputs["input_features"] = {"shape": [mbs * audio[0], *audio[1:]]}
    if mask := data.get("extra", {}).get("input_features_mask"):
        inputs["input_features_mask"] = mask
    kinds = {name: kind for kind, name in CLASSES.items()} | {"VoxtralForConditionalGeneration": "voxtral"}
    config = {"model_type": kinds.get(spec["model"]["class"])} | spec["model"]["config"]
    if size := data.get("gemma4_image"):
        inputs |= gemma4_inputs(config, {"micro_batch_size": mbs, "image_size": size, "sequence_length": 0}, "float32")
    if words := data.get("media"):
        made = inputs_of({**spec["model"], "config": config}, {"micro_batch_size": mbs, "sequence_length": 1} | words, "float32")
        inputs = made if data.get("whole") else inputs | {key: given for key, given in made.items() if key not in OF_TEXT}
        if "image_embeds_position_mask" in made:  # visual_tokens counts by it
            inputs["image_embeds_position_mask"] = made["image_embeds_position_mask"]
    return {**spec, "model": {**spec["model"], "config": config}, "batch": {"mbs": mbs}, "inputs": inputs}


class Answers(DeviceValues):
    """What real kernels would have found in the data: labels that are scored, masks, documents of a row."""

    def __init__(self, spec: Spec) -> None:
        media = media_of(spec)
        super().__init__(read_grids(media))
        route_evenly(spec)
        quiet_torch()
        visual = visual_tokens(media)
        self.heard = {shape[0]: count for shape, count in visual.items() if len(shape) == 1}  # states of the audio's chunks
        # elements that a mask of the images' or of the audio's has
        self.found_of_media = visual if "media" in spec["data"] else {}
        self.visual = sum(count for shape, count in visual.items() if len(shape) > 1)
        self.by_dimensions = {len(shape): count for shape, count in visual.items()} if "image_position_ids" in media["inputs"] else {}
        self.samples = media["batch"]["mbs"]
        self.rope_masks = 0
        self.attended: list[int] = []  # tokens of each row that are no padding
        self.padded = self.packed = False
        self.targets, self.whole = spec["data"].get("targets"), spec["data"].get("whole", False)
        self.masked: set[int] = set()  # widths of the text's masks
        self.valid: tuple[int, int] | None = None
        self.width = 0
        self.masks: list[Any] = []  # of which the model's attention_mask is made on the device
        self.wanted: Any = None  # of a batch of answers, wanted or not, which is which
        self.item_bool = spec.get("item_bool", True)
        self.completion_masks: dict[int, Any] = {}  # of preferences, whose labels are made on the device, by their input_ids' address
        self.patch()

    def scalar(self, tensor: Any) -> Any:
        if tensor.dtype is self.torch.bool and (
            not self.item_bool or self.padded and (is_called_by("create_recurrent_attention_mask") or is_called_by("flash_attention_mask"))
        ):
            return False
        if (frame := asking()).f_code.co_name == "_segmented_arange":  # fla's: chunks of all documents of a row
            told = frame.f_back.f_locals
            return int(-(-host_values(told["cu_seqlens"]).diff() // told["chunk_size"]).sum())
        return super().scalar(tensor)

    def nonzero(self, tensor: Any) -> Any:
        if (
            self.selected is None
            and tensor.dtype is self.torch.bool
            and (selected := self.unpadded() or self.states(tensor) or self.count(tensor)) is not None
        ):
            self.selected = selected
            try:
                return super().nonzero(tensor)
            finally:
                self.selected = None
        return super().nonzero(tensor)

    def count(self, mask: Any) -> int | None:
        """How many are true in a mask of samples, or of the tokens of all samples or of some."""
        if (counted := self.found_of_media.get(tuple(mask.shape))) is not None or self.whole:
            return counted
        if self.visual and asking().f_code.co_filename.endswith("modeling_kosmos2_5.py"):  # where images' embeddings are put
            return self.visual
        if self.visual and asking().f_code.co_filename.endswith("modeling_granite4_vision.py"):  # of answers, both of each prompt's
            return self.visual * mask.shape[0] // self.samples
        if self.attended and mask.dim() == 1 and is_called_by("get_rope_index"):
            self.rope_masks += 1  # of each row its tokens, their types and their positions; to ask the frame would keep its names
            return self.attended[(self.rope_masks - 1) // 3]
        if mask.dim() in self.by_dimensions and mask.shape[-1] != self.width:
            return self.by_dimensions[mask.dim()]
        if self.visual and not self.by_dimensions and (mask.dim() == 3 or mask.dim() == 2 and mask.shape[1] == self.width + 1):
            return self.visual
        if self.wanted is not None and mask.dim() == 1 and mask.numel() == self.wanted.numel():
            wanted = int(host_values(self.wanted).sum())
            return wanted if mask.data_ptr() == self.wanted.data_ptr() else mask.numel() - wanted
        if self.valid and mask.dim() == 2 and mask.shape[1] == self.width and mask.numel() < self.valid[0]:
            return self.valid[1] * mask.numel() // self.valid[0]
        return self.valid[1] if self.valid and mask.numel() == self.valid[0] else None

    def states(self, mask: Any) -> int | None:
        """How many of the audio's chunks' states are no padding."""
        return self.heard.get(mask.numel()) if mask.dim() == 1 else None

    def unpadded(self) -> int | None:
        """How many tokens flash-attn 2 keeps of a mask, where it is what asks."""
        return sum(self.attended) if self.attended and is_called_by("_get_unpad_data") else None

    def patch(self) -> None:
        import torch
        from transformers import masking_utils

        fast_all, find_packed = masking_utils.fast_all, masking_utils.find_packed_sequence_indices

        def all_of(tensor: Any) -> bool:
            fast_all(tensor)
            return not self.padded or tensor.shape[-1] == self.targets  # whose mask the decoder makes itself

        def sequence_indices(position_ids: Any) -> Any:
            if not self.packed:
                return find_packed(position_ids)
            first = position_ids[:, :1] - 1
            position_diff = torch.diff(position_ids, prepend=first, dim=-1)
            mask = (position_diff != 1).cumsum(-1)
            (mask[:, -1] == 0).all()
            return mask

        masking_utils.fast_all, masking_utils.find_packed_sequence_indices = all_of, sequence_indices
        ignores = masking_utils._ignore_bidirectional_mask_sdpa

        def ignored(padding_mask: Any, *given: Any, **more: Any) -> bool:
            of_text = padding_mask is not None and padding_mask.shape[-1] in self.masked  # else of images or audio
            return ignores(padding_mask, *given, **more) and not (of_text and self.padded)

        masking_utils._ignore_bidirectional_mask_sdpa = ignored
        for name in ("isnan", "isinf"):

            def finite(tensor: Any, real: Any = getattr(torch, name)) -> Any:
                result = real(tensor)
                return torch.tensor(False) if tensor.is_cuda and tensor.dim() == 0 else result

            setattr(torch, name, finite)

        def take_step(_self: Any, optimizer: Any, state: Any, *given: Any, **keywords: Any) -> Any:
            sum(found.item() for found in state["found_inf_per_device"].values())
            return optimizer.step(*given, **keywords)

        torch.amp.GradScaler._maybe_opt_step = take_step
        # Whether a matrix is singular is not read, and cuSOLVER does not run: its results are there, its workspace is not.
        torch.linalg.solve = lambda a, b, **given: torch.linalg.solve_ex(a, b, **given)[0]
        torch.linalg.svd = factors
        with contextlib.suppress(ImportError):  # Triton's kernels do nothing either
            from triton.backends.nvidia import driver

            driver.CudaLauncher.__call__ = lambda *_, **__: None  # of what torch.compile makes
            launch_nothing()

    def at_the_door(self, _module: Any, _given: Any, keywords: dict[str, Any]) -> None:
        """The model is called: what its inputs hold."""
        mask, positions, labels = (keywords.get(k) for k in ("attention_mask", "position_ids", "labels"))
        masks = self.masks or ([mask] if mask is not None and mask.dim() == 2 else [])
        self.padded = any(bool((host_values(each) == 0).any()) for each in masks)
        self.masked = {each.shape[1] for each in masks}
        self.rope_masks = 0
        self.attended = host_values(mask).sum(-1).tolist() if mask is not None and mask.dim() == 2 else []
        self.packed = positions is not None and positions.dim() == 2 and bool((host_values(positions).diff(dim=-1) != 1).any())
        if labels is not None and labels.dim() == 2 and not labels.is_floating_point():
            ids = keywords.get("input_ids")
            completion_mask = None if ids is None else self.completion_masks.get(ids.data_ptr())
            shifted = host_values(labels)[:, 1:]
            scored = shifted != -100 if completion_mask is None else host_values(completion_mask)[:, 1:]
            self.width = shifted.shape[1]
            self.valid = (shifted.numel(), int(scored.sum()))


def factors(matrix: Any, full_matrices: bool = True) -> tuple[Any, Any, Any]:
    """torch.linalg.svd's, of a matrix that is no batch."""
    rows, columns = matrix.shape
    least = min(rows, columns)
    return matrix.new_empty(rows, least), matrix.new_empty(least), matrix.new_empty(least, columns)


def is_called_by(name: str) -> bool:
    frame: Any = sys._getframe(1)
    while frame and frame.f_code.co_name != name:
        frame = frame.f_back
    return frame is not None


def host_values(tensor: Any) -> Any:
    """The values of an integer tensor, which the ghost keeps in the host's memory."""
    import torch

    raw = bytearray(ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size()))
    return torch.frombuffer(raw, dtype=tensor.dtype).reshape(tensor.shape)


class Samples:
    """The data set and its collator."""

    def __init__(self, spec: Spec) -> None:
        self.data, self.batch, self.kind = spec["data"], spec["batch"]["mbs"], spec["loop"]["kind"]
        self.media = media_of(spec)
        if grid := self.data.get("grid_thw"):
            merge = spec["model"]["config"].get("vision_config", {}).get("spatial_merge_size", 2)
            tokens = math.prod(grid) // merge**2
            if self.media["model"]["config"]["model_type"] == "hunyuan_vl":  # a row's end is a token, and so are the image's begin and end
                tokens += grid[1] // merge + 2
            self.features = [tokens] * self.media["batch"]["mbs"]
        if self.data.get("gemma4_image"):
            config = self.media["model"]["config"]
            side = config.get("vision_config", {}).get("pooling_kernel_size", 3) if config["model_type"] == "gemma4" else 1
            self.features = [math.prod(self.media["inputs"]["image_position_ids"]["grid"]) // side**2] * self.media["batch"]["mbs"]
        self.loss_type = spec["loop"].get("args", {}).get("loss_type")
        self.class_label = self.label_of(spec["model"]["config"]) if classifies(spec) else None
        self.looks_only = spec["model"]["class"].endswith("ForImageClassification")
        self.answers = spec["model"]["class"].endswith("ForQuestionAnswering")
        steps = (spec.get("steps", 3) + 1) * spec["loop"].get("args", {}).get("gradient_accumulation_steps", 1)
        world = spec.get("parallel", {}).get("world", 1)  # of whose batches this process has every so many-th
        packed, lengths = self.data.get("packed"), self.data.get("lengths")
        self.rows: list[list[int]] = []
        for i in range(steps):
            if packed:
                self.rows += [packed[(i * self.batch + j) % len(packed)] for j in range(self.batch)] * world
            else:
                self.rows += [[n] for n in lengths[i % len(lengths)]] * world

    def label_of(self, config: dict[str, Any]) -> Any:
        """Of a sample, as ForSequenceClassificationLoss takes it."""
        labels = config.get("num_labels", 2)
        problem = config.get("problem_type") or ("regression" if labels == 1 else "single_label_classification")
        if problem == "single_label_classification":
            return 1
        return 1.0 if labels == 1 else [1.0] * labels

    def sample(self, documents: list[int]) -> dict[str, Any]:
        import torch

        length, image = sum(documents), self.data.get("image_token")
        ids = torch.full((length,), 5, dtype=torch.int64)
        if image:
            ids[: image[1]] = image[0]
        labels = ids.clone()
        if image:
            labels[: image[1]] = -100
        if self.data.get("labels") == "completion":
            labels[: length // 2] = -100
        if self.class_label is not None:
            labels = torch.tensor(self.class_label)
        out = {"input_ids": ids, "labels": labels}
        if self.answers:  # as run_qa.py's features have it
            out = {"input_ids": ids, "start_positions": torch.tensor(1), "end_positions": torch.tensor(2)}
        if self.data.get("packed"):
            out["position_ids"] = torch.cat([torch.arange(n) for n in documents])
        return out

    def collate(self, samples: list[dict[str, Any]], side: str | None = None, media: bool = True) -> dict[str, Any]:
        import torch

        data = self.data if side is None else {**self.data, "side": side}
        if data.get("whole"):
            return make_inputs(self.media, "cpu")
        samples = [{key: torch.as_tensor(value) for key, value in sample.items()} for sample in samples]
        if self.looks_only and (pixel := data.get("pixel")):
            return {"pixel_values": torch.zeros([len(samples), *pixel]), "labels": torch.stack([s["labels"] for s in samples])}
        if heard := data.get("input_features"):
            rows = torch.nn.utils.rnn.pad_sequence([s["labels"] for s in samples], True, -100)
            return {"input_features": torch.zeros([len(samples), *heard]), "labels": rows}
        width = data.get("pad_to") or max(len(s["input_ids"]) for s in samples)

        def padded(row: Any, fill: int) -> Any:
            if self.class_label is not None and fill == -100:
                return row
            rest = torch.full((width - len(row),), fill, dtype=torch.int64)
            return torch.cat([rest, row] if data.get("side") == "left" else [row, rest])

        fills = {"input_ids": 0, "labels": -100, "position_ids": 0}
        out = {k: torch.stack([padded(s[k], fill) for s in samples]) for k, fill in fills.items() if k in samples[0]}
        if data.get("attention_mask", not data.get("packed")):
            ones = [torch.ones(len(s["input_ids"]), dtype=torch.int64) for s in samples]
            out["attention_mask"] = torch.stack([padded(row, 0) for row in ones])
        for key in ("start_positions", "end_positions"):
            if key in samples[0]:
                out[key] = torch.stack([sample[key] for sample in samples])
        if media:
            self.add_media(out, samples, padded)
        if targets := data.get("targets"):
            out["labels"] = torch.full((len(samples), targets), 5)
        for key, extra in data.get("extra", {}).items():
            if extra.get("of_tokens"):
                out[key] = torch.zeros_like(out["input_ids"])
            else:
                out[key] = torch.full(extra["shape"], extra.get("fill", 1), dtype=getattr(torch, extra["dtype"]))
        return out

    def add_media(self, out: dict[str, Any], samples: list[dict[str, Any]], padded: Callable[[Any, int], Any]) -> None:
        """A batch's images and audio."""
        import torch

        data = self.data
        if pixel := data.get("pixel"):
            sizes = [len(samples) * pixel[0], *pixel[1:]] if data.get("flat_pixel") else [len(samples), *pixel]
            out["pixel_values"] = torch.zeros(sizes)
        if grid := data.get("grid_thw"):
            out["image_grid_thw"] = torch.tensor([grid] * len(samples))
        if grid and self.media["model"]["config"]["model_type"] not in KIMI_VL + FLAT_VL:
            kinds = [torch.tensor(modalities(self.media, len(s["input_ids"]), self.features)) for s in samples]
            out["mm_token_type_ids"] = torch.stack([padded(row, 0) for row in kinds])
        if data.get("gemma4_image"):
            for key in ("pixel_values", "image_position_ids"):
                given = self.media["inputs"][key]
                out[key] = torch.zeros(given["shape"], dtype=getattr(torch, given["dtype"]))
            kinds = [torch.tensor(modalities(self.media, len(s["input_ids"]), self.features)) for s in samples]
            out["mm_token_type_ids"] = torch.stack([padded(row, 0) for row in kinds])
        if size := data.get("image_sizes"):
            out["image_sizes"] = torch.tensor([size] * len(samples))
        if audio := data.get("audio"):
            out["input_features"] = torch.zeros([len(samples) * audio[0], *audio[1:]])
        if data.get("media"):
            out |= make_inputs({"inputs": {key: given for key, given in self.media["inputs"].items() if key not in OF_TEXT}}, "cpu")
        if self.media["model"]["config"].get("model_type") == "llama4" and "pixel_values" in out:  # Llama4ImageProcessor's
            out["pixel_values"] = out["pixel_values"].to(torch.bfloat16)
        if (seen := out.get("cross_attention_mask")) is not None:  # of each token
            out["cross_attention_mask"] = seen.expand(-1, out["input_ids"].shape[1], -1, -1).contiguous()

    def rows_of(self, count: int | None) -> list[list[int]]:
        return self.rows if count is None else [self.rows[i % len(self.rows)] for i in range(count)]

    def dataset(self, count: int | None = None) -> Any:
        import torch

        rows, sample = self.rows_of(count), self.sample

        class Rows(torch.utils.data.Dataset):
            def __len__(self) -> int:
                return len(rows)

            def __getitem__(self, i: int) -> Any:
                return sample(rows[i])

        return Rows()

    def table(self, count: int | None = None) -> Any:
        """The same for TRL, which has its own collators. Two answers to one prompt are equally long."""
        import datasets

        if self.kind == "sft":
            samples = [self.sample(row) for row in self.rows_of(count)]
            columns = {key: [sample[key].tolist() for sample in samples] for key in ("input_ids", "labels")}
            if self.data.get("packed"):
                columns["seq_lengths"] = self.rows_of(count)
            return datasets.Dataset.from_dict(columns)
        lengths = [n for (n,) in self.rows_of(count)]
        if self.data.get("image_token"):  # DataCollatorForVisionPreference reads texts: here, how many tokens they have
            least = self.data["image_token"][1]
            prompt = [max(n // 2, least) if self.data.get("labels") == "completion" else least for n in lengths]
            answer = [str(n - p) for n, p in zip(lengths, prompt, strict=True)]
            columns = {"images": [[0]] * len(lengths), "prompt": [str(p) for p in prompt], "chosen": answer, "rejected": answer}
            if self.kind == "kto":
                labels = [i % self.batch % 2 == 0 for i in range(len(answer))]
                columns = {"images": columns["images"], "prompt": columns["prompt"], "completion": answer, "label": labels}
            return datasets.Dataset.from_dict(columns)
        prompts = [[5] * (n // 2 if self.data.get("labels") == "completion" else 0) for n in lengths]
        answers = [[5] * (n - len(prompt)) for n, prompt in zip(lengths, prompts)]
        both = [prompt + answer for prompt, answer in zip(prompts, answers)]
        columns = {"prompt_ids": prompts, "chosen_ids": answers, "rejected_ids": answers}
        if self.kind == "reward":
            columns = {"chosen_ids": both, "rejected_ids": both}
        if self.kind == "kto":
            before = [i - 1 if i % self.batch else min(i + self.batch, len(answers)) - 1 for i in range(len(answers))]
            columns = {"prompt_ids": prompts, "completion_ids": answers, "KL_completion_ids": [answers[i] for i in before]}
            if self.loss_type == "apo_zero_unpaired":
                del columns["KL_completion_ids"]
            columns["label"] = [i % self.batch % 2 == 0 for i in range(len(answers))]
        if self.kind == "orpo":
            columns = {key: [key] * len(lengths) for key in ("prompt", "chosen", "rejected")}
            labels = [[-100] * len(prompt) + answer for prompt, answer in zip(prompts, answers)]
            for answer in ("chosen", "rejected"):
                ones = [[1] * n for n in lengths]
                columns |= {f"{answer}_input_ids": both, f"{answer}_attention_mask": ones, f"{answer}_labels": labels}
            columns |= {"prompt_input_ids": prompts, "prompt_attention_mask": [[1] * len(p) for p in prompts]}
        return datasets.Dataset.from_dict(columns)


class Phases:
    """Where the run stands, for the trace and for the peaks."""

    def __init__(self) -> None:
        self.open: Any = None

    def begin(self, iteration: int, name: str) -> None:
        import torch

        self.end()
        self.open = torch.profiler.record_function(f"phase:{iteration}:{name}")
        self.open.__enter__()

    def end(self) -> None:
        if self.open:
            self.open.__exit__(None, None, None)
        self.open = None


def peaks() -> dict[str, int]:
    import torch

    now = torch.cuda.memory_stats()
    return {k: now[f"{k}_bytes.all.peak"] for k in ("requested", "allocated", "reserved")}


def tokenizer() -> Any:
    import transformers
    from tokenizers import Tokenizer, models

    words = models.WordLevel({"[UNK]": 0, "<pad>": 1, "</s>": 2, "a": 5}, unk_token="[UNK]")
    return transformers.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(words), unk_token="[UNK]", pad_token="<pad>", eos_token="</s>")


def processor(samples: Samples) -> Any:
    """One that returns what a model's own does, of texts that say how many tokens they are."""
    import transformers

    class Processor(transformers.ProcessorMixin):
        def __init__(self) -> None:
            self.tokenizer = tokenizer()

        def __call__(self, images: Any = None, text: Any = None, padding_side: str = "right", **_: Any) -> Any:
            rows = [{"input_ids": samples.sample([int(n)])["input_ids"] if images else [5] * int(n)} for n in text]
            out = samples.collate(rows, padding_side, bool(images))
            first = ("input_ids", "attention_mask", "mm_token_type_ids")
            return transformers.BatchFeature({k: out[k] for k in (*first, *(k for k in out if k not in first)) if k in out})

        def save_pretrained(self, *_: Any, **__: Any) -> None: ...

    return Processor()


class Measured:
    """On a GPU nothing has to be answered: what a run says to Answers is for nobody."""

    def __init__(self) -> None:
        self.completion_masks: dict[int, Any] = {}
        self.masks: list[Any] = []
        self.wanted: Any = None

    def at_the_door(self, *_: Any, **__: Any) -> None: ...


def make_model(spec: Spec, answers: Answers | Measured) -> tuple[Any, Any]:
    """The model, with its adapters unless the trainer makes them; and their config."""
    train, loop = spec["train"], spec["loop"]
    if loop["kind"] in LLAMAFACTORY:
        return llamafactory.make_model(spec), None
    plain = {**train, "ckpt": None, "lora": None, "peft": None, "lora_kernels": None}
    model = build_model({**spec, "train": plain}, "cuda" if loop.get("load") == "cuda" else "cpu")
    if loop["kind"] == "hand":
        model = model.cuda()
    elif loop.get("ckpt") and loop.get("project"):  # its loader does it
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": loop["ckpt"] == "reentrant"})
    del answers
    lora = dict(train.get("lora") or {})
    given = train.get("peft") or (
        lora and {"type": "LoraConfig", "autocast_adapter_dtype": lora.pop("autocast_adapter_dtype", True), "args": lora}
    )
    if not given:
        return model, None
    import peft

    def config() -> Any:
        task = "CAUSAL_LM"
        data = spec["data"]
        if data.get("input_features") or data.get("whole") or spec["model"]["class"].endswith("ForImageClassification"):
            task = None
        elif spec["data"].get("targets"):
            task = "SEQ_2_SEQ_LM"
        elif classifies(spec):
            task = "SEQ_CLS"
        elif spec["model"]["class"].endswith(("ForTokenClassification", "ForQuestionAnswering")):
            task = "TOKEN_CLS" if "Token" in spec["model"]["class"] else "QUESTION_ANS"
        return getattr(peft, given["type"])(**{"task_type": task, **given.get("args", {})})

    if loop["kind"] in TRL:
        if loop.get("project"):
            model.enable_input_require_grads()
        return model, config()
    if loop.get("args", {}).get("gradient_checkpointing") or loop.get("ckpt") or loop.get("project"):
        model.enable_input_require_grads()
    names, cast = given.get("adapters", ["default"]), given.get("autocast_adapter_dtype", True)
    model = peft.get_peft_model(model, config(), adapter_name=names[0], autocast_adapter_dtype=cast)
    for name in names[1:]:
        model.add_adapter(name, config(), autocast_adapter_dtype=cast)
    if given.get("active"):
        model.set_adapter(given["active"])
    if train.get("lora_kernels"):
        fuse_adapters(model, train["lora_kernels"])
    return model, None


def run_by_hand(spec: Spec, model: Any, samples: Samples, phases: Phases) -> list[dict[str, int]]:
    import torch

    loop = spec["loop"]
    for config in (model.config, getattr(model.config, "text_config", None)):
        if config is not None:
            config.use_cache = loop.get("use_cache", False)
    if loop.get("ckpt"):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": loop["ckpt"] == "reentrant"})
    trained = [p for p in model.parameters() if p.requires_grad]
    groups: Any = [{"params": [p for p in trained if p.dim() > 1]}, {"params": [p for p in trained if p.dim() <= 1], "weight_decay": 0.0}]
    if loop.get("optimizer"):
        optimizers = make_optimizers(loop["optimizer"], model)
    else:
        optimizers = [
            torch.optim.AdamW(groups if loop.get("param_groups", 2) == 2 else trained, lr=1e-5, **{loop.get("opt_impl", "fused"): True})
        ]
    micro_steps = loop.get("args", {}).get("gradient_accumulation_steps", 1)
    region = torch.autocast("cuda", dtype=getattr(torch, DTYPES[loop["autocast"]])) if loop.get("autocast") else contextlib.nullcontext()
    data, i, steps = samples.dataset(), 0, []
    for step in range(1, spec.get("steps", 3) + 1):
        gc.collect()
        torch.cuda.reset_peak_memory_stats()
        gc.disable()
        for _ in range(micro_steps):
            phases.begin(step, "forward")
            batch = {k: v.cuda() for k, v in samples.collate([data[i + j] for j in range(samples.batch)]).items()}
            i += samples.batch
            with region:
                outputs = model(**batch)
                loss = outputs.loss
            if not loop.get("keep_outputs"):
                del outputs
            phases.begin(step, "backward")
            (loss / micro_steps if micro_steps > 1 else loss).backward()
            if not loop.get("keep_outputs"):
                del loss
        phases.begin(step, "optimizer")
        if loop.get("max_grad_norm"):
            torch.nn.utils.clip_grad_norm_(model.parameters(), loop["max_grad_norm"])
        for optimizer in optimizers:
            optimizer.step()
        for optimizer in optimizers:
            optimizer.zero_grad()
        gc.enable()
        steps.append(peaks())
    phases.end()
    return steps


def fsdp_of(spec: Spec) -> dict[str, Any]:
    """What TrainingArguments say of FSDP."""
    strategy = spec.get("parallel", {}).get("strategy", "")
    if not strategy.startswith("fsdp"):
        return {}
    return {"fsdp": True, "fsdp_config": {"version": int(strategy[-1])} | spec["loop"].get("args", {}).get("fsdp_config", {})}


def make_arguments(spec: Spec, samples: Samples, folder: str) -> Any:
    """The trainer's arguments, made before the model: from_pretrained asks whether ZeRO-3 is on."""
    import transformers

    loop = spec["loop"]
    given = {"output_dir": folder, "per_device_train_batch_size": samples.batch, "max_steps": spec.get("steps", 3)}
    given |= {"report_to": "none", "save_strategy": "no", "disable_tqdm": True} | loop.get("args", {})
    if loop.get("project"):
        given.pop("activation_offloading", None)
    if config := spec.get("parallel", {}).get("ds_config"):
        given["deepspeed"] = config
    given |= fsdp_of(spec)
    if loop["kind"] in LLAMAFACTORY:
        return transformers.Seq2SeqTrainingArguments(**given, remove_unused_columns=False, label_names=["labels"])  # hparams/parser.py
    if loop["kind"] == "trainer":
        return transformers.TrainingArguments(**given)
    import trl

    if loop["kind"] == "orpo":
        from trl.experimental.orpo import ORPOConfig

        return ORPOConfig(**given)
    return {"sft": trl.SFTConfig, "dpo": trl.DPOConfig, "kto": trl.KTOConfig, "reward": trl.RewardConfig}[loop["kind"]](**given)


def make_trainer(
    spec: Spec, arguments: Any, model: Any, peft_config: Any, samples: Samples, watch: Any, answers: Answers | Measured
) -> Any:
    import transformers

    loop = spec["loop"]
    evaluated = arguments.per_device_eval_batch_size * loop.get("eval_batches", 2) * spec.get("parallel", {}).get("world", 1)
    evaluates = arguments.eval_strategy != "no"
    more: dict[str, Any] = {"callbacks": [watch]}
    if loop.get("compute_metrics"):
        more["compute_metrics"] = lambda _: {}
    if loop.get("optimizer"):
        more["optimizers"] = (make_optimizers(loop["optimizer"], model)[0], None)
    sees = "vision_config" in spec["model"]["config"] and loop["kind"] != "reward"
    processing_class = processor(samples) if sees else tokenizer()
    base: Any = transformers.Trainer
    if loop.get("project") and loop["kind"] == "trainer":  # AxolotlTrainer's mixin, which the arguments' own class gives its field
        mixin = importlib.import_module("axolotl.core.trainers.mixins.activation_checkpointing")
        arguments.activation_offloading = loop.get("args", {}).get("activation_offloading", False)
        base = mixin.ActivationOffloadingMixin
        if arguments.activation_offloading and not hasattr(model, "peft_config"):
            mixin.ac_wrap_hf_model(model)
    if loop["kind"] == "trainer":
        more |= {"train_dataset": samples.dataset(), "data_collator": samples.collate}
        if evaluates:
            more["eval_dataset"] = samples.dataset(evaluated)
    elif loop["kind"] in LLAMAFACTORY:
        base = llamafactory.make_trainer_class(loop["kind"])
        more |= {"tokenizer": processing_class, "processor": None, "finetuning_args": llamafactory.finetuning_args(spec)}
        more["data_collator"] = llamafactory.make_collator(spec, processing_class, model)
        more["train_dataset"] = llamafactory.make_rows(loop["kind"], [samples.sample(row) for row in samples.rows], samples.batch)
        if loop["kind"] != "pairwise":
            more["ref_model"] = llamafactory.make_reference(spec)
    elif loop["kind"] != "sft":
        import trl

        if loop["kind"] == "orpo":
            from trl.experimental.orpo import ORPOTrainer

            base = ORPOTrainer
        else:
            base = {"dpo": trl.DPOTrainer, "kto": trl.KTOTrainer, "reward": trl.RewardTrainer}[loop["kind"]]
        more |= {"train_dataset": samples.table(), "processing_class": processing_class, "peft_config": peft_config}
        if evaluates:
            more["eval_dataset"] = samples.table(evaluated)
        if loop.get("project") and loop["kind"] == "dpo":
            base = importlib.import_module("axolotl.core.trainers.dpo.trainer").AxolotlDPOTrainer
        has_reference = loop["kind"] in {"dpo", "kto"}
        if has_reference and not peft_config and not arguments.precompute_ref_log_probs or loop.get("reference") == "copy":
            more["ref_model"] = build_model({**spec, "train": {**spec["train"], "ckpt": None, "lora": None}}, "cpu")
    else:
        import trl

        base = trl.SFTTrainer
        more |= {"train_dataset": samples.table(), "processing_class": processing_class, "peft_config": peft_config}
        # In place of a processor and TRL's collator around it.
        if any(samples.data.get(key) for key in ("pixel", "audio", "gemma4_image", "media")):
            more["data_collator"] = samples.collate
            arguments.dataset_kwargs = {"skip_prepare_dataset": True}
        if samples.data.get("packed"):
            arguments.dataset_kwargs = {"skip_prepare_dataset": True}
        if evaluates:
            more["eval_dataset"] = samples.table(evaluated)

    class InOrder(base):  # type: ignore[misc, valid-type]
        if loop["kind"] in TRL - {"sft"} | LLAMAFACTORY:

            def _prepare_dataset(self, dataset: Any, *_: Any, **__: Any) -> Any:
                return dataset  # of tokens already

            def tokenize_row(self, feature: Any, *_: Any, **__: Any) -> Any:
                return feature

            def compute_loss(self, model: Any, inputs: Any, *given: Any, **keywords: Any) -> Any:
                for key in ("", "KL_"):
                    if f"{key}completion_mask" in inputs:
                        answers.completion_masks[inputs[f"{key}input_ids"].data_ptr()] = inputs[f"{key}completion_mask"]
                answers.wanted = inputs.get("label", inputs.get("kto_tags"))
                answers.masks = [inputs[f"{key}_attention_mask"] for key in ("chosen", "rejected") if f"{key}_attention_mask" in inputs]
                if loop["kind"] in LLAMAFACTORY:  # the models get copies, which have no values here
                    answers.masks = [inputs[key] for key in ("attention_mask", "kl_attention_mask") if key in inputs]
                try:
                    return super().compute_loss(model, inputs, *given, **keywords)
                finally:
                    answers.completion_masks.clear()
                    answers.masks = []
                    if loop["kind"] != "custom_kto":  # whose backward asks again
                        answers.wanted = None

        if loop.get("project") and loop["kind"] == "dpo":  # as without fields of Axolotl's arguments
            create_optimizer = transformers.Trainer.create_optimizer
            create_scheduler = transformers.Trainer.create_scheduler

        def _get_train_sampler(self, *_: Any, **__: Any) -> Any:
            import torch

            return torch.utils.data.SequentialSampler(self.train_dataset)

        def training_step(self, *given: Any, **keywords: Any) -> Any:
            watch.phases.begin(self.state.global_step + 1, "forward")
            return super().training_step(*given, **keywords)

    trainer = InOrder(model=model, args=arguments, **more)
    backward = trainer.accelerator.backward

    def mark_backward(*given: Any, **keywords: Any) -> None:
        watch.phases.begin(trainer.state.global_step + 1, "backward")
        backward(*given, **keywords)
        watch.phases.begin(trainer.state.global_step + 1, "optimizer")

    trainer.accelerator.backward = mark_backward
    return trainer


def make_watch(phases: Phases, spec: Spec) -> Any:
    import torch
    import transformers

    class Watch(transformers.TrainerCallback):
        def __init__(self) -> None:
            self.phases = phases
            self.steps: list[dict[str, int]] = []
            self.evals: list[dict[str, int]] = []
            self.saves: list[dict[str, int]] = []
            self.seconds: list[float] = []

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            if not spec["loop"].get("gc"):
                gc.collect()
                gc.disable()
            torch.cuda.reset_peak_memory_stats()
            torch.cuda.synchronize()
            self.began = time.perf_counter()

        def on_step_end(self, _args: Any, state: Any, *_: Any, **__: Any) -> None:
            torch.cuda.synchronize()
            self.seconds.append(time.perf_counter() - self.began)
            self.steps.append(peaks())
            torch.cuda.reset_peak_memory_stats()
            self.phases.begin(state.global_step, "evaluation")
            gc.enable()

        def on_evaluate(self, *_: Any, **__: Any) -> None:
            self.evals.append(peaks())
            torch.cuda.reset_peak_memory_stats()

        def on_save(self, *_: Any, **__: Any) -> None:
            self.saves.append(peaks())
            torch.cuda.reset_peak_memory_stats()

    return Watch()


def run(spec: Spec, trace: Path | None = None, on_gpu: bool = False) -> dict[str, Any]:
    import torch

    if parallel := spec.get("parallel"):
        join_group(parallel["world"])
        if parallel["strategy"] == "deepspeed":
            tame_deepspeed()
        if parallel.get("prepare") == "axolotl":
            importlib.import_module("axolotl.monkeypatch.accelerate.fsdp2").patch_accelerate_fsdp2()
    answers = Measured() if on_gpu else Answers(spec)
    samples, phases, modules = Samples(spec), Phases(), real_trace.Modules()
    watch = make_watch(phases, spec)
    with contextlib.ExitStack() as stack:
        profile: Any = None
        if trace:
            torch.cuda.memory._record_memory_history(max_entries=10_000_000, context=None)
            activities = [torch.profiler.ProfilerActivity.CPU]
            profile = stack.enter_context(torch.profiler.profile(activities=activities, profile_memory=True, record_shapes=True))
        phases.begin(0, "init")
        arguments: Any = None
        if spec["loop"]["kind"] not in ("hand", "automodel"):
            arguments = make_arguments(spec, samples, stack.enter_context(tempfile.TemporaryDirectory()))
        setup: Any = None
        if spec["loop"]["kind"] == "automodel":
            setup = automodel.distributed_setup(spec)
            model, peft_config = automodel.make_model(spec, setup), None
        else:
            model, peft_config = make_model(spec, answers)
        if setup:
            named = {p.data_ptr(): n for n, p in [*model.named_parameters(), *model.named_buffers()]}
            if trace:
                modules.watch(model)
            model.register_forward_pre_hook(answers.at_the_door, with_kwargs=True)
            recipe = automodel.make_recipe(spec, setup, model, make_optimizers(spec["loop"]["optimizer"], model))
            truth: dict[str, Any] = {"steps": automodel.train(spec, recipe, samples, phases, peaks)}
        elif spec["loop"]["kind"] == "hand":
            named = {p.data_ptr(): n for n, p in [*model.named_parameters(), *model.named_buffers()]}
            if trace:
                modules.watch(model)
            model.register_forward_pre_hook(answers.at_the_door, with_kwargs=True)
            truth = {"steps": run_by_hand(spec, model, samples, phases)}
        else:
            trainer = make_trainer(spec, arguments, model, peft_config, samples, watch, answers)
            named = {p.data_ptr(): n for n, p in [*trainer.model.named_parameters(), *trainer.model.named_buffers()]}
            if trace:
                modules.watch(trainer.model)
            for called in (trainer.model, getattr(trainer, "ref_model", None)):
                if called is not None:
                    called.register_forward_pre_hook(answers.at_the_door, with_kwargs=True)
            trainer.train()
            phases.end()
            truth = {"steps": watch.steps} | ({"step_seconds": watch.seconds} if on_gpu else {})
            truth |= {key: rows for key, rows in (("evals", watch.evals), ("saves", watch.saves)) if rows}
            model = trainer.model
    versions = {m: sys.modules[m].__version__ for m in ("torch", "transformers", "accelerate", "trl", "peft") if m in sys.modules}
    truth["versions"] = versions
    truth["trainable"] = sum(p.numel() for p in model.parameters() if p.requires_grad)
    if trace:
        count = real_trace.write(trace, profile, torch.cuda.memory._snapshot()["device_traces"][0], modules, named)
        print(f"{trace}: {count} events")
    return truth


def measured_line(spec: Spec) -> dict[str, Any]:
    """Of a run on the GPU at hand, as tests/measured/README.md has it."""
    import torch

    truth = run(spec, on_gpu=True)
    properties = torch.cuda.get_device_properties(0)
    versions = truth.pop("versions") | {"cuda": torch.version.cuda}
    job = job_of(spec)
    job["gpu"] = gpu_of(properties.name, properties.total_memory, properties.major, properties.minor)
    of_two = {key: ".".join(versions[key].split("+")[0].split(".")[:2]) for key in ("torch", "transformers")}
    job["runtime"] = {key: value for key, value in job["runtime"].items() if key != "cudnn"} | of_two
    rows = [row for key in ("steps", "evals", "saves") for row in truth.get(key, [])]
    measured = {key: max(row[key] for row in rows) for key in ("allocated", "reserved")}
    about = {"source": "oometer", "citation": "tools/trainer.py", "job": job, "measured": measured, "device": properties.name}
    return {"name": spec["name"], **about, "truth": truth, "versions": versions, "date": datetime.date.today().isoformat()}


def record(spec: Spec, out: Path | None, on_gpu: bool = False) -> None:
    if "kernels" in spec["model"]:
        use_kernels(spec["model"]["kernels"])
    line = json.dumps(measured_line(spec) if on_gpu else {"name": spec["name"], "job": job_of(spec), "truth": run(spec)})
    if not out:
        print(line)
        return
    with out.open("a") as file:
        file.write(line + "\n")


def forked(do: Callable[[], None]) -> bool:
    """Whether a process of its own did it without an error."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            do()
            sys.stdout.flush()
            code = 0
        except BaseException:
            traceback.print_exc(limit=-4)
            sys.stderr.flush()
        os._exit(code)
    return os.waitpid(pid, 0)[1] == 0


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("spec", type=Path, nargs="+")
    arguments.add_argument("--ghost", help="the folder of the ghost's libraries (or GHOST_DIR)")
    arguments.add_argument("--gpu", action="store_true", help="run on the GPU at hand")
    arguments.add_argument("--trace", type=Path, help="write every malloc and free here")
    arguments.add_argument("--job", action="store_true", help="print the job only")
    arguments.add_argument("-o", "--out", type=Path, help="add the cases to this file")
    given = arguments.parse_args()
    specs = [(lambda d: d.get("spec", d))(json.loads(path.read_text())) for path in given.spec]
    if given.job:
        for spec in specs:
            print(json.dumps(job_of(spec)))
        return
    if not given.gpu:
        enter_ghost(given.ghost)
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")
    own = llamafactory.names_to_import() if any(spec["loop"]["kind"] in LLAMAFACTORY for spec in specs) else ()
    if given.trace:
        run(specs[0], given.trace)
        return
    own += automodel.NAMES if any(spec["loop"]["kind"] == "automodel" for spec in specs) else ()
    trl = ("trl.SFTTrainer",) if any(spec["loop"]["kind"] in TRL for spec in specs) else ()
    import_for_forks("transformers.Trainer", *trl, *own)
    for spec in specs:
        print(spec["name"], "ok" if forked(lambda spec=spec: record(spec, given.out, given.gpu)) else "FAILED", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
