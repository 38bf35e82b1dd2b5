"""What a model is called with: its input tensors, from a job's data."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from step.spec import CANARIES, FLAT_VL, GLM_V, GRIDS, KIMI_VL, MINICPM_V, OMNI, QWEN3_VL, WAVEFORMS, Spec, tensor

PAIRS = ("clip", "siglip", "siglip2", "clap")
IMAGES_ALONE = ("vit", "vit_mae", "beit", "swin", "swinv2", "convnext", "convnextv2", "segformer", "dinov2", "dinov2_with_registers", "dinov3_vit", "dpt", "depth_anything", "resnet")
IMAGES_ALONE += ("deit", "ijepa", "vit_msn", "upernet")
# [height, width] that the processors of detectors make of COCO's usual image, 480 x 640
DETECTORS = {"detr": [800, 1066], "conditional_detr": [800, 1066], "deformable_detr": [800, 1066], "yolos": [800, 1066], "rt_detr": [640, 640], "rt_detr_v2": [640, 640], "d_fine": [640, 640]}
ANYRES = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]  # LlavaNextConfig's default


def images_of(data: dict[str, Any]) -> int:
    """Images of a sample."""
    return len(data.get("image_sizes", ())) or data.get("images_per_sample", 1)


def sizes_of(data: dict[str, Any], usual: list[int]) -> list[list[int]]:
    """[height, width] of each image of a micro-batch."""
    own = data.get("image_sizes") or [data.get("image_size") or usual] * images_of(data)
    return own * data.get("micro_batch_size", 1)


def tiles_of(data: dict[str, Any], usual: list[int], cut: Callable[[list[int]], int]) -> list[int]:
    """Tiles of each image of a micro-batch: as many as the job says, or as its processor cuts."""
    return [data.get("tiles") or cut(size) for size in sizes_of(data, usual)]


def anyres_tiles(size: list[int], pinpoints: list[list[int]], tile: int) -> int:
    from transformers.models.llava_next.modeling_llava_next import image_size_to_num_patches

    return int(image_size_to_num_patches(size, pinpoints, tile))


def llava_frames(data: dict[str, Any]) -> int:
    """Frames of each video: as many as the job says, or as default_sample_indices_fn takes of a film of 30 a second; 0: images."""
    if not data.get("video"):
        return data["frames"] if data.get("frames", 1) > 1 else 0
    from transformers.video_utils import VideoMetadata, default_sample_indices_fn

    film = VideoMetadata(total_num_frames=round(data["video"]["seconds"] * 30), fps=30)
    return len(default_sample_indices_fn(film, fps=data["video"].get("fps", 2)))


def pixtral_size(size: list[int], longest_edge: int, cell: int) -> list[int]:
    import numpy
    from transformers.models.pixtral.image_processing_pil_pixtral import get_resize_output_image_size

    image = numpy.broadcast_to(numpy.zeros((), numpy.uint8), (*size, 3))
    return list(get_resize_output_image_size(image, longest_edge, cell))


def idefics3_tiles(config: dict[str, Any], data: dict[str, Any]) -> int:
    """Tiles of a sample: as the processor cuts images of their size, where the job does not say how many."""
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

    vision = config.get("vision_config", {})
    side = vision.get("image_size", 224)
    tile = vision.get("max_image_size", {}).get("longest_edge", side)
    edge = vision.get("size", {}).get("longest_edge", 4 * tile)
    processor = Idefics3ImageProcessorPil(size={"longest_edge": edge}, max_image_size={"longest_edge": tile})
    tiles = tiles_of(data | {"micro_batch_size": 1}, [side, side], lambda size: processor.get_number_of_image_patches(*size, {})[0])
    return sum(max(each, 1) for each in tiles)


def idefics2_size(size: list[int]) -> list[int]:
    import numpy
    from transformers.image_utils import SizeDict
    from transformers.models.idefics2.image_processing_pil_idefics2 import Idefics2ImageProcessorPil, get_resize_output_image_size

    image = numpy.broadcast_to(numpy.zeros((), numpy.uint8), (3, *size))
    return list(get_resize_output_image_size(image, SizeDict(**Idefics2ImageProcessorPil.size)))


def lfm2_vl_shapes(config: dict[str, Any], size: list[int]) -> list[list[int]]:
    """Rows and columns of patches of an image's tiles, the whole image last, as Lfm2VlImageProcessor cuts it."""
    from transformers.models.lfm2_vl.image_processing_lfm2_vl import Lfm2VlImageProcessor

    patch, factor = config.get("vision_config", {}).get("patch_size", 16), config.get("downsample_factor", 2)
    p, tiles = Lfm2VlImageProcessor(encoder_patch_size=patch, downsample_factor=factor), 0
    width, height = p.smart_resize(*size, factor, p.min_image_tokens, p.max_image_tokens, patch)
    if p._is_image_too_large(*size, p.max_image_tokens, patch, factor, p.max_pixels_tolerance):
        tiles = p._get_grid_layout(*size, p.min_tiles, p.max_tiles, p.tile_size)[-1]
    return [[p.tile_size // patch] * 2] * tiles + [[height // patch, width // patch]]


def siglip2_shape(size: list[int], patch: int, most: int) -> list[int]:
    """Rows and columns of an image's patches, of at most so many, as Siglip2ImageProcessor cuts it."""
    from transformers.models.siglip2.image_processing_pil_siglip2 import get_image_size_for_max_num_patches

    return [side // patch for side in get_image_size_for_max_num_patches(*size, patch, most)]


def perception_side(vision: dict[str, Any]) -> list[int]:
    """Pixels of timm's encoder: its config's, or those in the name of its architecture."""
    return vision.get("model_args", {}).get("img_size") or [int(vision["architecture"].rsplit("_", 1)[1])] * 2


def perception_tiles(size: list[int], tile: int) -> int:
    from transformers.models.perception_lm.image_processing_perception_lm import PerceptionLMImageProcessor

    own, sides = PerceptionLMImageProcessor(), {"img_width": size[1], "img_height": size[0], "tile_size": tile}
    return 1 + math.prod(own._fit_image_to_canvas(**sides) or own._find_closest_aspect_ratio(**sides))


def deepseek_ocr2_inputs(sam: dict[str, Any], data: dict[str, Any], images: int, dtype: str) -> dict[str, Any]:
    """Squares as DeepseekOcr2ImageProcessor cuts them: of the whole image, and of tiles three quarters as wide."""
    from transformers.models.deepseek_ocr2.image_processing_pil_deepseek_ocr2 import get_optimal_tiled_canvas

    side = sam.get("image_size", 1024)
    tile = side // 4 * 3

    def cut(size: list[int]) -> int:
        return 1 + (math.prod(get_optimal_tiled_canvas(tuple(size), (tile, tile), 2, 6)) if max(size) > tile else 0)

    tiles = [each - 1 for each in tiles_of(data, [side, side], cut)]
    out = {"pixel_values": tensor([images, sam.get("num_channels", 3), side, side], dtype), "num_local_patches": {"values": tiles}}
    if sum(tiles):
        out["pixel_values_local"] = tensor([sum(tiles), sam.get("num_channels", 3), tile, tile], dtype)
    return out


def molmo2_inputs(vision: dict[str, Any], sizes: list[list[int]], dtype: str) -> dict[str, Any]:
    """Crops, and windows of their patches that are tokens: Molmo2ImageProcessor.get_image_grid_and_crops, which wants torchvision.
    `padded`: some windows lack patches.
    """
    side, patch = (vision.get("image_size") or [378, 378])[0], vision.get("patch_size", 14)
    patches, pool = side // patch, 2
    window = patches - 8
    crops, grids = 0, []
    for height, width in sizes:
        tilings = sorted(((h, w) for h in range(1, 9) for w in range(1, 9) if h * w <= 8), key=lambda x: (x[0] * x[1], x[0]))
        scales = [min(h * window * patch / (height - 8 * patch), w * window * patch / (width - 8 * patch)) for h, w in tilings]
        large = [s for s in scales if s >= 1]
        rows, columns = tilings[scales.index(min(large) if large else max(scales))]
        crops += rows * columns + 1
        grids.append([-(-patches // pool)] * 2 + [-(-(n * window + 8) // pool) for n in (rows, columns)])
    tokens = sum(a * b + c * d for a, b, c, d in grids)
    return {
        "pixel_values": tensor([crops, patches**2, patch**2 * vision.get("num_channels", 3)], dtype),
        "image_token_pooling": tensor([tokens, pool**2], "int32") | {"padded": patches % pool != 0},
        "image_grids": {"values": grids},
    }


def minicpm_sizes(config: dict[str, Any], size: list[int]) -> list[list[int]]:
    """Rows and columns of patches of an image and of its slices, as MiniCPMV4_6ImageProcessor cuts it."""
    from transformers.models.minicpmv4_6.image_processing_pil_minicpmv4_6 import MiniCPMV4_6ImageProcessorPil

    patch, p = config.get("vision_config", {}).get("patch_size", 16), MiniCPMV4_6ImageProcessorPil()
    mode = config.get("downsample_mode", "4x" if config["model_type"] == "minicpm_ocr" else "16x")
    grid = p.get_sliced_grid(tuple(size), p.max_slice_nums, p.scale_resolution)
    sizes = [p.find_best_resize(tuple(size), p.scale_resolution, patch, mode, allow_upscale=grid is None)]
    if grid:
        refined = p.get_refine_size(tuple(size), grid, p.scale_resolution, patch, mode, allow_upscale=True)
        sizes += [tuple(side // parts for side, parts in zip(refined, grid, strict=True))] * math.prod(grid)
    return [[side // patch for side in sides] for sides in sizes]


def qwen2_audio_states(window: int, seconds: float) -> tuple[int, int]:
    """States of the encoder that are no padding, and tokens, of an audio: Qwen2AudioProcessor._process_audio."""
    states = (min(window, math.ceil(round(seconds * 16000) / 160)) - 1) // 2 + 1
    return states, (states - 2) // 2 + 1


def audioflamingo3_audio(audio: dict[str, Any], data: dict[str, Any], dtype: str) -> dict[str, Any]:
    """Windows of the encoder, an audio's last one padded: AudioFlamingo3Processor._process_audio."""
    window, samples = 2 * audio.get("max_source_positions", 1500), round(data.get("audio_seconds", 30) * 16000)
    of_each, frames = max(1, math.ceil(samples / (160 * window))), math.ceil(samples / 160)
    windows, last = data.get("micro_batch_size", 1) * of_each, frames - (of_each - 1) * window
    counts = {"states": (last - 1) // 2 + 1, "tokens": ((frames - 1) // 2 + 1) // 2}
    features = tensor([windows, audio.get("num_mel_bins", 128), window], dtype)
    return {"input_features": features, "input_features_mask": tensor([windows, window], "int32") | counts}


def glmasr_audio(audio: dict[str, Any], data: dict[str, Any], dtype: str) -> dict[str, Any]:
    """Windows of the encoder, an audio's last one padded: GlmAsrProcessor._process_audio. `rows`: of the projector, of a window."""
    window, samples = 2 * audio.get("max_position_embeddings", 1500), round(data.get("audio_seconds", 30) * 16000)
    windows = data.get("micro_batch_size", 1) * max(1, math.ceil(samples / (160 * window)))
    rows = window // 2 * audio.get("hidden_size", 1280) // audio.get("intermediate_size", 5120)
    counts = {"rows": rows, "tokens": ((math.ceil(samples / 160) - 1) // 2 + 1) // 4}
    features = tensor([windows, audio.get("num_mel_bins", 128), window], dtype)
    return {"input_features": features, "input_features_mask": tensor([windows, window], "int32") | counts}


def granite_audio(config: dict[str, Any], data: dict[str, Any], dtype: str) -> dict[str, Any]:
    """States of 20 ms, and which tokens are no padding, as GraniteSpeechFeatureExtractor gives them."""
    audios, window = data.get("audios_per_sample", 1), config.get("window_size", 15)
    states = (round(data.get("audio_seconds", 30) * 16000) // 160 + 1) // 2
    tokens = -(-states // window) * (window // config.get("downsample_rate", 5))
    rows = data.get("micro_batch_size", 1) * audios
    features = tensor([rows, states, config.get("encoder_config", {}).get("input_dim", 160)], dtype)
    mask = tensor([rows, tokens], "bool") | {"tokens": audios * tokens, "rows": tokens}
    return {"input_features": features, "input_features_mask": mask}


def omni_audio(config: dict[str, Any], data: dict[str, Any], dtype: str) -> dict[str, Any]:
    """Spectrograms as the processors give them: Qwen2.5-Omni's padded to 300 s, Qwen3-Omni's to the longest; `frames`: without padding."""
    audios, samples = data.get("micro_batch_size", 1) * data.get("audios_per_sample", 1), round(data.get("audio_seconds", 30) * 16000)
    own = config["model_type"] == "qwen2_5_omni_thinker"
    frames = min(30000, math.ceil(samples / 160)) if own else samples // 160
    width = 30000 if own else frames
    features = tensor([audios, config.get("audio_config", {}).get("num_mel_bins", 128), width], dtype)
    return {"input_features": features, "feature_attention_mask": tensor([audios, width], "int32") | {"frames": frames}}


def phi4_crops(config: dict[str, Any], size: list[int]) -> dict[str, Any]:
    """Crops of an image, as Phi4MultimodalImageProcessor.dynamic_preprocess cuts it: rows and columns of them, and of the model's
    features of them those that are no padding.
    """
    vision = config.get("vision_config", {})
    side, patch = vision.get("crop_size", 448), vision.get("patch_size", 14)
    height, width = size
    rows, columns = math.ceil(height / side), math.ceil(width / side)
    if rows * columns > 36:
        from transformers.models.phi4_multimodal.image_processing_phi4_multimodal import Phi4MultimodalImageProcessor

        ratios = {(i, j) for i in range(1, 37) for j in range(1, 37) if i * j <= 36}
        ordered = sorted(ratios, key=lambda of: of[0] * of[1])
        columns, rows = Phi4MultimodalImageProcessor().find_closest_aspect_ratio(width / height, ordered, width, height, side)
    wide, high = side * columns / width, side * rows / height
    padding = [side * rows - int(height * wide), 0] if wide < high else [0, side * columns - int(width * high)]
    useful = [side // patch * of - pad // patch for of, pad in zip((rows, columns), padding, strict=True)]
    features = [-(-patches // 2) for patches in useful]
    cells = side // patch // 2
    tokens = cells * (cells + 1) + 1 + features[0] * (features[1] + 1)
    return {"rows": rows, "columns": columns, "useful": useful, "features": features, "tokens": tokens}


def phi4_inputs(config: dict[str, Any], data: dict[str, Any], dtype: str) -> dict[str, Any]:
    """Crops of images, and spectrograms without padding, as Phi4MultimodalProcessor gives them."""
    vision, audio, batch = config.get("vision_config", {}), config.get("audio_config", {}), data.get("micro_batch_size", 1)
    out: dict[str, Any] = {}
    side = vision.get("crop_size", 448)
    if images := batch * images_of(data):
        sizes = sizes_of(data, [side, side])
        crops = [phi4_crops(config, size) for size in sizes]
        most, mask = 1 + max(of["rows"] * of["columns"] for of in crops), side // vision.get("patch_size", 14)
        out["image_pixel_values"] = tensor([images, most, vision.get("num_channels", 3), side, side], dtype)
        out["image_sizes"] = {"values": [[of["rows"] * side, of["columns"] * side] for of in crops], "crops": crops}
        out["image_attention_mask"] = tensor([images, most, mask, mask], "float32")
    if audios := batch * data.get("audios_per_sample", 1):
        frames = (round(data.get("audio_seconds", 30) * 16000) - 400) // 160 + 1
        out["audio_input_features"] = tensor([audios, frames, audio.get("input_size", 80)], dtype)
        out["audio_embed_sizes"] = {"values": [-(-frames // audio.get("time_reduction", 8))] * audios}
        if audios > 1:
            out["audio_attention_mask"] = tensor([audios, frames], "bool")
    return out


def internvl_tiles(size: list[int], tile: list[int]) -> int:
    from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import get_optimal_tiled_canvas

    tiles = math.prod(get_optimal_tiled_canvas(tuple(size), tuple(tile), 1, 12))
    return tiles + (tiles > 1)


def cohere2_vision_tiles(size: list[int], tile: list[int]) -> int:
    from transformers.models.cohere2_vision.image_processing_cohere2_vision import get_optimal_tiled_canvas

    tiles = math.prod(get_optimal_tiled_canvas(tuple(size), tuple(tile), 1, 12))
    return int(tiles + (tiles > 1))


def llama4_tiles(size: list[int], tile: list[int]) -> int:
    import torch
    from transformers.image_utils import SizeDict
    from transformers.models.llama4.image_processing_llama4 import find_supported_resolutions, get_best_fit

    sizes = find_supported_resolutions(16, SizeDict(height=tile[0], width=tile[1]))
    tiles = math.prod(side // tile[0] for side in get_best_fit((size[0], size[1]), torch.tensor(sizes)).tolist())
    return int(tiles + (tiles > 1))


AYA_TILES = {"aya_vision": internvl_tiles, "cohere2_vision": cohere2_vision_tiles, "llama4": llama4_tiles}


def labels_of_sequences(config: dict[str, Any], batch: int) -> dict[str, Any]:
    """What ForSequenceClassificationLoss (transformers 5.23, loss/loss_utils.py) wants of a config's problem."""
    labels = config.get("num_labels", len(config.get("id2label", "01")))
    problem = config.get("problem_type") or ("regression" if labels == 1 else "single_label_classification")
    if problem == "single_label_classification":
        return tensor([batch])
    return tensor([batch] if labels == 1 and problem == "regression" else [batch, labels], "float32")


def inputs_of(model: dict[str, Any], data: dict[str, Any], dtype: str) -> dict[str, Any]:
    config, batch = model["config"], data.get("micro_batch_size", 1)
    kind, sequence = config.get("model_type"), data.get("sequence_length")
    out: dict[str, Any] = {}
    if kind == "whisper":
        frames = 2 * config.get("max_source_positions", 1500)
        out["input_features"] = tensor([batch, config.get("num_mel_bins", 80), frames], dtype)
        out["labels"] = tensor([batch] if model["class"].endswith("ForAudioClassification") else [batch, sequence])
        return out
    if kind == "reversible_resnet":
        frames = round(100 * data.get("audio_seconds", 2))
        return {"input_features": tensor([batch, frames, config.get("feat_dim", 80)], dtype), "labels": tensor([batch])}
    if kind == "voxtral" and data.get("audios_per_sample", 1):
        audio = config.get("audio_config", {})
        frames = 2 * audio.get("max_source_positions", 1500)
        windows = batch * data.get("audios_per_sample", 1) * math.ceil(data.get("audio_seconds", frames / 100) * 100 / frames)
        out["input_features"] = tensor([windows, audio.get("num_mel_bins", 128), frames], dtype)
    if kind == "qwen2_audio" and data.get("audios_per_sample", 1):
        audio = config.get("audio_config", {})
        audios, frames = batch * data.get("audios_per_sample", 1), 2 * audio.get("max_source_positions", 1500)
        out["input_features"] = tensor([audios, audio.get("num_mel_bins", 128), frames], dtype)
        states, tokens = qwen2_audio_states(frames, data.get("audio_seconds", frames / 100))
        out["feature_attention_mask"] = tensor([audios, frames], "int32") | {"states": states, "tokens": tokens}
    if kind == "audioflamingo3" and data.get("audios_per_sample", 1):
        out |= audioflamingo3_audio(config.get("audio_config", {}), data, dtype)
    if kind == "glmasr" and data.get("audios_per_sample", 1):
        out |= glmasr_audio(config.get("audio_config", {}), data, dtype)
    if kind in ("granite_speech", "granite_speech_plus") and data.get("audios_per_sample", 1):
        out |= granite_audio(config, data, dtype)
    if kind == "clap":  # ClapFeatureExtractor repeats or cuts audio to 10 s
        out["input_features"] = tensor([batch, 1, 1001, config.get("audio_config", {}).get("num_mel_bins", 64)], dtype)
    if kind in OMNI and data.get("audios_per_sample", 1):
        out |= omni_audio(config, data, dtype)
    if kind == "qwen3_asr" and data.get("audios_per_sample", 1):  # its extractor pads clips to half a second, spectrograms to whole chunks
        audio, chunk = config.get("audio_config", {}), 2 * config.get("audio_config", {}).get("n_window", 50)
        frames = max(round(data.get("audio_seconds", 30) * 16000), 8000) // 160
        sizes = [batch, audio.get("num_mel_bins", 128), -(-frames // chunk) * chunk]
        out["input_features"] = tensor(sizes, dtype)
        out["input_features_mask"] = tensor([sizes[0], sizes[2]], "int32") | {"frames": frames}
    if kind == "wav2vec2-bert":  # SeamlessM4TFeatureExtractor: two frames of 25 ms, one each 10 ms, are a state
        frames = 1 + (round(data.get("audio_seconds", 15) * 16000) - 400) // 160
        states = [batch, (frames + 1) // 2]
        out["input_features"] = tensor([*states, config.get("feature_projection_input_dim", 160)], dtype)
        out["attention_mask"] = tensor(states, "int32") | {"attended": frames // 2}
        out["labels"] = tensor([batch, sequence])
        return out
    if kind in ("parakeet_ctc", *CANARIES):  # ParakeetFeatureExtractor: its last frame never attends
        frames = [batch, round(data.get("audio_seconds", 15) * 16000) // 160 + 1]
        bins = 128 if kind == "cohere_asr" or not config.get("encoder_config") and kind == "canary" else 80
        out["input_features"] = tensor([*frames, config.get("encoder_config", {}).get("num_mel_bins", bins)], dtype)
        out["attention_mask"] = tensor(frames, "bool") | {"attended": frames[1] - 1}
        out["labels"] = tensor([batch, sequence])
        return out
    if kind == "moonshine":  # Wav2Vec2FeatureExtractor, with return_attention_mask
        samples = [batch, round(data.get("audio_seconds", 10) * 16000)]
        out["input_values"] = tensor(samples, dtype)
        out["attention_mask"] = tensor(samples, "int32")
        out["labels"] = tensor([batch, sequence])
        return out
    if kind in WAVEFORMS:
        samples = [batch, round(data.get("audio_seconds", 15) * 16000)]
        out["input_values"] = tensor(samples, dtype)
        if config.get("feat_extract_norm", "group") == "layer":  # as their extractors' return_attention_mask is
            out["attention_mask"] = tensor(samples, "int32")
        out["labels"] = tensor([batch] if model["class"].endswith("ForSequenceClassification") else [batch, sequence])
        return out
    if kind in DETECTORS:
        out["pixel_values"] = tensor([batch, config.get("num_channels", 3), *data.get("image_size", DETECTORS[kind])], dtype)
        if not model["class"].endswith("Model"):
            out["labels"] = {"objects": [data.get("objects_per_image", 7)] * batch}
        return out
    if kind == "mask2former":
        side, objects = data.get("image_size", [384, 384]), [data.get("objects_per_image", 7)] * batch
        out["pixel_values"] = tensor([batch, config.get("num_channels", 3), *side], dtype)
        return out | {"mask_labels": {"masks": objects, "size": side}, "class_labels": {"classes": objects}}
    if kind in IMAGES_ALONE or model["class"].endswith("ForImageClassification"):
        config = config | config.get("vision_config", {})
        side = [config.get("image_size", 224)] * 2 if not kind.startswith(("dino", "convnext", "resnet")) else [224, 224]
        side = [512, 512] if kind in ("segformer", "upernet") else side  # their processor's
        if kind in ("dpt", "depth_anything"):
            own = config.get("backbone_config") or {"image_size": 518 if kind == "depth_anything" else config.get("image_size", 384)}
            side = [own.get("image_size", 224)] * 2
        out["pixel_values"] = tensor([batch, config.get("num_channels", 3), *data.get("image_size", side)], dtype)
        if model["class"].endswith("ForImageClassification"):
            out["labels"] = tensor([batch])
        if model["class"].endswith("ForSemanticSegmentation"):
            out["labels"] = tensor([batch, *out["pixel_values"]["shape"][2:]])
        return out
    if kind == "sam":  # a box an image, of float64 as its processor has it, and one mask of it
        vision = config.get("vision_config") or {}
        out["pixel_values"] = tensor([batch, vision.get("num_channels", 3), *[vision.get("image_size", 1024)] * 2], dtype)
        return out | {"input_boxes": tensor([batch, 1, 4], "float64"), "multimask_output": {"py": False}}
    if kind == "vision-encoder-decoder":
        side = data.get("image_size") or config["encoder"].get("image_size", 224)
        side = list(side) if isinstance(side, list) else [side] * 2
        out["pixel_values"] = tensor([batch, config["encoder"].get("num_channels", 3), *side], dtype)
        out["labels"] = tensor([batch, sequence])
        return out
    if kind in ("videomae", "timesformer"):
        return videomae_inputs(model, data, dtype)
    if sequence:
        out["input_ids"] = tensor([batch, sequence])
        if kind not in PAIRS and (not model["class"].endswith("Model") or model["class"].endswith(("LMHeadModel", "MTModel"))):
            if model["class"].endswith("ForQuestionAnswering"):
                out |= {"start_positions": tensor([batch]), "end_positions": tensor([batch])}
            elif model["class"].endswith("ForSequenceClassification"):
                out["labels"] = labels_of_sequences(config, batch)
            else:
                out["labels"] = tensor([batch, data.get("target_length", sequence)])
    vision = config.get("vision_config", config)
    images = batch * images_of(data)
    if kind in ("smolvlm", "idefics3"):
        tiles = idefics3_tiles(config, data)
        if tiles:
            side = [vision.get("image_size", 224)] * 2
            out["pixel_values"] = tensor([batch, tiles, vision.get("num_channels", 3), *side], dtype)
    elif kind == "idefics2":
        if images:
            sides = idefics2_size(data.get("image_size") or [vision.get("image_size", 224)] * 2)
            out["pixel_values"] = tensor([batch, images_of(data), vision.get("num_channels", 3), *sides], dtype)
    elif kind in ("llava_next_video", "llava_onevision") and llava_frames(data):
        if images:
            side = [vision.get("image_size", 336)] * 2
            out["pixel_values_videos"] = tensor([images, llava_frames(data), vision.get("num_channels", 3), *side], dtype)
    elif kind in ("llava_next", "llava_next_video", "llava_onevision", "granite4_vision"):
        if images:
            side = [vision.get("image_size", 336)] * 2
            tiles = tiles_of(data, side, lambda size: anyres_tiles(size, config.get("image_grid_pinpoints") or ANYRES, side[0]))
            out["pixel_values"] = tensor([images, max(tiles), vision.get("num_channels", 3), *side], dtype)
            out["image_sizes"] = {"cpu_values": sizes_of(data, side)}
    elif kind in ("deepseek_vl", "ovis2", "got_ocr2", "janus"):  # their processors make a square of any image
        if images:
            side = [vision.get("image_size", {"got_ocr2": 1024, "janus": 384}.get(kind, 224))] * 2
            out["pixel_values"] = tensor([images, vision.get("num_channels", 3), *side], dtype)
    elif kind == "florence2":
        if images:
            out["pixel_values"] = tensor([images, vision.get("in_channels", 3), *(data.get("image_size") or [768, 768])], dtype)
    elif kind == "kosmos-2.5":  # its processor pads any image to as many patches, each behind its row and column
        if images:
            width = vision.get("patch_embed_hidden_size", 768)
            out["flattened_patches"] = tensor([images, vision.get("max_num_patches", 4096), 2 + width], dtype)
            out["image_embeds_position_mask"] = tensor([batch, sequence])
    elif kind == "molmo2":
        out["mm_token_type_ids"] = tensor([batch, sequence])
        if images:
            out |= molmo2_inputs(vision, sizes_of(data, vision.get("image_size") or [378, 378]), dtype)
    elif kind == "chameleon":
        if images:
            vq = config.get("vq_config", {})
            out["pixel_values"] = tensor([images, vq.get("in_channels", 3), *[vq.get("resolution", 512)] * 2], dtype)
    elif kind == "perception_lm":
        if images:
            side = perception_side(vision)
            tiles = tiles_of(data, side, lambda size: perception_tiles(size, side[0]))
            out["pixel_values"] = tensor([images, max(tiles), 3, *side], dtype)
    elif kind == "deepseek_ocr2":
        if images:
            out |= deepseek_ocr2_inputs(vision.get("sam_config", {}), data, images, dtype)
    elif kind in ("llava", "video_llava", "clip", "clip_vision_model", "siglip", "siglip_vision_model"):
        side = data.get("image_size") or [vision.get("image_size", 224)] * 2
        if images:
            out["pixel_values"] = tensor([images, vision.get("num_channels", 3), *side], dtype)
    elif kind == "gemma3":
        if images:
            side = [vision.get("image_size", 224)] * 2
            out["pixel_values"] = tensor([images, vision.get("num_channels", 3), *side], dtype)
            out["token_type_ids"] = tensor([batch, sequence])
    elif kind == "gemma3n":
        if images:
            out["pixel_values"] = tensor([images, 3, 768, 768], dtype)
    elif kind in ("gemma4", "gemma4_unified"):
        if images:
            out |= gemma4_inputs(config, data, dtype)
    elif kind in ("blip-2", "instructblip"):
        side = [vision.get("image_size", 224)] * 2
        out["pixel_values"] = tensor([images, 3, *side], dtype)
        if kind == "instructblip":  # InstructBlipProcessor: the text once more, in tokens of the Q-Former's own
            text = [batch, max(sequence - config.get("num_query_tokens", 32), 1)]
            out |= {"qformer_input_ids": tensor(text), "qformer_attention_mask": tensor(text)}
    elif kind == "paligemma":
        side = [vision.get("image_size", 224)] * 2
        out["pixel_values"] = tensor([images, vision.get("num_channels", 3), *side], dtype)
        out["token_type_ids"] = tensor([batch, sequence])
    elif kind in AYA_TILES:
        if images:
            side = [vision.get("image_size", 448 if kind == "llama4" else 384)] * 2
            tiles = tiles_of(data, side, lambda size: AYA_TILES[kind](size, side))
            out["pixel_values"] = tensor([sum(tiles), vision.get("num_channels", 3), *side], dtype)
    elif kind in ("internvl", "qianfan_ocr"):
        if images:
            side = vision.get("image_size", 448)
            side = list(side) if isinstance(side, list) else [side] * 2
            tiles = tiles_of(data, side, lambda size: internvl_tiles(size, side))
            out["pixel_values"] = tensor([sum(tiles), vision.get("num_channels", 3), *side], dtype)
    elif kind in ("mistral3", "mistral_large4", "lighton_ocr"):
        if images:
            newer = kind == "lighton_ocr"
            cell = vision.get("patch_size", 14 if newer else 16) * config.get("spatial_merge_size", 2)
            sizes = [pixtral_size(size, vision.get("image_size", 1540 if newer else 1024), cell) for size in sizes_of(data, [672, 448])]
            padded = [max(sides) for sides in zip(*sizes, strict=True)]
            out["pixel_values"] = tensor([images, vision.get("num_channels", 3), *padded], dtype)
            out["image_sizes"] = {"values": sizes}
    elif kind == "lfm2_vl":
        if images:
            shapes = [shape for size in sizes_of(data, [512, 512]) for shape in lfm2_vl_shapes(config, size)]
            patch, factor = vision.get("patch_size", 16), config.get("downsample_factor", 2)
            patches = max(256 * factor**2, (512 // patch) ** 2)
            out["pixel_values"] = tensor([len(shapes), patches, vision.get("num_channels", 3) * patch**2], dtype)
            out["pixel_attention_mask"] = tensor([len(shapes), patches], "int32")
            out["spatial_shapes"] = {"values": shapes}
    elif kind in ("siglip2", "siglip2_vision_model"):
        if images:
            patch, most = vision.get("patch_size", 16), vision.get("num_patches", 256)
            shapes = [siglip2_shape(size, patch, most) for size in sizes_of(data, [224, 224])]
            out["pixel_values"] = tensor([images, most, vision.get("num_channels", 3) * patch**2], dtype)
            out["pixel_attention_mask"] = tensor([images, most], "int32")
            out["spatial_shapes"] = {"values": shapes}
    elif kind in MINICPM_V:
        if images:
            sizes = [size for image in sizes_of(data, [448, 448]) for size in minicpm_sizes(config, image)]
            patch = vision.get("patch_size", 16)
            width = sum(math.prod(size) for size in sizes) * patch
            out["pixel_values"] = tensor([1, vision.get("num_channels", 3), patch, width], dtype)
            out["target_sizes"] = {"values": sizes, "dtype": "int32"}
        if kind == "minicpmv4_7":  # as a collator finds them (get_rope_index)
            out["position_ids"] = tensor([3, batch, sequence])
    elif kind == "mllama":
        if images:
            out |= mllama_inputs(config, data, dtype)
    elif kind in KIMI_VL:
        if images:
            out |= kimi_inputs(config, data, dtype)
    elif kind in GRIDS:
        out |= grid_inputs(config, data, dtype)
    elif kind == "phi4_multimodal":
        out |= phi4_inputs(config, data, dtype)
    elif "vision_config" in config:
        raise SystemExit(f"inputs of a {kind} model are not made from a job: measure a case that lists them")
    if kind in PAIRS:
        out["return_loss"] = {"py": True}
    return out


def videomae_inputs(model: dict[str, Any], data: dict[str, Any], dtype: str) -> dict[str, Any]:
    """Clips, and which of their patches are masked: `masked` of each clip, as TubeMaskingGenerator of MCG-NJU/VideoMAE has it."""
    config, batch = model["config"], data.get("micro_batch_size", 1)
    frames, side = config.get("num_frames", 8 if config["model_type"] == "timesformer" else 16), config.get("image_size", 224)
    out = {"pixel_values": tensor([batch, frames, config.get("num_channels", 3), side, side], dtype)}
    if model["class"].endswith("ForVideoClassification"):
        out["labels"] = tensor([batch])
    if model["class"].endswith("ForPreTraining") and config.get("motion_centric_masking_ratio") is None:
        of_frame, tubes = (side // config.get("patch_size", 16)) ** 2, frames // config.get("tubelet_size", 2)
        masked = tubes * int(config.get("mask_ratio", 0.9) * of_frame)
        out["bool_masked_pos"] = tensor([batch, tubes * of_frame], "bool") | {"masked": masked}
    return out


def mllama_inputs(config: dict[str, Any], data: dict[str, Any], dtype: str) -> dict[str, Any]:
    """Tiles as MllamaImageProcessor pads them, to as many as the most that an image may have, and what says which are none."""
    batch, images, vision = data.get("micro_batch_size", 1), images_of(data), config.get("vision_config", {})
    tiles, side = vision.get("max_num_tiles", 4), vision.get("image_size", 448)
    return {
        "pixel_values": tensor([batch, images, tiles, vision.get("num_channels", 3), side, side], dtype),
        "aspect_ratio_ids": tensor([batch, images]),
        "aspect_ratio_mask": tensor([batch, images, tiles]),
        "cross_attention_mask": tensor([batch, data["sequence_length"], images, tiles]),
    }


def gemma4_inputs(config: dict[str, Any], data: dict[str, Any], dtype: str) -> dict[str, Any]:
    """Patches as the processor cuts them, all images padded to as many; `grid`: how many are none, for those who read it."""
    from transformers.models.gemma4.image_processing_pil_gemma4 import get_aspect_ratio_preserving_size

    batch, vision = data.get("micro_batch_size", 1), config.get("vision_config", {})
    images, patch, side = batch * images_of(data), vision.get("patch_size", 16), vision.get("pooling_kernel_size", 3)
    patches = config.get("vision_soft_tokens_per_image", 280) * side**2
    size = get_aspect_ratio_preserving_size(*data.get("image_size", [672, 960]), patch, patches, side)
    if config["model_type"] == "gemma4_unified":  # a row is a token
        patches, patch, side = patches // side**2, patch * side, 1
    return {
        "pixel_values": tensor([images, patches, 3 * patch * patch], dtype),
        "image_position_ids": tensor([images, patches, 2]) | {"grid": [s // patch for s in size]},
        "mm_token_type_ids": tensor([batch, data["sequence_length"]]),
    }


def grid_inputs(config: dict[str, Any], data: dict[str, Any], dtype: str) -> dict[str, Any]:
    """Patches as the processor cuts them, and the positions that a collator finds for them (get_rope_index)."""
    batch, vision = data.get("micro_batch_size", 1), config.get("vision_config", {})
    out: dict[str, Any] = {"position_ids": tensor([3, batch, data["sequence_length"]])}
    if config.get("model_type") in FLAT_VL:
        out = {}
    if config.get("model_type") == "hunyuan_vl":  # one axis a section
        text = config["text_config"]
        rope = text.get("rope_scaling") or text.get("rope_parameters") or {}
        axes = len(rope.get("xdrope_section") or rope["mrope_section"])
        out = {"position_ids": tensor([axes, batch, data["sequence_length"]])}
    if not images_of(data):
        return out
    newer, omni = config.get("model_type") in QWEN3_VL, config.get("model_type") in OMNI
    whole = config.get("model_type") in GLM_V  # limits are of all frames together
    paddle, single = config.get("model_type") == "paddleocr_vl", config.get("model_type") in ("paddleocr_vl", "hunyuan_vl")
    sizes = (("patch_size", 16 if newer or config.get("model_type") in ("lfm3_vl", "hunyuan_vl") else 14), ("spatial_merge_size", 2), ("temporal_patch_size", 1 if single else 2))
    # preprocessor_config.json of the published models
    least, most = (65536, 16777216) if newer and not omni else (12544, 9633792) if whole else (3136, 12845056)
    if config.get("model_type") == "hunyuan_vl":
        least, most = 512 * 512, 2048 * 2048
    if config.get("model_type") in FLAT_VL:  # Qwen2VLImageProcessor's own
        least, most = 56 * 56, 28 * 28 * 1280
    patch, merge, frames = (vision.get(key, default) for key, default in sizes)
    limits = (data.get("min_pixels", least), data.get("max_pixels", most))
    if whole:
        limits = (limits[0] / frames, limits[1] / frames)

    if paddle:
        from transformers.models.paddleocr_vl.image_processing_pil_paddleocr_vl import smart_resize as resize

        limits = (data.get("min_pixels", 384 * 384), data.get("max_pixels", 1536 * 1536))
        frames = 1

    def grid_of(size: list[int]) -> list[int]:
        if paddle:
            return [1, *(s // patch for s in resize(*size, patch * merge, *limits))]
        return [-(-data.get("frames", 1) // frames), *(s // patch for s in smart_resize(*size, patch * merge, *limits))]

    features = vision.get("in_channels", vision.get("num_channels", 3)) * frames * patch * patch
    if data.get("video"):
        processor = "qwen3_vl" if newer else "glm4v" if whole else "qwen2_vl"
        grids = [video_grid(processor, data, patch, merge, frames)] * images_of(data) * batch
        out["pixel_values_videos"] = tensor([sum(map(math.prod, grids)), features], dtype)
        out["video_grid_thw"] = {"values": grids}
        return out | ({"second_per_grid_ts": {"values": [1.0] * len(grids)}} if config.get("model_type") == "qwen2_5_vl" else {})
    grids = [data.get("grid_thw") or grid_of(size) for size in sizes_of(data, [672, 448])]
    row = [vision.get("num_channels", 3), patch, patch] if paddle else [features]
    out["pixel_values"] = tensor([sum(map(math.prod, grids)), *row], dtype)
    out["image_grid_thw"] = {"values": grids}
    return out


def video_grid(processor: str, data: dict[str, Any], patch: int, merge: int, frames: int) -> list[int]:
    """Of a film of 30 frames a second, sampled and resized as the processor of models/PROCESSOR does."""
    from transformers.video_utils import VideoMetadata

    given, own = data["video"], 30
    size, fps = given.get("size", [672, 448]), given.get("fps", 2)
    length = round(given["seconds"] * own)
    film = VideoMetadata(total_num_frames=length, fps=own, duration=length / own)
    if processor != "qwen2_vl":  # limits: video_preprocessor_config.json of the published Qwen3-VL; GLM-4V's class
        if processor == "qwen3_vl":
            from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor as Processor
            from transformers.models.qwen3_vl.video_processing_qwen3_vl import smart_resize as resize
        else:
            from transformers.models.glm4v.video_processing_glm4v import Glm4vVideoProcessor as Processor
            from transformers.models.glm4v.video_processing_glm4v import smart_resize as resize

        sampled = len(Processor().sample_frames(film, fps=fps))
        least, most = (4096, 25165824) if processor == "qwen3_vl" else (12544, 47040000)
        limits = (data.get("min_pixels", least), data.get("max_pixels", most))
        sides = resize(sampled, *size, temporal_factor=frames, factor=patch * merge, min_pixels=limits[0], max_pixels=limits[1])
    else:
        from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor

        sampled = len(Qwen2VLVideoProcessor().sample_frames(film, temporal_patch_size=frames, fps=fps))
        sides = smart_resize(*size, patch * merge, data.get("min_pixels", 3136), data.get("max_pixels", 12845056))
    return [-(-sampled // frames), *(s // patch for s in sides)]


def kimi_inputs(config: dict[str, Any], data: dict[str, Any], dtype: str) -> dict[str, Any]:
    """Patches of all images one after another, as Kimi K2.5's processor cuts them (images), or Muse Glimmer's (rows of two frames)."""
    vision = config.get("vision_config", {})
    patch = vision.get("patch_size", 14)
    if config["model_type"] == "kimi_k25":
        from transformers.models.kimi_k25.image_processing_kimi_k25 import navit_resize

        merge, row = vision.get("merge_kernel_size", [2, 2])[0], [3, patch, patch]

        def sides_of(size: list[int]) -> Any:
            return navit_resize(*size, patch, merge, 16384, 512)[1]

    else:
        from transformers.models.muse_glimmer.image_processing_muse_glimmer import smart_resize as resize

        def sides_of(size: list[int]) -> Any:
            return resize(*size, patch * vision.get("merge_size", 2), 4096)

        row = [vision.get("patch_temporal", 2) * 3 * patch**2]
    grids = [data.get("grid_thw") or [1, *(s // patch for s in sides_of(size))] for size in sizes_of(data, [672, 448])]
    return {"pixel_values": tensor([sum(map(math.prod, grids)), *row], dtype), "image_grid_thw": {"values": grids}}


def smart_resize(height: int, width: int, factor: int, min_pixels: float, max_pixels: float) -> tuple[int, int]:
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


def processors_own(kind: str | None, inputs: dict[str, Any]) -> None:
    """What else the processors of these models give to generate()."""
    if kind in ("smolvlm", "idefics3", "idefics2") and "pixel_values" in inputs:
        batch, tiles, _, height, width = inputs["pixel_values"]["shape"]
        inputs["pixel_attention_mask"] = tensor([batch, tiles, height, width])
    if kind == "minicpmv4_7":
        inputs.pop("position_ids")
        if "pixel_values" in inputs:
            raise SystemExit("images that a processor hands to MiniCPM-V 4.7 are not recorded yet")
    if kind in GRIDS and kind not in KIMI_VL + FLAT_VL:
        inputs.pop("position_ids")
        if "video_grid_thw" in inputs:
            inputs["mm_token_type_ids"] = tensor(inputs["input_ids"]["shape"])
            return
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


def make_inputs(spec: Spec, device: str = "cuda") -> dict[str, Any]:
    import torch

    out: dict[str, Any] = {}
    for name, given in spec["inputs"].items():
        if "cpu_values" in given:
            out[name] = torch.tensor(given["cpu_values"], dtype=getattr(torch, given.get("dtype", "int64")))
        elif "values" in given:
            out[name] = torch.tensor(given["values"], dtype=getattr(torch, given.get("dtype", "int64")), device=device)
        elif "py" in given:
            out[name] = given["py"]
        elif "masks" in given:
            out[name] = [torch.ones(count, *given["size"], device=device) for count in given["masks"]]
        elif "classes" in given:
            out[name] = [torch.ones(count, dtype=torch.int64, device=device) for count in given["classes"]]
        elif "objects" in given:  # a detector's labels: a dictionary an image
            out[name] = [
                {"class_labels": torch.ones(count, dtype=torch.int64, device=device), "boxes": torch.ones(count, 4, device=device)}
                for count in given["objects"]
            ]
        else:
            out[name] = torch.full(given["shape"], given.get("fill", 1), dtype=getattr(torch, given["dtype"]), device=device)
            if "image_tokens" in given:  # on a real GPU: the first n tokens are image placeholders
                token, count = given["image_tokens"]
                out[name][:, :count] = token
    return out
