"""Asks the real processors how many tokens images and videos of random sizes take: tests/reference/FAMILY/tokens.jsonl and videos.jsonl.

    tokens.py FAMILY... [--count 1000]

A line is {"model", "sizes": [[height, width, tokens], ...]}: a preset, and images in pixels; or {"model", "videos": [[seconds,
frames a second, height, width, tokens], ...]}. Needs transformers and Pillow, for videos torchvision, no weights.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
Tokens = Callable[[int, int], int]


def config_of(preset: str) -> dict[str, Any]:
    return json.loads((ROOT / "presets" / "models" / f"{preset}.json").read_text())["config"]


def qwen_vl(patch: int, least: int, most: int) -> Tokens:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    size = {"shortest_edge": least, "longest_edge": most}
    processor = Qwen2VLImageProcessorPil(patch_size=patch, merge_size=2, size=size)
    return lambda height, width: processor.get_number_of_image_patches(height, width, {}) // 4


def glm4v(least: int, most: int) -> Tokens:
    from transformers.models.glm4v.image_processing_pil_glm4v import Glm4vImageProcessorPil

    processor = Glm4vImageProcessorPil(size={"shortest_edge": least, "longest_edge": most})
    return lambda height, width: processor.get_number_of_image_patches(height, width, {}) // 4


def glm46v(_config: dict[str, Any]) -> Tokens:
    from transformers.models.glm46v.image_processing_pil_glm46v import Glm46VImageProcessorPil

    processor = Glm46VImageProcessorPil(size={"shortest_edge": 12544, "longest_edge": 9633792})
    return lambda height, width: processor.get_number_of_image_patches(height, width, {}) // 4


def paddleocr_vl(_config: dict[str, Any]) -> Tokens:
    from transformers.models.paddleocr_vl.image_processing_pil_paddleocr_vl import PaddleOCRVLImageProcessorPil

    processor = PaddleOCRVLImageProcessorPil()
    return lambda height, width: processor.get_number_of_image_patches(height, width, {}) // 4


def internvl(config: dict[str, Any]) -> Tokens:
    from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil

    side = config["vision_config"]["image_size"][0]
    processor = GotOcr2ImageProcessorPil(size={"height": side, "width": side}, crop_to_patches=True)
    return lambda height, width: processor.get_number_of_image_patches(height, width, {}) * config["image_seq_length"]


def aya_vision(config: dict[str, Any]) -> Tokens:
    from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil

    vision = config["vision_config"]
    side = vision["image_size"]
    processor = GotOcr2ImageProcessorPil(size={"height": side, "width": side}, crop_to_patches=True)
    of_tile = (side // vision["patch_size"] // config["downsample_factor"]) ** 2
    return lambda height, width: processor.get_number_of_image_patches(height, width, {}) * of_tile


def gemma4(config: dict[str, Any]) -> Tokens:
    from transformers.models.gemma4.image_processing_pil_gemma4 import get_aspect_ratio_preserving_size

    vision = config["vision_config"]
    patch, side = vision["patch_size"], vision["pooling_kernel_size"]
    most = config["vision_soft_tokens_per_image"] * side**2

    def tokens(height: int, width: int) -> int:
        rows, columns = get_aspect_ratio_preserving_size(height, width, patch, most, side)
        return rows * columns // (patch * side) ** 2

    return tokens


def muse_glimmer(_config: dict[str, Any]) -> Tokens:
    from transformers.models.muse_glimmer.image_processing_muse_glimmer import MuseGlimmerImageProcessor

    processor = MuseGlimmerImageProcessor()
    return lambda height, width: processor.get_number_of_image_patches(height, width, {}) // 4


def kimi_k25(_config: dict[str, Any]) -> Tokens:
    from transformers.models.kimi_k25.image_processing_kimi_k25 import Kimi_K25ImageProcessor

    processor = Kimi_K25ImageProcessor()
    return lambda height, width: processor.get_number_of_image_patches(height, width, {}) // 4


def mistral3(config: dict[str, Any]) -> Tokens:
    import numpy
    from transformers.models.pixtral.image_processing_pil_pixtral import get_resize_output_image_size

    vision = config["vision_config"]
    cell = vision["patch_size"] * config["spatial_merge_size"]

    def tokens(height: int, width: int) -> int:
        image = numpy.broadcast_to(numpy.zeros((), numpy.uint8), (height, width, 3))
        rows, columns = (side // cell for side in get_resize_output_image_size(image, vision["image_size"], cell))
        return rows * columns

    return tokens


def idefics3(config: dict[str, Any]) -> Tokens:
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

    vision = config["vision_config"]
    tile = vision.get("max_image_size", {}).get("longest_edge", vision["image_size"])
    edge = vision.get("size", {}).get("longest_edge", 4 * tile)
    processor = Idefics3ImageProcessorPil(size={"longest_edge": edge}, max_image_size={"longest_edge": tile})
    of_tile = (tile // vision["patch_size"] // config["scale_factor"]) ** 2
    return lambda height, width: max(processor.get_number_of_image_patches(height, width, {})[0], 1) * of_tile


def llava_onevision(config: dict[str, Any]) -> Tokens:
    from functools import partial
    from types import SimpleNamespace

    from transformers import LlavaOnevisionProcessor

    vision = config["vision_config"]
    side = vision["image_size"]
    processor = SimpleNamespace(image_processor=SimpleNamespace(image_grid_pinpoints=config["image_grid_pinpoints"]))
    processor.num_image_tokens = (side // vision["patch_size"]) ** 2
    processor.vision_aspect_ratio = config["vision_aspect_ratio"]
    processor._get_unpadded_features = partial(LlavaOnevisionProcessor._get_unpadded_features, processor)
    return lambda height, width: LlavaOnevisionProcessor._get_number_of_features(processor, height, width, side, side)


def lfm2_vl(config: dict[str, Any]) -> Tokens:
    from types import SimpleNamespace

    from step.batch import lfm2_vl_shapes
    from transformers import Lfm2VlProcessor
    from transformers.models.lfm2_vl.image_processing_lfm2_vl import Lfm2VlImageProcessor

    patch = config["vision_config"]["patch_size"]
    processor = SimpleNamespace(image_processor=Lfm2VlImageProcessor(encoder_patch_size=patch))
    for name in ("_compute_tokens_per_tile", "_compute_tokens_for_image"):
        setattr(processor, name, getattr(Lfm2VlProcessor, name).__get__(processor))

    def tokens(height: int, width: int) -> int:
        shapes = lfm2_vl_shapes(config, [height, width])
        of_tile, of_image = Lfm2VlProcessor._get_image_num_tokens(processor, [side * patch for side in shapes[-1]])
        return (len(shapes) - 1) * of_tile + of_image

    return tokens


FAMILIES: dict[str, dict[str, Callable[[dict[str, Any]], Tokens]]] = {
    "qwen2_vl": {"qwen2.5-vl-7b": lambda _config: qwen_vl(14, 3136, 12845056)},
    "qwen2_5_omni": {"qwen2.5-omni-7b-thinker": lambda _config: qwen_vl(14, 3136, 12845056)},
    "qwen3_vl": {"qwen3-vl-8b": lambda _config: qwen_vl(16, 65536, 16777216)},
    "qwen3_omni_moe": {"qwen3-omni-30b-a3b-thinker": lambda _config: qwen_vl(16, 3136, 12845056)},
    "qwen3_5": {"qwen3.5-9b": lambda _config: qwen_vl(16, 65536, 16777216)},
    "glm4v": {"glm-4.1v-9b": lambda _config: glm4v(12544, 9633792), "glm-ocr": glm46v},
    "paddleocr_vl": {"paddleocr-vl-0.9b": paddleocr_vl},
    "gemma4": {"gemma-4-e2b": gemma4, "gemma-4-12b": gemma4},
    "kimi_k25": {"kimi-k2.5": kimi_k25},
    "muse_glimmer": {"muse-glimmer-30b": muse_glimmer},
    "aya_vision": {"aya-vision-8b": aya_vision},
    "internvl": {"internvl3-8b": internvl},
    "llava": {"llava-onevision-0.5b": llava_onevision},
    "lfm2_vl": {"lfm2-vl-1.6b": lfm2_vl},
    "mistral3": {"mistral-small-3.1-24b": mistral3},
    "idefics3": {"smolvlm-2.2b": idefics3, "smolvlm-256m": idefics3, "idefics3-8b": idefics3},
}


def video(processor: str, patch: int) -> Callable[[float, float, int, int], int]:
    from step.batch import video_grid

    def tokens(seconds: float, fps: float, height: int, width: int) -> int:
        data = {"video": {"seconds": seconds, "fps": fps, "size": [height, width]}}
        return math.prod(video_grid(processor, data, patch, 2, 2)) // 4

    return tokens


VIDEOS = {
    "qwen2_vl": {"qwen2.5-vl-7b": lambda: video("qwen2_vl", 14)},
    "qwen3_vl": {"qwen3-vl-8b": lambda: video("qwen3_vl", 16)},
    "qwen3_5": {"qwen3.5-9b": lambda: video("qwen3_vl", 16)},
    "glm4v": {"glm-4.1v-9b": lambda: video("glm4v", 14)},
}


def write(family: str, file: str, lines: list[dict[str, Any]]) -> None:
    folder = ROOT / "tests" / "reference" / family
    folder.mkdir(exist_ok=True)
    (folder / file).write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))


def videos_of(preset: str, tokens: Callable[[float, float, int, int], int], count: int) -> dict[str, Any]:
    numbers = random.Random(preset)

    def one() -> list[float]:
        return [numbers.randint(1, 1200) / 4, numbers.choice([0.5, 1, 2, 4]), numbers.randint(28, 700), numbers.randint(28, 700)]

    return {"model": preset, "videos": [[*film, tokens(*film)] for film in (one() for _ in range(count))]}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("families", nargs="*", default=list(FAMILIES))
    arguments.add_argument("--count", type=int, default=1000)
    given = arguments.parse_args()
    for family in given.families:
        lines = []
        for preset, make in FAMILIES[family].items():
            numbers, tokens = random.Random(preset), make(config_of(preset))
            sizes = [[numbers.randint(28, 4000), numbers.randint(28, 4000)] for _ in range(given.count)]
            lines.append({"model": preset, "sizes": [[*size, int(tokens(*size))] for size in sizes]})
        write(family, "tokens.jsonl", lines)
        if family in VIDEOS:
            write(family, "videos.jsonl", [videos_of(preset, make(), given.count // 4) for preset, make in VIDEOS[family].items()])


if __name__ == "__main__":
    main()
