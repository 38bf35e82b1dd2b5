"""Reads of values on a device whose kernels compute none: what real kernels would have answered."""

from __future__ import annotations

import ctypes
import itertools
import math
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from step.spec import CANARIES, CLASSES, FLAT_VL, GLM_V, KIMI_VL, OMNI, QWEN3_VL, WAVEFORMS, Spec


class DeviceValues:
    """Answers what real kernels would have computed, on a device whose kernels do nothing.

    A bool read is true, another scalar is 1.0 or `integer`, and so is each element of an integer tensor's tolist(); nonzero() finds
    everything, as many elements as masked_scatter's source had, or for a mask of a shape in `found` that many. The real operators run all the same, so what they allocate on the
    way is theirs: nonzero() reads its count from its first scratch block, so the count is put where that block will be.
    """

    def __init__(
        self,
        integer: int | Callable[[Any], int] = 0,
        device_type: str = "CUDA",
        active: Callable[[], bool] = lambda: True,
        found: dict[tuple[int, ...], int | Iterator[int] | Callable[[], int]] | None = None,
    ) -> None:
        import torch

        self.torch, self.integer, self.active = torch, integer, active
        self.selected: int | None = None
        self.found = found or {}
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
        count = self.found.get(tuple(tensor.shape), tensor.numel()) if self.selected is None else self.selected
        if not isinstance(count, int):  # one after another, or as whoever asks means it
            count = count() if callable(count) else next(count)
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


def asking() -> Any:
    """The frame that asks for a value: the innermost that is neither this file's, a `scalar` of DeviceValues' kin, nor a dispatch mode's."""
    frame: Any = sys._getframe(1)
    modes = ("torch._ops", "torch._compile", "torch._dynamo.eval_frame", "torch.utils.flop_counter")
    while frame.f_code.co_filename == __file__ or frame.f_code.co_name == "scalar" or frame.f_globals.get("__name__") in modes:
        frame = frame.f_back
    return frame


def read_grids(spec: Spec) -> int | Callable[[Any], int]:
    """Qwen-VL's tower reads, on the device, how long its attention's sequences are: they are told it here.

    So is get_rope_index, which tokens are an image's. Returns the integer that an operator reads on the way: how many
    sequences there are (repeat_interleave), how many bounds windows have (unique_consecutive), a grid's own numbers.
    """
    if spec["model"].get("config", {}).get("model_type") == "phi4_multimodal":
        return phi4_values(spec)
    if "grid" in spec["inputs"].get("image_position_ids", {}):
        return gemma4_tokens(spec)
    hears = spec["model"].get("config", {}).get("model_type") in (*OMNI, "qwen3_asr")
    if hears or "feature_attention_mask" in spec["inputs"]:
        return omni_values(spec) if hears else qwen2_audio_tokens(spec)
    if "spatial_shapes" in spec["inputs"]:
        return naflex_shapes(spec)
    if "target_sizes" in spec["inputs"]:
        return row_of_patches(spec)
    if "states" in spec["inputs"].get("input_features_mask", {}):
        read_padding(spec["inputs"]["input_features_mask"])
    if spec["model"].get("config", {}).get("model_type") in (*WAVEFORMS, "wav2vec2-bert", "parakeet_ctc"):
        connectionist_lengths(spec)
    if spec["model"].get("config", {}).get("model_type") in CANARIES:
        padded_states(spec)
    if "values" in spec["inputs"].get("image_grids", {}):
        return molmo2_tokens(spec)
    if "values" in spec["inputs"].get("image_sizes", {}):
        return small_integers(spec["inputs"]["image_sizes"]["values"])
    return grid_values(spec)


def grid_values(spec: Spec) -> int | Callable[[Any], int]:
    given = spec["inputs"].get("image_grid_thw") or spec["inputs"].get("video_grid_thw")
    if not given or "values" not in given:
        return spec.get("item_int", 0)
    import torch
    from transformers import vision_utils

    vision = spec["model"]["config"].get("vision_config", {})
    grid = torch.tensor(given["values"])
    by_frame = grid  # as get_rope_index of the newer models has videos, a timestamp before each frame
    if "video_grid_thw" in spec["inputs"] and spec["model"]["config"].get("model_type") in QWEN3_VL + GLM_V:
        by_frame = grid.repeat_interleave(grid[:, 0], 0)
        by_frame[:, 0] = 1
    patch, merge, kind = vision.get("patch_size", 14), vision.get("spatial_merge_size", 2), spec["model"]["config"].get("model_type")
    own = 1 if kind in (*KIMI_VL, "paddleocr_vl") else merge  # of positions
    if kind in KIMI_VL:
        merge = vision.get("merge_size", vision.get("merge_kernel_size", [2])[0])
    bounds = [vision_utils.get_vision_cu_seqlens(grid, merge_temporal=kind == "kimi_k25")]
    if kind == "muse_glimmer":
        bounds.append(vision_utils.get_vision_window_index(grid, 1, vision.get("pos_emb_height", 32) * patch, patch)[1])
    if spec["model"]["class"] in (CLASSES["qwen2_5_vl"], CLASSES["qwen2_5_omni_thinker"], CLASSES["exaone4_5"]):
        bounds.append(vision_utils.get_vision_window_index(grid, merge, vision.get("window_size", 112), patch)[1])
    lengths = {len(b) - 1: b.diff().tolist() for b in bounds}
    features, features_by_frame = ((its.prod(-1) // merge**2).tolist() for its in (grid, by_frame))
    patches = int(grid.prod(-1).sum())
    of_tower = by_frame.tolist() if kind in GLM_V else given["values"]  # to GLM-4V's each frame is an image
    tolist = torch.Tensor.tolist
    answers: dict[str, Callable[[int], list[int]]] = {
        "get_vision_position_ids": lambda images: [own] * images,
        "forward": lambda sequences: lengths[sequences],
        "<listcomp>": lambda sequences: lengths[sequences],
        "get_image_features": lambda images: features,
        "get_video_features": lambda images: features,
        "get_rope_index": lambda tokens: modalities(spec, tokens, features_by_frame),
    }

    if kind == "hunyuan_vl":  # a row ends with a token of its own, an image begins and ends with one
        features = features_by_frame = [h // merge * (w // merge + 1) + 2 for _, h, w in given["values"]]

    def answer(self: Any) -> Any:
        caller = asking().f_code.co_name
        if self.dim() == 2 and (caller == "get_vision_position_ids" or kind == "hunyuan_vl"):
            return of_tower
        if self.dim() != 1 or caller not in answers or not self.is_cuda:
            return tolist(self)
        return answers[caller](len(self))

    torch.Tensor.tolist = answer
    torch.Tensor.prod = lambda self, dim: self.new_empty(self.shape[:dim])  # the profiler falls over the real one's kernel

    def count(tensor: Any) -> int:
        frame = asking()
        if kind == "hunyuan_vl" and tensor.dim() == 0 and tensor.untyped_storage().nbytes() == 8 * grid.numel():
            return int(grid.flatten()[tensor.storage_offset()])  # it takes its grid apart
        if tensor.dim() == 0 and tensor.storage_offset() < by_frame.numel() and frame.f_code.co_name == "get_vision_position_ids":
            return int(by_frame.flatten()[tensor.storage_offset()])
        if frame.f_code.co_name == "get_vision_interpolation_indices_and_weights":
            return patches
        if "image_grid" in (its := frame.f_locals):  # PaddleOCRProjector computes with an image's
            t, h, w = given["values"][its["image_grid"].storage_offset() // 3]
            known = {"t": t, "h_block": h // merge, "w_block": w // merge}
            size = next((known[name] for name in known if its[name].data_ptr() == tensor.data_ptr()), math.prod(known.values()))
            its.clear()  # the frame keeps what f_locals gave
            return size
        while frame and frame.f_code.co_name != "get_vision_window_index":
            frame = frame.f_back
        return len(bounds[1]) if frame else len(bounds[0]) - 1

    return count


def omni_chunks(spec: Spec) -> dict[str, list[int]]:
    """Of each chunk of an Omni model's spectrograms: frames, states, and those that attend to one another; of each audio: tokens."""
    config = spec["model"]["config"]
    given = spec["inputs"].get("feature_attention_mask") or spec["inputs"]["input_features_mask"]
    audio = config.get("audio_config", {})
    older = config["model_type"] == "qwen2_5_omni_thinker"
    window, frames, audios = 2 * audio.get("n_window", 100 if older else 50), given["frames"], given["shape"][0]

    def states(length: int) -> int:
        for _ in range(1 if older else 3):
            length = (length - 1) // 2 + 1
        return length

    chunks = [window] * (frames // window) + [frames % window] * (frames % window > 0)
    lengths = [states(chunk) for chunk in chunks]
    if older:
        attended, tokens, longest = lengths, sum(lengths) // 2, window
    else:
        tokens, longest = sum(lengths), max(lengths) * (audio.get("n_window_infer", 800) // window)
        attended = [longest] * (tokens // longest) + [tokens % longest] * (tokens % longest > 0)
    of_each = {"frames": chunks, "states": lengths, "attended": attended, "tokens": [tokens]}
    return {key: values * audios for key, values in of_each.items()} | {"window": [longest]}


def omni_values(spec: Spec) -> int | Callable[[Any], int]:
    """What the thinkers read of their grids and, of the chunks that they cut spectrograms into, of audio."""
    seen = grid_values(spec)
    if not spec["inputs"].keys() & {"feature_attention_mask", "input_features_mask"}:
        return seen
    import torch

    known, before = omni_chunks(spec), torch.Tensor.tolist
    lists = {"chunk_and_pad_features": "frames", "get_audio_features": "tokens"}

    def answer(self: Any) -> Any:
        frame = asking()
        if self.is_cuda and frame.f_code.co_name in lists:
            return known[lists[frame.f_code.co_name]]
        module = frame if frame.f_code.co_name != "<listcomp>" else frame.f_back
        if self.is_cuda and "AudioAttention" in type(module.f_locals.get("self")).__name__:
            return known["attended"]
        return before(self)

    torch.Tensor.tolist = answer
    numbers = {
        "chunk_and_pad_features": len(known["frames"]),
        "get_valid_indices": max(known["states"]),
        "get_pool_indices": sum(known["tokens"]),
    }

    # get_audio_cu_seqlens: the states of the longest chunk; of each audio the whole windows; of each the rest, where there is one.
    audios = len(known["tokens"])
    whole, rest = divmod(known["tokens"][0], *known["window"])
    bounds = [max(known["states"]), *[whole] * audios, *[rest] * (audios if rest else 0)]
    reads, is_true = itertools.cycle(bounds), torch.Tensor.__bool__
    torch.Tensor.__bool__ = lambda self: is_true(self) and (rest > 0 or asking().f_code.co_name != "get_audio_cu_seqlens")

    def count(tensor: Any) -> int:
        caller = asking().f_code.co_name
        if caller == "get_audio_cu_seqlens":
            return next(reads)
        return numbers[caller] if caller in numbers else seen if isinstance(seen, int) else seen(tensor)

    return count


def gemma4_tokens(spec: Spec) -> int:
    """Tokens of an image, which Gemma 4 counts on the device; whether its patches are padded is asked there, too."""
    from transformers import masking_utils

    given, config = spec["inputs"]["image_position_ids"], spec["model"]["config"]
    patches = math.prod(given["grid"])
    if config["model_type"] == "gemma4_unified":
        return patches
    if patches < given["shape"][1]:
        masking_utils._ignore_bidirectional_mask_sdpa = lambda padding_mask, *_: not padding_mask.all()
    return patches // config.get("vision_config", {}).get("pooling_kernel_size", 3) ** 2


def phi4_values(spec: Spec) -> Callable[[Any], int]:
    """Phi-4-multimodal reads on the device how many crops an image has and how many of their features are no padding, how long an audio is,
    and whether a prompt has tokens of either.
    """
    import torch
    from transformers import masking_utils

    crops = spec["inputs"].get("image_sizes", {}).get("crops", [])
    side = spec["model"]["config"].get("vision_config", {})
    whole = side.get("crop_size", 448) // side.get("patch_size", 14)
    if any(of["useful"] != [of["rows"] * whole, of["columns"] * whole] for of in crops) or len({of["rows"] * of["columns"] for of in crops}) > 1:
        masking_utils._ignore_bidirectional_mask_sdpa = lambda padding_mask, *_: padding_mask is None or not padding_mask.all()
    features = itertools.cycle([one for of in crops for one in of["features"]])
    item, is_true = torch.Tensor.item, torch.Tensor.__bool__

    def asked_by(name: str) -> bool:
        return name in asking().f_code.co_qualname

    def of_features(self: Any) -> Any:
        value = item(self)
        return next(features) if self.is_cuda and self.dtype is torch.float32 and asked_by("ImageEmbedding.forward") else value

    def has_tokens(self: Any) -> bool:
        value, frame = is_true(self), asking()
        if "FeatureEmbedding.forward" not in frame.f_code.co_qualname:
            return value
        length = (its := frame.f_locals)["input_ids"].shape[1]
        its.clear()  # the frame keeps what f_locals gave
        return length > 1

    torch.Tensor.item, torch.Tensor.__bool__ = of_features, has_tokens

    of_sizes = small_integers(spec["inputs"]["image_sizes"]["values"], ("__floordiv__", "__mul__", "__add__")) if crops else None

    def count(tensor: Any) -> int:
        if of_sizes and asked_by("ImageEmbedding.forward"):
            return of_sizes(tensor)
        return int(spec["inputs"].get("audio_embed_sizes", {}).get("values", [0])[0])

    return count


def phi4_tokens(spec: Spec) -> dict[tuple[int, ...], Any]:
    crops, sizes = (spec["inputs"].get(key, {}).get(its, []) for key, its in (("image_sizes", "crops"), ("audio_embed_sizes", "values")))
    counts = [count for count in (sum(of["tokens"] for of in crops), sum(sizes)) if count]
    return {tuple(spec["inputs"]["input_ids"]["shape"]): itertools.cycle(counts)} if counts else {}


def read_padding(given: dict[str, Any]) -> None:
    """Whether an audio is padded to its encoder's window, which making its mask asks on the device."""
    from transformers import masking_utils

    if given["states"] < given["shape"][1] // 2:
        masking_utils._ignore_bidirectional_mask_sdpa = lambda padding_mask, *_: not padding_mask.all()


def qwen2_audio_tokens(spec: Spec) -> int:
    """Audio tokens of the batch, which Qwen2-Audio counts on the device; whether audio is padded is asked there, too, and whether the
    processor has put tokens for each state of it, as today's does.
    """
    from transformers.models.qwen2_audio import modeling_qwen2_audio

    given = spec["inputs"]["feature_attention_mask"]
    read_padding(given)
    modeling_qwen2_audio.is_torchdynamo_compiling = lambda: True
    return given["tokens"] * given["shape"][0]


def states_of(config: dict[str, Any], samples: int) -> int:
    """Wav2Vec2Model._get_feat_extract_output_lengths"""
    kernels, strides = config.get("conv_kernel", (10, 3, 3, 3, 3, 2, 2)), config.get("conv_stride", (5, 2, 2, 2, 2, 2, 2))
    for kernel, stride in zip(kernels, strides, strict=True):
        samples = (samples - kernel) // stride + 1
    return samples


def masked_states(config: dict[str, Any], states: int) -> int:
    """Of a sample, in the middle of chance: _compute_mask_indices with spans that do not meet."""
    length = config.get("mask_time_length", 10)
    spans = max(int(config.get("mask_time_prob", 0.05) * states / length + 0.5), config.get("mask_time_min_masks", 2))
    return min(spans, states // length) * length


def heard_states(spec: Spec) -> int:
    """Of the encoder of a class with a CTC head."""
    if "input_features" in spec["inputs"]:
        return int(spec["inputs"]["input_features"]["shape"][1])
    return states_of(spec["model"]["config"], spec["inputs"]["input_values"]["shape"][1])


def connectionist_lengths(spec: Spec) -> None:
    """CTC reads on the host how many states and labels each sample has, and whether a label is none of the vocabulary's; which states are
    masked is chance.
    """
    import importlib

    import numpy
    import torch

    config = spec["model"]["config"]
    kind = config["model_type"].replace("-", "_").removesuffix("_ctc")
    modeling = importlib.import_module(f"transformers.models.{kind}.modeling_{kind}")
    masked, labels = masked_states(config, heard_states(spec)), spec["inputs"].get("labels")
    given = spec["inputs"].get("attention_mask", {})
    if given.get("attended", 0) < given.get("shape", [0, 0])[1] and "attended" in given:
        from transformers import masking_utils

        masking_utils._ignore_bidirectional_mask_sdpa = lambda padding_mask, *_: not padding_mask.all()

    def mask(shape: tuple[int, int], *, attention_mask: Any = None, **_: Any) -> Any:
        if attention_mask is not None:
            attention_mask.detach().sum(-1)
        out = numpy.zeros(shape, dtype=bool)
        out[:, :masked] = True
        return out

    modeling._compute_mask_indices = mask
    loss, is_true = torch.nn.functional.ctc_loss, torch.Tensor.__bool__

    def told(log_probs: Any, targets: Any, states: Any, lengths: Any, **keywords: Any) -> Any:
        for tensor, value in ((states, log_probs.size(0)), (lengths, labels["shape"][1])):
            ctypes.memmove(tensor.data_ptr(), (ctypes.c_int64 * len(tensor))(*[value] * len(tensor)), 8 * len(tensor))
        return loss(log_probs, targets, states, lengths, **keywords)

    torch.nn.functional.ctc_loss = told
    torch.Tensor.__bool__ = lambda self: is_true(self) and sys._getframe(1).f_globals.get("__name__") != modeling.__name__


def naflex_shapes(spec: Spec) -> Callable[[Any], int]:
    """LFM2-VL reads each tile's rows, columns and patches on the device, and whether any tile is padded."""
    import torch
    from transformers import masking_utils

    shapes = torch.tensor(spec["inputs"]["spatial_shapes"]["values"])
    lengths = shapes.prod(-1)
    if (lengths < spec["inputs"]["pixel_attention_mask"]["shape"][1]).any():
        masking_utils._ignore_bidirectional_mask_sdpa = lambda padding_mask, *_: padding_mask is None or not padding_mask.all()

    def values(tensor: Any) -> Any:
        its = shapes if tensor.untyped_storage().nbytes() == shapes.nbytes else lengths
        return its.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())

    tolist = torch.Tensor.tolist
    torch.Tensor.tolist = lambda self: values(self).tolist() if self.is_cuda and self.dtype is torch.int64 else tolist(self)
    return lambda tensor: int(values(tensor))


def row_of_patches(spec: Spec) -> Callable[[Any], int]:
    """MiniCPM-V reads each slice's rows and columns on the device, and where its patches, windows and features begin."""
    import torch

    config, given = spec["model"]["config"], spec["inputs"]["target_sizes"]["values"]
    mode = config.get("downsample_mode", "4x" if config["model_type"] == "minicpm_ocr" else "16x")
    merged = [[h // 2, w // 2] for h, w in given] if mode != "4x" else given
    side, merge = config.get("vision_config", {}).get("window_kernel_size", [2, 2])[0], config.get("merge_kernel_size", [2, 2])
    patches, fewer = ([math.prod(size) for size in sizes] for sizes in (given, [[h // 2, w // 2] for h, w in given]))
    windows = sum(math.prod(size) for size in given) // side**2
    ends = list(itertools.accumulate(math.prod(size) for size in merged))
    reads = []  # MiniCPMV4_6Merger.forward, of an image after the other
    for i, (h, w) in enumerate(merged):
        rows, columns = h // merge[0], w // merge[1]
        reads += [*ends[max(i - 1, 0) : i], ends[i], rows, columns, rows * columns]
    of_merger = itertools.cycle(reads)
    tolist = torch.Tensor.tolist

    def answer(self: Any) -> Any:
        if not self.is_cuda:
            return tolist(self)
        frame = asking()
        caller = frame.f_code.co_name
        if caller == "get_vision_nearest_position_ids":
            return given
        if caller == "get_vision_window_index":
            return [[1, *size] for size in given]
        frame = frame.f_back if caller == "<listcomp>" else frame
        if not frame.f_code.co_qualname.endswith("VisionAttention.forward"):  # a message has the sizes in it
            return tolist(self)
        length = (its := frame.f_locals)["query_states"].size(2)
        its.clear()  # the frame keeps what f_locals gave
        return next(its for its in (patches, fewer, [side**2] * windows) if len(its) == len(self) and sum(its) == length)

    torch.Tensor.tolist = answer

    def count(tensor: Any) -> int:
        frame = asking()
        caller = frame.f_code.co_name
        if caller == "get_max_seqlen":
            return max(patches)
        while frame:
            if frame.f_code.co_name == "get_vision_window_index":
                return windows + 1
            if "processed_features" in frame.f_code.co_varnames:  # MiniCPMV4_6Merger.forward
                return next(of_merger)
            frame = frame.f_back
        return 0

    return count


def molmo2_tokens(spec: Spec) -> Callable[[Any], int]:
    """Molmo2 reads how many tokens each image is, and whether all windows have all their patches."""
    import torch
    from transformers import masking_utils

    sizes = [a * b + c * d for a, b, c, d in spec["inputs"]["image_grids"]["values"]]
    tolist = torch.Tensor.tolist
    torch.Tensor.tolist = lambda self: list(sizes) if self.is_cuda and self.dtype is torch.int64 else tolist(self)
    if spec["inputs"]["image_token_pooling"]["padded"]:
        ignore = masking_utils._ignore_bidirectional_mask_sdpa

        def told(padding_mask: Any, *arguments: Any, **keywords: Any) -> bool:
            answer = ignore(padding_mask, *arguments, **keywords)
            return answer if padding_mask is None else False

        masking_utils._ignore_bidirectional_mask_sdpa = told
    return lambda _: 1


def padded_states(spec: Spec) -> None:
    """Whether the frame that never attends leaves a state of Parakeet's encoder that the decoder does not see."""
    from transformers import masking_utils

    given = spec["inputs"].get("attention_mask")
    if not given:
        return
    config = spec["model"]["config"].get("encoder_config", {})
    kernel, stride = config.get("subsampling_conv_kernel_size", 3), config.get("subsampling_conv_stride", 2)

    def states(frames: int) -> int:
        for _ in range(int(math.log2(config.get("subsampling_factor", 8)))):
            frames = (frames + (kernel - 1) // 2 * 2 - kernel) // stride + 1
        return frames

    if states(given["attended"]) < states(given["shape"][1]):
        masking_utils._ignore_bidirectional_mask_sdpa = lambda padding_mask, *_: not padding_mask.all()


def small_integers(sizes: list[list[int]], names: tuple[str, ...] = ("__floordiv__", "__mul__", "prod")) -> Callable[[Any], int]:
    """Mistral 3 and Phi-4-multimodal compute with image_sizes on the device: what becomes of its few integers is computed here, too."""
    import torch

    batch, computed = torch.tensor(sizes), {}

    def values(tensor: Any) -> Any:
        source, known = computed.get(tensor.data_ptr(), (lambda: None, batch))
        if source() is not None and known.size() == tensor.size():  # and the memory is not another tensor's by now
            return known
        if tensor.untyped_storage().nbytes() == batch.nbytes:  # the batch's own, or a part of it
            return batch.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
        return torch.zeros(tensor.size(), dtype=torch.int64)

    def computing(name: str) -> None:
        original = getattr(torch.Tensor, name)

        def run(self: Any, *arguments: Any, **keywords: Any) -> Any:
            out = original(self, *arguments, **keywords)
            if isinstance(out, torch.Tensor) and out.is_cuda and out.dtype is torch.int64 and out.numel() <= batch.numel():
                operands = [values(a) if isinstance(a, torch.Tensor) else a for a in arguments]
                computed[out.data_ptr()] = (weakref.ref(out), original(values(self), *operands, **keywords))
            return out

        setattr(torch.Tensor, name, run)

    on_host = torch.Tensor.prod  # the stand-in falls over the real one's kernel on the device
    torch.Tensor.prod = lambda self, dim: self.new_empty(self.shape[:dim]) if self.is_cuda else on_host(self, dim)
    for name in names:
        computing(name)
    tolist = torch.Tensor.tolist
    torch.Tensor.tolist = lambda self: values(self).tolist() if self.is_cuda and self.dtype is torch.int64 else tolist(self)
    return lambda tensor: int(values(tensor))


def visual_tokens(spec: Spec) -> dict[tuple[int, ...], Any]:
    """How many True a mask of a batch's image or audio tokens has, by its shape: Qwen3-VL's deepstack takes these tokens by it,
    Voxtral looks at their embeddings. Experts in a loop look for their tokens so.
    """
    if spec["model"].get("config", {}).get("model_type") == "voxtral" and "input_features" in spec["inputs"]:
        audio, width = (spec["model"]["config"][part] for part in ("audio_config", "text_config"))
        windows, _, frames = spec["inputs"]["input_features"]["shape"]
        tokens = windows * frames // 2 * audio["hidden_size"] // audio["intermediate_size"]
        shape = (*spec["inputs"]["input_ids"]["shape"], width["hidden_size"])
        return {shape: tokens * width["hidden_size"]}
    config = spec["model"].get("config", {})
    if config.get("model_type") == "phi4_multimodal":
        return phi4_tokens(spec)
    if "target_sizes" in spec["inputs"]:  # MiniCPM-V looks at the embeddings of images' tokens
        mode = config.get("downsample_mode", "4x" if config["model_type"] == "minicpm_ocr" else "16x")
        tokens = sum(math.prod(size) // (4 if mode == "4x" else 16) for size in spec["inputs"]["target_sizes"]["values"])
        width = config["text_config"]["hidden_size"]
        return {(*spec["inputs"]["input_ids"]["shape"], width): tokens * width}
    if config.get("model_type") == "granite4_vision" and "pixel_values" in spec["inputs"]:
        return {tuple(spec["inputs"]["input_ids"]["shape"]): granite4_tokens(spec)}
    if config.get("model_type") == "molmo2":
        tokens = spec["inputs"].get("image_token_pooling", {"shape": [0]})["shape"][0]
        width = config["text_config"].get("hidden_size", 4096)
        return {(*spec["inputs"]["input_ids"]["shape"], width): tokens * width}
    if "image_embeds_position_mask" in spec["inputs"]:
        return {tuple(spec["inputs"]["input_ids"]["shape"]): spec["batch"]["mbs"] * config.get("latent_query_num", 2048)}
    if config.get("model_type") in (*OMNI, "qwen3_asr"):
        return omni_masks(spec)
    if config.get("model_type") in (*WAVEFORMS, "wav2vec2-bert"):
        batch, states = spec["batch"]["mbs"], heard_states(spec)
        return {(batch, states): batch * masked_states(config, states)}
    if "tokens" in spec["inputs"].get("input_features_mask", {}):
        windows, frames = spec["inputs"]["input_features_mask"]["shape"]
        batch, sequence = spec["inputs"]["input_ids"]["shape"]
        tokens, width = batch * spec["inputs"]["input_features_mask"]["tokens"], config["text_config"]["hidden_size"]
        rows = spec["inputs"]["input_features_mask"].get("rows", frames // 4)
        return {(windows, rows): tokens, (batch, sequence, width): tokens * width}
    if "feature_attention_mask" in spec["inputs"]:
        audios, frames = spec["inputs"]["feature_attention_mask"]["shape"]
        return {(audios, frames // 4): audios * spec["inputs"]["feature_attention_mask"]["tokens"]}
    if "grid" in spec["inputs"].get("image_position_ids", {}):
        images = spec["inputs"]["image_position_ids"]["shape"][0]
        tokens, most = images * gemma4_tokens(spec), config.get("vision_soft_tokens_per_image", 280)
        hidden = config["text_config"].get("hidden_size", 2304)
        return {(images, most): tokens, (*spec["inputs"]["input_ids"]["shape"], hidden): tokens * hidden}
    if config.get("model_type") == "hunyuan_vl" and "image_grid_thw" in spec["inputs"]:
        merge = config.get("vision_config", {}).get("spatial_merge_size", 2)
        tokens = sum(h // merge * (w // merge + 1) + 2 for _, h, w in spec["inputs"]["image_grid_thw"]["values"])
        width = config["text_config"]["hidden_size"]
        return {(*spec["inputs"]["input_ids"]["shape"], width): tokens * width}
    if config.get("model_type") == "qwen4_exp_text":  # its indexer looks at one token after another, which see those before
        length = spec["inputs"]["input_ids"]["shape"][1]
        return {(length,): itertools.cycle(range(1, length + 1))}
    if config.get("model_type") == "ovis2" and "pixel_values" in spec["inputs"]:
        return visual_indicators(spec)
    if objects := spec["inputs"].get("labels", {}).get("objects"):  # each noisy copy of an object that a detector is to find again, of as many that it is not
        copies = len(objects) * max(objects) * max(config.get("num_denoising", 100) // max(objects), 1)
        return {(len(objects), 2 * copies // len(objects)): copies}
    return deepstack_tokens(spec) if config.get("model_type") in QWEN3_VL else masked_patches(spec) or loop_over_experts(spec)


def granite4_tokens(spec: Spec) -> int:
    """Granite 4 Vision takes images' tokens by a mask and adds to them, before several layers."""
    from types import SimpleNamespace

    from step.batch import ANYRES
    from transformers.models.granite4_vision.processing_granite4_vision import Granite4VisionProcessor as Processor

    config, vision = spec["model"]["config"], spec["model"]["config"].get("vision_config", {})
    processor = Processor.__new__(Processor)
    processor.image_processor = SimpleNamespace(image_grid_pinpoints=config.get("image_grid_pinpoints") or ANYRES)
    processor.patch_size, processor.downsample_rate, processor.num_additional_image_tokens = vision.get("patch_size", 32), config["downsample_rate"], 0
    side = [vision.get("image_size", 224)] * 2
    return sum(processor._get_number_of_features(*size, *side) for size in spec["inputs"]["image_sizes"]["cpu_values"])


def masked_patches(spec: Spec) -> dict[tuple[int, ...], Callable[[], int]]:
    """VideoMAE takes the patches that are not masked, and after them, in ForPreTraining.forward, those that are."""
    given, config = spec["inputs"].get("bool_masked_pos"), spec["model"].get("config", {})
    if given:
        clips, patches = given["shape"]
        visible, masked = patches - given["masked"], given["masked"]
    elif config.get("motion_centric_masking_ratio") is not None:  # tools/everest.py; redundant ones are neither
        from everest import kept_tokens
        from transformers import VideoMAEConfig

        read = VideoMAEConfig(**config)
        clips, frames, _, height, width = spec["inputs"]["pixel_values"]["shape"]
        patches = frames // read.tubelet_size * (height // read.patch_size) * (width // read.patch_size)
        visible, kept = kept_tokens(read)
        masked = kept - visible
        if not spec["model"]["class"].endswith("ForPreTraining"):
            visible = kept
    else:
        return {}

    def count() -> int:
        frame: Any = sys._getframe(2)
        masks = frame is not None and "pos_emb_visible" in frame.f_locals
        return clips * (masked if masks else visible)

    return {(clips, patches): count}


def omni_masks(spec: Spec) -> dict[tuple[int, ...], int]:
    """The masks of the Omni models and of Qwen3-ASR: of frames, of the chunks' states, of embeddings, of the deepstack."""
    config, inputs, found = spec["model"]["config"], spec["inputs"], {}
    if config["model_type"] in QWEN3_VL:
        found |= deepstack_tokens(spec)
    if mask := inputs.get("feature_attention_mask"):
        states = omni_chunks(spec)["states"]
        found |= {tuple(mask["shape"]): mask["shape"][0] * mask["frames"], (len(states) * max(states),): sum(states)}
    if inputs.get("input_features_mask"):
        known, width = omni_chunks(spec), config["text_config"]["hidden_size"]
        tokens = sum(known["tokens"])
        found |= {(13 * len(known["states"]),): tokens, (*inputs["input_ids"]["shape"], width): tokens * width}
    return found


def visual_indicators(spec: Spec) -> dict[tuple[int, ...], int]:
    """Ovis2 asks which of five tokens around an image the prompt has: of one tile there are no columns and rows."""
    import torch

    is_true = torch.Tensor.__bool__

    def told(self: Any) -> bool:
        frame = asking()
        if "visual_indicator_id" not in frame.f_code.co_varnames:
            return is_true(self)
        index = (its := frame.f_locals).get("i")
        its.clear()  # the frame keeps what f_locals gave
        return is_true(self) and index not in (2, 3)

    torch.Tensor.__bool__ = told
    return {tuple(spec["inputs"]["input_ids"]["shape"]): spec["inputs"]["pixel_values"]["shape"][0]}


def deepstack_tokens(spec: Spec) -> dict[tuple[int, ...], int]:
    given = spec["inputs"].get("image_grid_thw") or spec["inputs"].get("video_grid_thw")
    if not given:
        return {}
    config = spec["model"]["config"]
    merge = config.get("vision_config", {}).get("spatial_merge_size", 2)
    return {tuple(spec["inputs"]["input_ids"]["shape"]): sum(math.prod(grid) // merge**2 for grid in given["values"])}


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


# What configs call the number of experts.
EXPERTS = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")


def loop_over_experts(spec: Spec) -> dict[tuple[int, ...], Any]:
    """How many experts are hit, and how many tokens each of them finds, one after another, as the job's `routing` says."""
    if spec["model"].get("experts") != "eager":
        return {}
    import torch

    config = spec["model"]["config"]
    config = config.get("text_config", config)
    experts = next(config[key] for key in EXPERTS if key in config)
    tokens, chosen = math.prod(spec["inputs"]["input_ids"]["shape"]), config["num_experts_per_tok"]
    ends = [tokens * chosen * i // experts for i in range(experts + 1)]
    routing = spec.get("routing", "balanced")
    worst = [tokens] * chosen
    counts = worst if routing == "worst" else routing if isinstance(routing, list) else [b - a for a, b in itertools.pairwise(ends)]
    hit = [count for count in counts if count]
    is_true = torch.Tensor.__bool__
    # `if expert_idx == self.num_experts: continue`, the class of what is masked
    torch.Tensor.__bool__ = lambda self: is_true(self) and "expert_hit" not in asking().f_code.co_varnames
    return {(experts,): len(hit), (experts + 1,): len(hit), (chosen, tokens): itertools.cycle(hit)}


def route_evenly(spec: Spec) -> None:
    """Gives each expert as many tokens as any other, on a device that counts nothing: grouped_mm reads the offsets on the host."""
    config = spec["model"].get("config", {})
    if not any(key in part for key in EXPERTS for part in (config, config.get("text_config", {}))):
        return
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
