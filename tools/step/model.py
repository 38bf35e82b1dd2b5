"""A Hugging Face model, or a plain module, from a spec: its weights, its adapters, what of it trains."""

from __future__ import annotations

import contextlib
import importlib
import json
import types
from typing import Any

from step.kernels import use_kernels
from step.patches import apply_liger, chunk_cross_entropy, cut_cross_entropy, enable_checkpointing, fuse_adapters, match_in_order, quantize_experts, use_flash_attn
from step.spec import DTYPES, Spec

METHODS = {"motion_centric_masking_ratio": "everest", "f_arch": "meft", "task_reduction_factor": "lst", "m_channels": "revnet"}  # of papers, by a key of theirs: our own models of them


def build_model(spec: Spec, device: str = "cuda", inside: contextlib.AbstractContextManager[Any] | None = None) -> Any:
    """`inside`: what the model itself is made in, but not its adapters."""
    if "python" in spec["model"]:
        return plain_model(spec, device)
    if spec["train"].get("attn") == "flash_attention_2":
        use_flash_attn()
    if spec["model"].get("kernels"):
        use_kernels(spec["model"]["kernels"])
    import torch
    import transformers

    train, described = spec["train"], spec["model"]
    ours = [module for key, module in METHODS.items() if described["config"].get(key) is not None]
    cls = getattr(importlib.import_module(ours[0]) if ours else transformers, described["class"])
    config_class = getattr(transformers, described["config_class"]) if "config_class" in described else cls.config_class
    config = config_class(**json.loads(json.dumps(described["config"])))
    if "objects" in spec.get("inputs", {}).get("labels", {}) or described["class"].startswith("Mask2Former"):
        match_in_order()
    if described.get("experts"):
        config._experts_implementation = described["experts"]
    if train.get("quantization"):
        model = quantized_model(cls, config, train)
        return prepare(model, train)
    modeling = importlib.import_module(cls.__module__)
    if modeling.__name__.rpartition(".")[2] in (
        "modeling_wav2vec2",
        "modeling_hubert",
        "modeling_wavlm",
        "modeling_unispeech",
        "modeling_unispeech_sat",
        "modeling_wav2vec2_bert",
    ):  # torch.Tensor(n) knows no default device
        modeling.torch = types.SimpleNamespace(**{**vars(torch), "Tensor": torch.empty})
    if modeling.__name__.rpartition(".")[2] == "modeling_diffllama":  # nor does torch.normal
        modeling.torch = types.SimpleNamespace(**{**vars(torch), "normal": lambda mean, std, size: torch.empty(size)})
    if modeling.__name__.rpartition(".")[2] == "modeling_gemma3n":  # one number's: NVRTC compiles it while it runs, which the ghost has not
        torch.erfinv = torch.exp
    if modeling.__name__.rpartition(".")[2] == "modeling_perception_lm":  # the same of timm's initial values
        torch.Tensor.erfinv_ = torch.Tensor.exp_
    base = transformers.PreTrainedModel
    initialize, base.initialize_weights = base.initialize_weights, lambda self: None  # values do not matter
    try:
        with inside or contextlib.nullcontext(), torch.device(device):
            dtype = getattr(torch, DTYPES[train["precision"]])
            model = cls._from_config(config, attn_implementation=attention_of(config, train), dtype=dtype)
            kept = tuple(f".{name}" for name in getattr(model, "_keep_in_fp32_modules_strict", None) or ())  # as from_pretrained leaves them
            for path, module in model.named_modules():
                if f".{path}".endswith(kept):
                    module.float()
            for path, parameter in model.named_parameters():
                if f".{path}".endswith(kept):
                    parameter.data = parameter.data.float()
            if config.model_type == "deberta":  # its biases are made in float32; from_pretrained casts them
                model.to(dtype)
            if config.model_type in ("deformable_detr", "mask2former"):  # its level_embed is made by torch.Tensor, on the host
                model.to(device)
    finally:
        base.initialize_weights = initialize
    return prepare(model, train)


def attention_of(config: Any, train: dict[str, Any]) -> str | dict[str, str] | None:
    """The attn_implementation to ask for. None: transformers chooses for each part, sdpa where its class supports it, else eager.
    Gemma 4's audio encoder supports eager only, whatever is asked for.
    """
    kind: str = train.get("attn", "sdpa")
    if kind == "sdpa":
        return None
    hears = config.model_type == "gemma4" and getattr(config, "audio_config", None) is not None
    return {"": kind, "audio_config": "eager"} if hears and kind != "eager" else kind


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
    if options.pop("quantize_moe_experts", False):
        quantize_experts()
    dtype = getattr(torch, DTYPES[train["precision"]])
    with tempfile.TemporaryDirectory() as folder:
        saved = cls._from_config(config, dtype=dtype)
        saved.should_save_on_this_rank = lambda _: True  # each rank has a folder of its own
        saved.save_pretrained(folder)
        del saved
        model = cls.from_pretrained(
            folder,
            quantization_config=transformers.BitsAndBytesConfig(**options),
            dtype=dtype,
            attn_implementation=attention_of(config, train),
            device_map={"": 0},
        )
    return prepare_model_for_kbit_training(model, use_gradient_checkpointing=False) if prepared else model


def cast_to_float32(model: Any, names: list[str]) -> None:
    """Modules by a part of their path, or, behind a dot, by their name."""
    for path, module in model.named_modules():
        if any(f".{path}".endswith(name) if name.startswith(".") else name in path for name in names):
            module.float()


def prepare(model: Any, train: dict[str, Any]) -> Any:
    import torch

    cast_to_float32(model, train.get("float32_modules", []))

    for part in (model.config, getattr(model.config, "text_config", None)):
        if part is not None:
            part.use_cache = False
    model.train()
    choose_trainable(model, train)
    if train.get("freeze_feature_encoder"):
        model.freeze_feature_encoder()
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
    if train.get("cut_cross_entropy"):
        cut_cross_entropy(model)
    if train.get("lora_kernels"):
        fuse_adapters(model, train["lora_kernels"])
    for path in train.get("eval_modules", []):
        model.get_submodule(path).eval()
    return model


def choose_trainable(model: Any, train: dict[str, Any]) -> None:
    only = train.get("only")
    for name, parameter in model.named_parameters():
        frozen = any(pattern in name for pattern in train.get("freeze", []))
        if frozen or (only and not any(pattern in name for pattern in only)):
            parameter.requires_grad_(False)


def task_of_decoder(name: str) -> str | None:
    """The task_type of a decoder that classifies, as the job has it: peft then trains the head, too. Encoders have none."""
    import transformers

    for head, task in (("ForSequenceClassification", "SEQ_CLS"), ("ForTokenClassification", "TOKEN_CLS"), ("ForQuestionAnswering", "QUESTION_ANS")):
        base = name.removesuffix(head)
        if base != name and (hasattr(transformers, f"{base}ForCausalLM") or hasattr(transformers, f"{base}LMHeadModel") or base == "Gemma3"):
            return None if hasattr(transformers, f"{base}ForMaskedLM") else task
    return None


def add_adapters(model: Any, train: dict[str, Any]) -> Any:
    from peft import IA3Config, LoraConfig, get_peft_model

    config_class = LoraConfig if train.get("lora") else IA3Config
    options = dict(train.get("lora") or train["ia3"])
    also = options.pop("also_train", [])
    autocast = options.pop("autocast_adapter_dtype", True)
    if train.get("ckpt"):
        model.enable_input_require_grads()
    if task := task_of_decoder(type(model).__name__):
        options["task_type"] = task
    model = get_peft_model(model, config_class(**options), autocast_adapter_dtype=autocast)
    for name, parameter in model.named_parameters():
        if any(pattern in name for pattern in also):
            parameter.requires_grad_(True)
    return model
