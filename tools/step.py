"""One training step of a Hugging Face model, or its generation, as an oometer job describes it: what the reference tools share.

A *spec* is the flat form that the builders below read: the model's class and config, the input tensors, the training options.
`spec_of(document)` makes one from a job, from a reference case that holds a job, or takes the "spec" of a case as it is.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Spec = dict[str, Any]
PRESETS = Path(__file__).resolve().parent.parent / "presets"

DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "amp_bf16": "float32", "amp_fp16": "float32"}
CLASSES = {
    "llama": "LlamaForCausalLM",
    "llava": "LlavaForConditionalGeneration",
    "clip": "CLIPModel",
    "clip_vision_model": "CLIPVisionModel",
    "llava_next": "LlavaNextForConditionalGeneration",
    "qwen2_vl": "Qwen2VLForConditionalGeneration",
    "qwen2_5_vl": "Qwen2_5_VLForConditionalGeneration",
    "smolvlm": "SmolVLMForConditionalGeneration",
    "idefics3": "Idefics3ForConditionalGeneration",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
}
# The dotted names of a model's tower and projector.
PARTS = {"smolvlm": ("vision_model", "connector"), "idefics3": ("vision_model", "connector")}
QWEN_VL = ("qwen2_vl", "qwen2_5_vl")
QWEN_VL_STAGES: dict[str, dict[str, list[str]]] = {
    "pretrain": {"only": ["visual.merger"]},
    "finetune": {"freeze": ["visual.patch_embed", "visual.blocks"]},
    "full": {},
}


# ---------------------------------------------------------------------------------------------- from a job to a spec


def tensor(shape: list[int], dtype: str = "int64", fill: int = 1) -> dict[str, Any]:
    return {"shape": shape, "dtype": dtype, "fill": fill}


def model_of(job: dict[str, Any]) -> dict[str, Any]:
    model = job["model"]
    config: dict[str, Any] = {}
    if "preset" in model:
        found = [p for p in PRESETS.rglob("*.json") if p.stem == model["preset"]]
        if not found:
            raise SystemExit(f"no preset called {model['preset']} under {PRESETS}")
        preset = json.loads(found[0].read_text())
        config = preset.get("config", preset)
    config = merged(config, model.get("config", {}))
    architectures = config.pop("architectures", None)
    name = architectures[0] if architectures else CLASSES.get(config.get("model_type", ""))
    if not name:
        raise SystemExit("the model's class is not known: give config.architectures")
    out = {"class": name, "config": config}
    if job.get("runtime", {}).get("experts"):
        out["experts"] = job["runtime"]["experts"]
    return out


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    out = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(out.get(key), dict)
        out[key] = merged(out[key], value) if both else value
    return out


def stage_of(stage: str, kind: str) -> dict[str, list[str]]:
    tower, projector = PARTS.get(kind, ("vision_tower", "multi_modal_projector"))
    no_grad = {"no_grad": [f"model.{tower}"]}
    return {"pretrain": {"only": [projector], **no_grad}, "finetune": {"freeze": [tower], **no_grad}, "full": {}}[stage]


ANYRES = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]  # LlavaNextConfig's default


def anyres_tiles(size: list[int], pinpoints: list[list[int]], tile: int) -> int:
    from transformers.models.llava_next.modeling_llava_next import image_size_to_num_patches

    return int(image_size_to_num_patches(size, pinpoints, tile))


def inputs_of(model: dict[str, Any], data: dict[str, Any], dtype: str) -> dict[str, Any]:
    config, batch = model["config"], data.get("micro_batch_size", 1)
    kind, sequence = config.get("model_type"), data.get("sequence_length")
    out: dict[str, Any] = {}
    if sequence:
        out["input_ids"] = tensor([batch, sequence])
        if kind != "clip":
            out["labels"] = tensor([batch, data.get("target_length", sequence)])
    vision = config.get("vision_config", config)
    images = batch * data.get("images_per_sample", 1)
    if kind in ("smolvlm", "idefics3"):
        tiles = data.get("images_per_sample", 1) * data.get("tiles", 1)
        if tiles:
            side = [vision.get("image_size", 224)] * 2
            out["pixel_values"] = tensor([batch, tiles, vision.get("num_channels", 3), *side], dtype)
    elif kind == "llava_next":
        if images:
            side = [vision.get("image_size", 336)] * 2
            size = data.get("image_size") or side
            tiles = data.get("tiles") or anyres_tiles(size, config.get("image_grid_pinpoints") or ANYRES, side[0])
            out["pixel_values"] = tensor([images, tiles, vision.get("num_channels", 3), *side], dtype)
            out["image_sizes"] = {"cpu_values": [size] * images}
    elif kind in ("llava", "clip", "clip_vision_model"):
        side = data.get("image_size") or [vision.get("image_size", 224)] * 2
        if images:
            out["pixel_values"] = tensor([images, vision.get("num_channels", 3), *side], dtype)
    elif kind in QWEN_VL:
        out |= qwen_vl_inputs(config, data, dtype)
    elif "vision_config" in config:
        raise SystemExit(f"inputs of a {kind} model are not made from a job: measure a case that lists them")
    if kind == "clip":
        out["return_loss"] = {"py": True}
    return out


def qwen_vl_inputs(config: dict[str, Any], data: dict[str, Any], dtype: str) -> dict[str, Any]:
    """Patches as the processor cuts them, and the positions that a collator finds for them (get_rope_index)."""
    batch, vision = data.get("micro_batch_size", 1), config.get("vision_config", {})
    images = batch * data.get("images_per_sample", 1)
    out: dict[str, Any] = {"position_ids": tensor([3, batch, data["sequence_length"]])}
    if not images:
        return out
    sizes = (("patch_size", 14), ("spatial_merge_size", 2), ("temporal_patch_size", 2))
    patch, merge, frames = (vision.get(key, default) for key, default in sizes)
    grid = data.get("grid_thw")
    if not grid:
        side = smart_resize(
            *data.get("image_size", [672, 448]), patch * merge, data.get("min_pixels", 3136), data.get("max_pixels", 12845056)
        )
        grid = [-(-data.get("frames", 1) // frames), *(s // patch for s in side)]
    features = vision.get("in_channels", 3) * frames * patch * patch
    out["pixel_values"] = tensor([images * math.prod(grid), features], dtype)
    out["image_grid_thw"] = {"values": [grid] * images}
    return out


def smart_resize(height: int, width: int, factor: int, min_pixels: int, max_pixels: int) -> tuple[int, int]:
    """transformers' models/qwen2_vl/image_processing_qwen2_vl.py, which cannot be imported without torchvision."""
    sides = height, width
    resized = [round(s / factor) * factor for s in sides]
    if math.prod(resized) > max_pixels:
        beta = math.sqrt(height * width / max_pixels)
        resized = [max(factor, math.floor(s / beta / factor) * factor) for s in sides]
    elif math.prod(resized) < min_pixels:
        beta = math.sqrt(min_pixels / (height * width))
        resized = [math.ceil(s * beta / factor) * factor for s in sides]
    return resized[0], resized[1]


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
        "precision": training.get("precision", "bf16").replace("-", "_"),
        "optimizer": "sgd_momentum" if name == "sgd" and optimizer.get("momentum") else name,
        "opt_impl": optimizer.get("implementation", "fused"),
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
    elif model["config"].get("model_type") in QWEN_VL:
        train |= QWEN_VL_STAGES[stage]
    elif "vision_config" in model["config"]:
        train |= stage_of(stage, model["config"].get("model_type", ""))
    if training.get("lora"):
        lora = training["lora"]
        train["lora"] = {"r": lora.get("rank", 8), "lora_alpha": lora.get("alpha", 8), "lora_dropout": lora.get("dropout", 0.0)}
        train["lora"] |= {k: lora[k] for k in ("bias", "target_modules", "modules_to_save", "also_train") if lora.get(k)}
        more = ("use_rslora", "use_dora", "lora_bias", "autocast_adapter_dtype")
        train["lora"] |= {k: lora[k] for k in more if k in lora}
    if training.get("ia3"):
        train["ia3"] = dict(training["ia3"])
    for key in ("liger", "chunked_cross_entropy", "save_on_cpu", "quantization", "keep_outputs"):
        if training.get(key):
            train[key] = training[key]
    spec: Spec = {
        "name": job["model"].get("name", job["model"].get("preset", "job")),
        "model": model,
        "batch": {"mbs": data.get("micro_batch_size", 1), "seq_len": data.get("sequence_length")},
        "inputs": inputs_of(model, data, DTYPES[train["precision"]]),
        "train": train,
        "steps": 2,
    }
    if training.get("loss"):
        spec["loss"] = training["loss"]
    if job.get("task") == "inference":
        spec["inference"] = inference_of(job.get("inference", {}))
        if spec["inference"]["cache"]["implementation"] == "static":  # _prefill cuts its inputs by a StaticLayer's length
            spec["item_int"] = -1 - spec["inference"]["turn_tokens"]
        spec["inputs"].pop("labels", None)
        spec["inputs"].pop("return_loss", None)
        processors_own(model["config"].get("model_type"), spec["inputs"])
        if more := spec["inference"]["turn_images"]:
            turn = inputs_of(model, data | {"images_per_sample": more}, DTYPES[train["precision"]])
            processors_own(model["config"].get("model_type"), turn)
            spec["inference"]["turn_inputs"] = {k: v for k, v in turn.items() if k not in ("input_ids", "labels")}
        if "input_ids" in spec["inputs"] and model["config"].get("model_type") != "clip":
            spec["inputs"]["attention_mask"] = tensor(spec["inputs"]["input_ids"]["shape"])
    if model["config"].get("model_type") in ("smolvlm", "idefics3"):  # how many tiles of each sample are not padding
        spec["item_int"] = data.get("images_per_sample", 1) * data.get("tiles", 1)
    if parallel.get("strategy", "none") != "none":
        spec["parallel"] = {**parallel, "world": parallel.get("data", 1), "param_groups": optimizer.get("param_groups", 2)}
        spec["parallel"].setdefault("ds_config", plain_deepspeed(parallel.get("zero_stage", 2)))
    return spec


def processors_own(kind: str | None, inputs: dict[str, Any]) -> None:
    """What else the processors of these models give to generate()."""
    if kind in ("smolvlm", "idefics3") and "pixel_values" in inputs:
        batch, tiles, _, height, width = inputs["pixel_values"]["shape"]
        inputs["pixel_attention_mask"] = tensor([batch, tiles, height, width])
    if kind in QWEN_VL:
        inputs.pop("position_ids")
        pixel_values, grid = inputs.pop("pixel_values", None), inputs.pop("image_grid_thw", None)
        if not grid:
            return
        grids = grid["values"]
        inputs["mm_token_type_ids"] = tensor(inputs["input_ids"]["shape"])
        if grids[0][0] == 1:
            inputs |= {"pixel_values": pixel_values, "image_grid_thw": grid}
        else:
            inputs |= {"pixel_values_videos": pixel_values, "video_grid_thw": grid}
            if kind == "qwen2_5_vl":
                inputs["second_per_grid_ts"] = {"values": [1.0] * len(grids)}


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


# ---------------------------------------------------------------------------------------------- the ghost device


def ghost_environment(folder: str | Path, capability: str = "80", gibibytes: int = 16384) -> dict[str, str]:
    """What a process needs to see the ghost device: a stand-in for the CUDA libraries whose kernels do nothing."""
    folder = Path(folder).resolve()
    libraries = [folder / "libghost.so", folder / "libghostnvml.so"]
    if not all(p.exists() for p in libraries):
        raise SystemExit(f"no ghost in {folder}: build it first")
    quiet = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TOKENIZERS_PARALLELISM": "false"}
    quiet |= {"PYTHONWARNINGS": "ignore", "TORCH_CPP_LOG_LEVEL": "ERROR", "OMP_NUM_THREADS": "1"}
    return {
        "LD_PRELOAD": ":".join(map(str, libraries)),
        "TRANSFORMERS_DISABLE_TORCH_CHECK": "1",
        "GHOST_MEM_GIB": os.environ.get("GHOST_MEM_GIB", str(gibibytes)),
        "GHOST_SM": os.environ.get("GHOST_SM", capability),
        **quiet,
    }


def enter_ghost(folder: str | Path | None, capability: str = "80") -> None:
    """Starts this program again with the ghost device loaded, unless it already is."""
    folder = folder or os.environ.get("GHOST_DIR")
    if not folder:
        raise SystemExit("name the ghost's folder: --ghost DIR, or GHOST_DIR in the environment")
    wanted = ghost_environment(folder, capability)
    if os.environ.get("LD_PRELOAD") != wanted["LD_PRELOAD"]:
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **wanted})


# ---------------------------------------------------------------------------------------------- reads of device values


class DeviceValues:
    """Answers what real kernels would have computed, on a device whose kernels do nothing.

    A bool read is true, another scalar is 1.0 or `integer`, and so is each element of an integer tensor's tolist(); nonzero() finds
    everything, or as many elements as masked_scatter's source had. The real operators run all the same, so what they allocate on the
    way is theirs: nonzero() reads its count from its first scratch block, so the count is put where that block will be.
    """

    def __init__(
        self, integer: int | Callable[[Any], int] = 0, device_type: str = "CUDA", active: Callable[[], bool] = lambda: True
    ) -> None:
        import torch

        self.torch, self.integer, self.active = torch, integer, active
        self.selected: int | None = None
        self.library = torch.library.Library("aten", "IMPL")
        self.library.impl("_local_scalar_dense", self.scalar, device_type)
        self.library.impl("nonzero", self.nonzero, device_type)
        self.library.impl("masked_scatter_backward", self.masked_scatter_backward, device_type)
        self.tolist = torch.Tensor.tolist
        if isinstance(integer, int):  # else whoever knows the integers answers for lists of them too
            torch.Tensor.tolist = lambda tensor: self.list(tensor)  # noqa: PLW0108  # a bound method would not get the tensor

    def scalar(self, tensor: Any) -> Any:
        torch = self.torch
        if not self.active():
            return ctypes_value(torch, tensor)
        if tensor.dtype == torch.bool:
            return True
        if tensor.dtype.is_floating_point:
            return 1.0
        return self.integer if isinstance(self.integer, int) else self.integer(tensor)

    def list(self, tensor: Any) -> Any:
        if not tensor.is_cuda or tensor.dtype.is_floating_point or not self.integer or not self.active():
            return self.tolist(tensor)
        return self.torch.full(tuple(tensor.shape), self.integer, device="cpu").tolist()

    def nonzero(self, tensor: Any) -> Any:
        torch = self.torch
        count = tensor.numel() if self.selected is None else self.selected
        tensor = tensor.contiguous()
        block = torch.empty(1, dtype=torch.int32, device=tensor.device)
        ctypes.c_int32.from_address(block.data_ptr()).value = count
        del block
        out = torch.empty(0, dtype=torch.int64, device=tensor.device)
        result = torch.nonzero(tensor, out=out)
        if result.size(0) != count:
            raise RuntimeError(f"nonzero() found {result.size(0)} elements instead of {count}")
        return result

    def masked_scatter_backward(self, grad: Any, mask: Any, sizes: list[int]) -> Any:
        self.selected = math.prod(sizes)
        try:
            return grad.masked_select(mask).view(sizes)
        finally:
            self.selected = None


def read_grids(spec: Spec) -> int | Callable[[Any], int]:
    """Qwen-VL's tower reads, on the device, how long its attention's sequences are: they are told it here.

    So is get_rope_index, which tokens are an image's. Returns the integer that an operator reads on the way: how many
    sequences there are (repeat_interleave), how many bounds windows have (unique_consecutive), a grid's own numbers.
    """
    given = spec["inputs"].get("image_grid_thw") or spec["inputs"].get("video_grid_thw")
    if not given or "values" not in given:
        return spec.get("item_int", 0)
    import torch
    from transformers import vision_utils

    vision = spec["model"]["config"].get("vision_config", {})
    grid = torch.tensor(given["values"])
    patch, merge = vision.get("patch_size", 14), vision.get("spatial_merge_size", 2)
    bounds = [vision_utils.get_vision_cu_seqlens(grid)]
    if spec["model"]["class"] == CLASSES["qwen2_5_vl"]:
        bounds.append(vision_utils.get_vision_window_index(grid, merge, vision.get("window_size", 112), patch)[1])
    lengths = {len(b) - 1: b.diff().tolist() for b in bounds}
    features = (grid.prod(-1) // merge**2).tolist()
    tolist = torch.Tensor.tolist
    answers: dict[str, Callable[[int], list[int]]] = {
        "get_vision_position_ids": lambda images: [merge] * images,
        "forward": lambda sequences: lengths[sequences],
        "<listcomp>": lambda sequences: lengths[sequences],
        "get_image_features": lambda images: features,
        "get_video_features": lambda images: features,
        "get_rope_index": lambda tokens: modalities(spec, tokens, features),
    }

    def answer(self: Any) -> Any:
        caller = sys._getframe(1).f_code.co_name
        if self.dim() != 1 or caller not in answers:
            return tolist(self)
        return answers[caller](len(self))

    torch.Tensor.tolist = answer
    torch.Tensor.prod = lambda self, dim: self.new_empty(self.shape[:dim])  # the profiler falls over the real one's kernel

    def count(tensor: Any) -> int:
        if tensor.dim() == 0 and tensor.storage_offset() < grid.numel() and sys._getframe(2).f_code.co_name == "get_vision_position_ids":
            return int(grid.flatten()[tensor.storage_offset()])
        frame: Any = sys._getframe(2)
        while frame and frame.f_code.co_name != "get_vision_window_index":
            frame = frame.f_back
        return len(bounds[1]) if frame else len(bounds[0]) - 1

    return count


def modalities(spec: Spec, tokens: int, features: list[int]) -> list[int]:
    """A prompt's mm_token_type_ids: a token of text before each image or video, the rest of the text after the last."""
    own = features[: len(features) // spec["batch"]["mbs"]]
    vision = 2 if "video_grid_thw" in spec["inputs"] else 1
    kinds = [kind for length in own for kind in (0, *[vision] * length)]
    return kinds + [0] * (tokens - len(kinds))


def ctypes_value(torch: Any, tensor: Any) -> Any:
    """What the ghost's memory holds, read directly."""
    size = tensor.element_size()
    raw = bytearray(ctypes.string_at(tensor.data_ptr(), size))
    return torch.frombuffer(raw, dtype=tensor.dtype).item()


# ---------------------------------------------------------------------------------------------- model, batch, optimizer, step


def build_model(spec: Spec, device: str = "cuda", inside: contextlib.AbstractContextManager[Any] | None = None) -> Any:
    """`inside`: what the model itself is made in, but not its adapters."""
    if "python" in spec["model"]:
        return plain_model(spec, device)
    import torch
    import transformers

    train, described = spec["train"], spec["model"]
    cls = getattr(transformers, described["class"])
    config_class = getattr(transformers, described.get("config_class") or cls.config_class.__name__)
    config = config_class(**json.loads(json.dumps(described["config"])))
    if described.get("experts"):
        config._experts_implementation = described["experts"]
    if train.get("quantization"):
        model = quantized_model(cls, config, train)
        return prepare(model, train)
    base = transformers.PreTrainedModel
    initialize, base.initialize_weights = base.initialize_weights, lambda self: None  # values do not matter
    try:
        with inside or contextlib.nullcontext(), torch.device(device):
            dtype = getattr(torch, DTYPES[train["precision"]])
            model = cls._from_config(config, attn_implementation=train.get("attn", "sdpa"), dtype=dtype)
    finally:
        base.initialize_weights = initialize
    return prepare(model, train)


def plain_model(spec: Spec, device: str) -> Any:
    """A torch.nn.Module by its callable, "torchvision.models:resnet50": made elsewhere, then brought to the device."""
    import export_graph
    import torch

    described, train = spec["model"], spec["train"]
    with torch.device("meta"):
        model = export_graph.load(described["python"], described.get("arguments"))
    choose_trainable(model, train)
    model = model.to(getattr(torch, DTYPES[train["precision"]])).to_empty(device=device)
    forward = model.forward

    def called(labels: Any = None, **inputs: Any) -> Any:
        out = forward(*inputs.values())
        if labels is None:
            return {spec["loss"]: out if isinstance(out, torch.Tensor) else out[0]}
        return {"loss": torch.nn.functional.cross_entropy(out if isinstance(out, torch.Tensor) else out[0], labels), "out": out}

    model.forward = called
    return model


def quantized_model(cls: Any, config: Any, train: dict[str, Any]) -> Any:
    """from_pretrained with a BitsAndBytesConfig, of a checkpoint that is made for it, and prepare_model_for_kbit_training."""
    import tempfile

    import torch
    import transformers
    from peft import prepare_model_for_kbit_training

    options = dict(train["quantization"])
    prepared = options.pop("prepare_model_for_kbit_training", True)
    dtype = getattr(torch, DTYPES[train["precision"]])
    with tempfile.TemporaryDirectory() as folder:
        cls._from_config(config, dtype=dtype).save_pretrained(folder)
        model = cls.from_pretrained(
            folder,
            quantization_config=transformers.BitsAndBytesConfig(**options),
            dtype=dtype,
            attn_implementation=train.get("attn", "sdpa"),
            device_map={"": 0},
        )
    return prepare_model_for_kbit_training(model, use_gradient_checkpointing=False) if prepared else model


def prepare(model: Any, train: dict[str, Any]) -> Any:
    import torch

    for part in (model.config, getattr(model.config, "text_config", None)):
        if part is not None:
            part.use_cache = False
    model.train()
    choose_trainable(model, train)
    for path in train.get("no_grad", []):
        part = model.get_submodule(path)
        for module in part if isinstance(part, torch.nn.ModuleList) else [part]:
            module.forward = torch.no_grad()(module.forward)
    if train.get("lora") or train.get("ia3"):
        model = add_adapters(model, train)
    if train.get("ckpt"):
        reentrant = train["ckpt"] == "reentrant"
        if reentrant and train.get("input_require_grads"):
            model.enable_input_require_grads()
        enable_checkpointing(model, reentrant, train.get("ckpt_options", {}))
    if train.get("liger"):
        apply_liger(model, train["liger"])
    if train.get("chunked_cross_entropy"):
        chunk_cross_entropy(train["chunked_cross_entropy"])
    for path in train.get("eval_modules", []):
        model.get_submodule(path).eval()
    return model


def enable_checkpointing(model: Any, reentrant: bool, options: dict[str, Any]) -> None:
    more = {"every_n_layers": options["every"]} if "every" in options else {}
    more |= {"offload": True} if options.get("offload") else {}
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant}, **more)
    if "segments" not in options:
        return
    for module in model.modules():
        if hasattr(module, "gradient_checkpointing"):
            module.gradient_checkpointing = False
    for name, segments in options["segments"].items():
        for path, stack in model.named_modules():
            if path == name or path.endswith("." + name):
                for segment in segments:
                    checkpoint_together(stack, *([segment, segment + 1] if isinstance(segment, int) else segment), reentrant)


def checkpoint_together(layers: Any, begin: int, end: int, reentrant: bool) -> None:
    """Layers [begin, end) are one checkpointed region: the first one runs them all."""
    import functools

    from torch.utils.checkpoint import checkpoint

    forwards = [layer.forward for layer in layers[begin:end]]

    def run(hidden_states: Any, *more: Any, **keywords: Any) -> Any:
        for forward in forwards:
            hidden_states = forward(hidden_states, *more, **keywords)
        return hidden_states

    layers[begin].forward = lambda *given, **keywords: checkpoint(functools.partial(run, **keywords), *given, use_reentrant=reentrant)
    for layer in layers[begin + 1 : end]:
        layer.forward = lambda x, *_, **__: x


def apply_liger(model: Any, options: Any) -> None:
    """apply_liger_kernel_to_MODEL. Triton's kernels are not launched: what is around them runs."""
    from triton.runtime.jit import JITFunction

    JITFunction.run = lambda *_, **__: None
    JITFunction.__getitem__ = lambda *_: lambda *_, **__: None
    from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN
    from transformers.trainer_utils import unwrap_peft_model

    inner = unwrap_peft_model(model)
    MODEL_TYPE_TO_APPLY_LIGER_FN[inner.config.model_type](model=inner, **(options if isinstance(options, dict) else {}))


def chunk_cross_entropy(chunks: int) -> None:
    """The loss of torchtune 0.6's CEWithChunkedOutputLoss where Axolotl puts it: pieces of the sequence, float32 one at a time."""
    import torch.nn.functional as F
    from transformers.loss import loss_utils

    def loss_of(logits: Any, labels: Any, *_: Any, ignore_index: int = -100, **__: Any) -> Any:
        labels = F.pad(labels, (0, 1), value=ignore_index)
        shift_labels = labels[..., 1:].contiguous()
        logit_chunks = list(logits.chunk(chunks, dim=1))
        return summed(logit_chunks, shift_labels, ignore_index)

    def summed(logits: Any, labels: Any, ignore_index: int) -> Any:
        total_elements = (labels != ignore_index).sum()
        labels = [piece.reshape(-1) for piece in labels.chunk(chunks, dim=1)]
        logits = [piece.reshape(-1, piece.size(-1)) for piece in logits]
        total_loss = 0.0
        for logits_chunk, labels_chunk in zip(logits, labels, strict=False):
            total_loss += F.cross_entropy(logits_chunk.float(), labels_chunk, ignore_index=ignore_index, reduction="sum")
        return total_loss / total_elements

    for kind in ("ForCausalLM", "ForConditionalGeneration"):
        loss_utils.LOSS_MAPPING[kind] = loss_of


def choose_trainable(model: Any, train: dict[str, Any]) -> None:
    only = train.get("only")
    for name, parameter in model.named_parameters():
        frozen = any(pattern in name for pattern in train.get("freeze", []))
        if frozen or (only and not any(pattern in name for pattern in only)):
            parameter.requires_grad_(False)


def add_adapters(model: Any, train: dict[str, Any]) -> Any:
    from peft import IA3Config, LoraConfig, get_peft_model

    config_class = LoraConfig if train.get("lora") else IA3Config
    options = dict(train.get("lora") or train["ia3"])
    also = options.pop("also_train", [])
    autocast = options.pop("autocast_adapter_dtype", True)
    if train.get("ckpt"):
        model.enable_input_require_grads()
    model = get_peft_model(model, config_class(**options), autocast_adapter_dtype=autocast)
    for name, parameter in model.named_parameters():
        if any(pattern in name for pattern in also):
            parameter.requires_grad_(True)
    return model


def make_inputs(spec: Spec, device: str = "cuda") -> dict[str, Any]:
    import torch

    out: dict[str, Any] = {}
    for name, given in spec["inputs"].items():
        if "cpu_values" in given:
            out[name] = torch.tensor(given["cpu_values"], dtype=getattr(torch, given.get("dtype", "int64")))
        elif "values" in given:
            out[name] = torch.tensor(given["values"], device=device)
        elif "py" in given:
            out[name] = given["py"]
        else:
            out[name] = torch.full(given["shape"], given.get("fill", 1), dtype=getattr(torch, given["dtype"]), device=device)
            if "image_tokens" in given:  # on a real GPU: the first n tokens are image placeholders
                token, count = given["image_tokens"]
                out[name][:, :count] = token
    return out


def make_optimizer(spec: Spec, parameters: list[Any], model: Any = None) -> Any:
    import torch

    train = spec["train"]
    if train.get("opt_impl", "").startswith("bnb-"):
        return bitsandbytes_optimizer(train, parameters, model)
    how = {"foreach": {"foreach": True}, "fused": {"fused": True}, "for-loop": {"foreach": False}, "default": {}}
    options = how[train.get("opt_impl", "foreach")]
    name = train.get("optimizer", "adamw")
    if name in ("adamw", "adam"):
        cls = torch.optim.AdamW if name == "adamw" else torch.optim.Adam
        return cls(parameters, lr=1e-5, weight_decay=train.get("weight_decay", 0.01 if name == "adamw" else 0.0), **options)
    momentum = 0.9 if name == "sgd_momentum" else 0.0
    return torch.optim.SGD(parameters, lr=1e-3, momentum=momentum, **options)


def bitsandbytes_optimizer(train: dict[str, Any], parameters: list[Any], model: Any) -> Any:
    """As Trainer makes it: embeddings keep 32 bits."""
    import bitsandbytes as bnb
    import torch

    if train.get("paged"):  # unified memory, which the ghost has none of: host memory in its place
        bnb.functional.get_paged = host_memory
        bnb.functional.prefetch_tensor = bnb.functional.fill = lambda *_, **__: None
    bits = int(train["opt_impl"].removeprefix("bnb-").removesuffix("bit"))
    cls = bnb.optim.AdamW if train["optimizer"] == "adamw" else bnb.optim.Adam
    optimizer = cls(parameters, lr=1e-5, optim_bits=bits, is_paged=train.get("paged", False))
    if bits == 8:
        manager = bnb.optim.GlobalOptimManager.get_instance()
        for module in model.modules():
            if isinstance(module, torch.nn.Embedding):
                manager.register_module_override(module, "weight", {"optim_bits": 32})
    return optimizer


def host_memory(*shape: int, dtype: Any, device: Any) -> Any:
    import torch

    tensor = torch.zeros(shape, dtype=dtype)
    tensor.is_paged, tensor.page_deviceid = True, device.index
    return tensor


@contextlib.contextmanager
def attention_choice(spec: Spec) -> Iterator[None]:
    """Forces one kernel of scaled_dot_product_attention where the spec names one."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    names = {
        "flash": SDPBackend.FLASH_ATTENTION,
        "efficient": SDPBackend.EFFICIENT_ATTENTION,
        "math": SDPBackend.MATH,
        "cudnn": SDPBackend.CUDNN_ATTENTION,
    }
    name = spec["train"].get("sdpa_kernel", "auto")
    with contextlib.nullcontext() if name == "auto" else sdpa_kernel(names[name]):
        yield


def autocast(spec: Spec, device: str) -> Any:
    import torch

    precision = spec["train"]["precision"]
    if not precision.startswith("amp_"):
        return contextlib.nullcontext()
    return torch.autocast(device, dtype=getattr(torch, DTYPES[precision[4:]]))


def saving(spec: Spec) -> Any:
    import torch

    where = spec["train"].get("save_on_cpu", "none")
    return contextlib.nullcontext() if where == "none" else torch.autograd.graph.save_on_cpu(pin_memory=where == "pinned")


def loss_of(spec: Spec, out: Any) -> Any:
    loss = out[spec["loss"]] if spec.get("loss") else out["loss"]
    return loss.float().mean() if loss.dim() else loss


Phase = Callable[[str], contextlib.AbstractContextManager[Any]]


def make_scaler(spec: Spec, believe: bool = False) -> Any:
    """The GradScaler that HF Trainer has beside autocast to fp16. `believe`: what it finds in weights of no meaning stops no step."""
    import torch

    if spec["train"]["precision"] != "amp_fp16":
        return None
    if believe:

        def take_step(_self: Any, optimizer: Any, state: Any, *given: Any, **keywords: Any) -> Any:
            sum(found.item() for found in state["found_inf_per_device"].values())
            return optimizer.step(*given, **keywords)

        torch.amp.GradScaler._maybe_opt_step = take_step
    return torch.amp.GradScaler("cuda")


def train_step(spec: Spec, model: Any, optimizer: Any, batch: dict[str, Any], phase: Phase, scaler: Any = None) -> None:
    """Forward and backward of each micro-batch, clipping and the optimizer, zero_grad; outputs die when the loss is computed, as in
    HF Trainer. With `keep_outputs` they and the loss live to the end of the step.
    """
    import torch

    steps = spec["train"].get("gradient_accumulation_steps", 1)
    for _ in range(steps):
        with phase("forward"):
            with saving(spec), autocast(spec, next(model.parameters()).device.type):
                out = model(**batch)
                loss = loss_of(spec, out)
            if not spec["train"].get("keep_outputs"):
                del out
            if steps > 1:
                loss = loss / steps
        with phase("backward"):
            (scaler.scale(loss) if scaler else loss).backward()
            if not spec["train"].get("keep_outputs"):
                del loss
    with phase("optimizer"):
        if spec["train"].get("clip_grad"):
            if scaler:
                scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], spec["train"]["clip_grad"])
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
    with phase("zero_grad"):
        optimizer.zero_grad(set_to_none=True)


def watch_generation(length_of: Callable[[], int], begin_decode: Callable[[], None]) -> None:
    """generate() tells where its prefill ends, and stops at its length: the ghost's tokens are no numbers to stop at."""
    from transformers.generation import utils

    prefill = utils.GenerationMixin._prefill

    def watched(self: Any, *given: Any, **keywords: Any) -> Any:
        outputs = prefill(self, *given, **keywords)
        begin_decode()
        return outputs

    def stop(_self: Any, unfinished: Any, _tokens: Any, length: int) -> bool:
        bool(unfinished.max() == 0)
        return length >= length_of()

    utils.GenerationMixin._prefill = watched
    utils.StopCheck.__call__ = stop


def watch_static_cache(past_of: Callable[[], int]) -> None:
    """SDPA goes without a mask where nothing is cached, which a StaticLayer keeps on the device: it is told here."""
    from transformers import masking_utils

    ignores = masking_utils._ignore_causal_mask_sdpa

    def answer(padding_mask: Any, queries: int, keys: int, offset: Any, *rest: Any) -> bool:
        found = ignores(padding_mask, queries, keys, offset, *rest)
        return found and (isinstance(offset, int) or ignores(padding_mask, queries, keys, past_of(), *rest))

    masking_utils._ignore_causal_mask_sdpa = answer


def make_cache(model: Any, options: dict[str, Any], length: int) -> Any:
    """A cache of one's own, as a conversation keeps it from one generate() to the next."""
    import transformers

    config, name = model.config.get_text_config(decoder=True), options["implementation"]
    if name in ("static", "offloaded_static"):
        longest = max(length, options.get("max_cache_len") or 0)
        return transformers.StaticCache(config=config, max_cache_len=longest, offloading=name == "offloaded_static")
    if name == "quantized":
        rest = {k: v for k, v in options.items() if k not in ("implementation", "backend")}
        return transformers.QuantizedCache(backend=options.get("backend", "quanto"), config=config, **rest)
    return transformers.DynamicCache(config=config, offloading=name == "offloaded")


def generate(spec: Spec, model: Any, batch: dict[str, Any], phase: Callable[[int, str], contextlib.AbstractContextManager[Any]]) -> None:
    """Turns of a conversation by greedy `generate`; images come with the first, and later ones' own; the cache is kept.

    A later turn's prompt is all that was said so far and `turn_tokens` more, as a chat template makes it. A model that does not
    generate runs forward once. Decoding is eager: no torch.compile.
    """
    import torch

    model.eval()
    config = getattr(model, "config", None)  # a plain module has none
    for part in (config, getattr(config, "text_config", None)):
        if part is not None:
            part.use_cache = True
    options = spec["inference"]
    if not hasattr(model, "generate"):
        with phase(1, "prefill"), torch.no_grad():
            model(**batch)
        return
    new, turns, more = options["new_tokens"], options["turns"], options["turn_tokens"]
    cache_options = options["cache"]
    given: dict[str, Any] = {"max_new_tokens": new, "do_sample": False, "disable_compile": True}
    if options["logits"] == "all":
        given["logits_to_keep"] = 0
    if options.get("prefill_chunk_size"):
        given["prefill_chunk_size"] = options["prefill_chunk_size"]
    rows, length = batch["input_ids"].shape
    total = turns * (new + more) - more + length
    if turns > 1:
        given["past_key_values"] = make_cache(model, cache_options, total - 1)
    elif cache_options["implementation"] != "dynamic":
        given["cache_implementation"] = cache_options["implementation"]
        config = {k: v for k, v in cache_options.items() if k != "implementation"}
        if config and cache_options["implementation"] == "static":
            given |= config
        elif config:
            given["cache_config"] = config
    wanted = 0
    stack = contextlib.ExitStack()
    turn = 1

    def begin_decode() -> None:
        stack.close()
        stack.enter_context(phase(turn, "decode"))

    watch_generation(lambda: wanted, begin_decode)
    watch_static_cache(lambda: turn - 1)
    for turn in range(1, turns + 1):  # noqa: B007
        wanted = length + new
        with stack:
            stack.enter_context(phase(turn, "prefill"))
            inputs = dict(batch)
            if turn > 1:
                inputs = {k: torch.ones((rows, length), dtype=torch.int64, device=model.device) for k in ("input_ids", "attention_mask")}
                inputs |= make_inputs({"inputs": options.get("turn_inputs", {})})
                batch |= inputs
            model.generate(**inputs, **given)
        length = wanted + more


def route_evenly() -> None:
    """Gives each expert as many tokens as any other, on a device that counts nothing: grouped_mm reads the offsets on the host."""
    import torch

    histc, cumsum, tokens = torch.histc, torch.cumsum, [0]

    def counted(given: Any, *arguments: Any, **keywords: Any) -> Any:
        tokens[0] = given.numel()
        return histc(given, *arguments, **keywords)

    def offsets(given: Any, *arguments: Any, **keywords: Any) -> Any:
        out = cumsum(given, *arguments, **keywords)
        if out.is_cuda and out.dtype is torch.int32 and out.dim() == 1:
            ends = [tokens[0] * (i + 1) // len(out) for i in range(len(out))]
            ctypes.memmove(out.data_ptr(), (ctypes.c_int32 * len(ends))(*ends), 4 * len(ends))
        return out

    torch.histc, torch.cumsum = counted, offsets


def quiet_torch() -> None:
    """Everything on one thread, no cuDNN: as the ghost device wants it."""
    import logging

    import torch

    torch.backends.cudnn.enabled = False
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.autograd.set_multithreading_enabled(False)
    logging.disable(logging.WARNING)
