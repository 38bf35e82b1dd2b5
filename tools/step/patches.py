"""What a spec changes in a model that is made: checkpointing, Liger's kernels, a loss by chunks."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

# Packages that stand for those whose kernels need a GPU to build.
PACKAGES = Path(__file__).resolve().parents[1] / "packages"


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


def match_in_order() -> None:
    """The costs of a detector's matcher, as they are read from a device whose kernels compute nothing, are no numbers: objects go to the first predictions."""
    import numpy
    import torch
    from transformers.loss import loss_for_object_detection, loss_rt_detr
    from transformers.models.mask2former import modeling_mask2former

    def linear_sum_assignment(costs: Any) -> Any:
        count = min(costs.shape)
        return numpy.arange(count), numpy.arange(count)

    for module in (loss_for_object_detection, loss_rt_detr, modeling_mask2former):
        module.linear_sum_assignment = linear_sum_assignment
    modeling_mask2former.requires_backends = lambda *_: None  # SciPy's
    torch.Tensor.prod = lambda self, dim: self.new_empty(self.shape[:dim])  # the profiler falls over the real one's kernel


def launch_nothing() -> None:
    """Triton's kernels are not launched: what is around them runs."""
    from triton.runtime.autotuner import Autotuner, Heuristics
    from triton.runtime.jit import JITFunction

    for kind in (JITFunction, Heuristics, Autotuner):
        kind.run = lambda *_, **__: None
        kind.__getitem__ = lambda *_: lambda *_, **__: None


def use_flash_attn() -> None:
    """transformers finds flash-attn's stand-in. Whether a single row holds several documents is read from the device: it holds one."""
    sys.path.insert(0, str(PACKAGES))
    import transformers.modeling_flash_attention_utils as flash
    from transformers.utils import import_utils

    for found in vars(import_utils).values():  # an image processor that a batch was asked of may have looked for it already
        if hasattr(found, "cache_clear"):
            found.cache_clear()
    ask = flash._is_packed_sequence

    def one_document(position_ids: Any, batch_size: int) -> bool:
        ask(position_ids, batch_size)
        return False

    flash._is_packed_sequence = one_document


def apply_liger(model: Any, options: Any) -> None:
    """apply_liger_kernel_to_MODEL."""
    launch_nothing()
    from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN
    from transformers.trainer_utils import unwrap_peft_model

    inner = unwrap_peft_model(model)
    apply = MODEL_TYPE_TO_APPLY_LIGER_FN[inner.config.model_type]
    takes = inspect.signature(apply).parameters
    options = dict(options) if isinstance(options, dict) else {}
    for name in ("geglu", "relu_squared"):  # Gemma's and Nemotron's names of that switch
        if "swiglu" in options and name in takes:
            options[name] = options.pop("swiglu")
    spread_tokens_evenly()
    apply(model=inner, **{key: value for key, value in options.items() if key in takes or value})


def spread_tokens_evenly() -> None:
    """How many tiles Liger's experts have is read from the device, to which no kernel has written: as many as with tokens spread evenly."""
    import torch
    from liger_kernel.ops import fused_moe

    compute = fused_moe.compute_routing_metadata

    def compute_routing_metadata(topk_indices: Any, experts: int, block: int = fused_moe.BLOCK_M_TOKEN) -> Any:
        usual, more = divmod(topk_indices.numel(), experts)
        tiles = more * -(-(usual + 1) // block) + (experts - more) * -(-usual // block)
        read = torch.Tensor.item
        torch.Tensor.item = lambda self: (read(self), tiles)[1]
        try:
            return compute(topk_indices, experts, block)
        finally:
            torch.Tensor.item = read

    fused_moe.compute_routing_metadata = compute_routing_metadata


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


def cut_cross_entropy(model: Any) -> None:
    """cce_patch of Axolotl's fork (axolotl-ai-cloud/ml-cross-entropy, whose checkout is on PYTHONPATH)."""
    import torch

    torch.compile = lambda function=None, **_: function or (lambda it: it)  # it allocates as without
    launch_nothing()
    from cut_cross_entropy.transformers.patch import cce_patch
    from transformers.trainer_utils import unwrap_peft_model

    inner = unwrap_peft_model(model)
    cce_patch(inner.config.model_type)


def quantize_experts() -> None:
    """Axolotl's quantize_moe_experts (axolotl 0.19, whose wheel is on PYTHONPATH), with bnb_config_kwargs of its own or none."""
    import os
    from types import SimpleNamespace

    from axolotl.monkeypatch import moe_quant

    os.environ["HF_DEACTIVATE_ASYNC_LOAD"] = "1"
    moe_quant.patch_moe_quantization_on_load(SimpleNamespace(load_in_8bit=False))


def fuse_adapters(model: Any, kernels: list[str]) -> None:
    """Axolotl's functions over layers with adapters (axolotl 0.19, whose wheel is on PYTHONPATH), as its trainer puts them in."""
    launch_nothing()
    from types import SimpleNamespace

    from axolotl.monkeypatch import lora_kernels
    from axolotl.utils.dict import DictDefault
    from peft import PeftModelForCausalLM

    inner = model.get_base_model()
    names = ("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel", "lora_embedding_kernel")
    chosen = DictDefault({name: name in kernels for name in names} | {"base_model": ""})
    # a checkpoint's own type, of which a text model is a part
    whole = SimpleNamespace(model_type=inner.config.model_type.removesuffix("_text"))
    lora_kernels.AutoConfig = SimpleNamespace(from_pretrained=lambda _: whole)
    if "lora_qkv_kernel" in kernels or "lora_o_kernel" in kernels:
        lora_kernels.patch_self_attn_lora(chosen)
    if not isinstance(model, PeftModelForCausalLM):
        model.__class__ = PeftModelForCausalLM
    lora_kernels.apply_lora_kernel_patches(model, chosen)
