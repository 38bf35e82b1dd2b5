"""Asks the real processors how many tokens images, videos and audio take: tests/reference/FAMILY/tokens.jsonl, videos.jsonl, audios.jsonl.

    tokens.py FAMILY... [--count 1000]

A line is {"model", "sizes": [[height, width, tokens], ...]}: a preset, and images in pixels; or {"model", "videos": [[seconds,
frames a second, height, width, tokens], ...]}; or {"model", "audios": [[seconds, tokens], ...]}. Needs transformers and Pillow, for
videos and whole processors torchvision, no weights.
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


def whole(name: str, image_processor: Any, token: str = "<image_token>", given: dict[str, Any] | None = None, **own: Any) -> Tokens:
    """A processor from images to text, without its tokenizer, of an image without pixels: whatever token it asks for is one."""
    import torch
    import transformers

    kind = getattr(transformers, name)
    arguments = {key: value for key, value in (getattr(kind, "images_kwargs", None) or {}).items() if key != "return_tensors"}

    class Probe(kind):  # type: ignore[misc,valid-type]
        def __init__(self) -> None:
            self.image_processor = image_processor
            for key, value in own.items():
                setattr(self, key, value)

        def __getattr__(self, key: str) -> str:
            if key.endswith("_token"):
                return f"<{key}>"
            raise AttributeError(key)

    probe = Probe()

    def tokens(height: int, width: int) -> int:
        image = torch.empty(3, height, width, dtype=torch.uint8, device="meta")
        inputs = image_processor(images=[image], return_tensors="pt", **arguments)
        if name in ("LlavaNextVideoProcessor", "PerceptionLMProcessor"):  # which ask numpy for the shapes
            inputs["pixel_values"] = [torch.zeros(()).expand(pixels.shape) for pixels in inputs["pixel_values"]]
        return probe.replace_image_token(inputs, 0, **(given or {})).count(token)

    return tokens


def made(processor: str, images: str, **arguments: Any) -> Callable[[dict[str, Any]], Tokens]:
    """`whole` of the two classes: `settings` are the image processor's, functions of the model's config among the values."""
    settings = arguments.pop("settings", {})

    def make(config: dict[str, Any]) -> Tokens:
        import transformers

        def of(values: dict[str, Any]) -> dict[str, Any]:
            return {key: value(config) if callable(value) else value for key, value in values.items()}

        return whole(processor, getattr(transformers, images)(**of(settings)), **of(arguments))

    return make


def llama4(config: dict[str, Any]) -> Tokens:
    """What Llama4ImageProcessor decides before it touches pixels, and Llama4Processor's text."""
    import torch
    from transformers.image_utils import SizeDict
    from transformers.models.llama4 import image_processing_llama4 as images

    vision = config["vision_config"]
    side, of_tile = vision["image_size"], (vision["image_size"] // vision["patch_size"]) ** 2
    resolutions = torch.tensor(images.find_supported_resolutions(max_num_chunks=16, patch_size=SizeDict(**square(side))))

    def tokens(height: int, width: int) -> int:
        rows, columns = (int(edge) // side for edge in images.get_best_fit((height, width), resolutions, resize_to_max_canvas=False))
        tiles = rows * columns
        return (tiles + (tiles > 1)) * int(of_tile * vision["pixel_shuffle_ratio"] ** 2)

    return tokens


def molmo2(_config: dict[str, Any]) -> Tokens:
    from types import SimpleNamespace

    from transformers import Molmo2ImageProcessor, Molmo2Processor

    own = SimpleNamespace(image_use_col_tokens=True, use_single_crop_col_tokens=None, use_single_crop_start_token=True)
    images = Molmo2ImageProcessor()

    def tokens(height: int, width: int) -> int:
        grid, _ = images.get_image_grid_and_crops(height, width)
        return Molmo2Processor.replace_image_token(own, {"image_grids": [grid]}, 0).count("<")

    return tokens


def phi4_images(config: dict[str, Any]) -> Tokens:
    from step.batch import phi4_crops

    return lambda height, width: phi4_crops(config, [height, width])["tokens"]


def square(side: int) -> dict[str, int]:
    return {"height": side, "width": side}


def pinpoints(config: dict[str, Any]) -> Any:
    from transformers import LlavaNextImageProcessor

    return config.get("image_grid_pinpoints", LlavaNextImageProcessor.image_grid_pinpoints)


NEXT: dict[str, Any] = {
    "settings": {"size": {"shortest_edge": 336}, "crop_size": square(336), "image_grid_pinpoints": pinpoints},
    "patch_size": 14,
    "vision_feature_select_strategy": "default",
    "num_additional_image_tokens": 1,
}
GRANITE: dict[str, Any] = {
    "settings": {"size": square(384), "crop_size": square(384), "image_grid_pinpoints": pinpoints},
    "patch_size": 16,
    "vision_feature_select_strategy": "full",
    "num_additional_image_tokens": 0,
    "downsample_rate": lambda config: config.get("downsample_rate"),
}
MINICPM = {"given": {"image_token_divisor": 16}, "slice_mode": True}
QIANFAN = {"size": square(448), "crop_to_patches": True}
PERCEPTION = {"tile_size": 448, "max_num_tiles": 36, "vision_input_type": "thumb+tile"}
PIXTRAL = {"size": {"longest_edge": 1540}, "patch_size": square(28)}

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
    "internvl": {
        "internvl3-8b": internvl,
        "qianfan-ocr": made("QianfanOCRProcessor", "GotOcr2ImageProcessor", settings=QIANFAN, image_seq_length=256),
    },
    "llava": {
        "llava-onevision-0.5b": llava_onevision,
        "llava-v1.6-vicuna-7b": made("LlavaNextProcessor", "LlavaNextImageProcessor", **NEXT),
        "llava-next-video-7b": made("LlavaNextVideoProcessor", "LlavaNextImageProcessor", **NEXT),
    },
    "lfm2_vl": {"lfm2-vl-1.6b": lfm2_vl},
    "mistral3": {
        "mistral-small-3.1-24b": mistral3,
        "lighton-ocr-1b": made("LightOnOcrProcessor", "PixtralImageProcessor", settings=PIXTRAL, effective_patch_size=28),
    },
    "mistral_large4": {
        "mistral-large-4": made("PixtralProcessor", "PixtralImageProcessor", settings=PIXTRAL, patch_size=14, spatial_merge_size=2)
    },
    "llama4": {"llama-4-scout": llama4},
    "perception_lm": {
        "perception-lm-1b": made("PerceptionLMProcessor", "PerceptionLMImageProcessor", settings=PERCEPTION, patch_size=14, pooling_ratio=2)
    },
    "granite4_vision": {"granite-vision-4.1-4b": made("Granite4VisionProcessor", "LlavaNextImageProcessor", **GRANITE)},
    "deepseek_ocr2": {"deepseek-ocr-2": made("DeepseekOcr2Processor", "DeepseekOcr2ImageProcessor", patch_size=16, downsample_ratio=4)},
    "hunyuan_vl": {"hunyuan-ocr": made("HunYuanVLProcessor", "HunYuanVLImageProcessor", cat_extra_token=True)},
    "minicpmv4_6": {"minicpm-v-4.6": made("MiniCPMV4_6Processor", "MiniCPMV4_6ImageProcessor", **MINICPM)},
    "phi4_multimodal": {"phi-4-multimodal-instruct": phi4_images},
    "molmo2": {"molmo2-8b": molmo2},
    "lfm3_vl": {"lfm3-vl-2b": made("Lfm3VlProcessor", "Qwen2VLImageProcessor", settings={"patch_size": 16})},
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


def heard(name: str, extractor: dict[str, Any] | str, **own: Any) -> Callable[[], Callable[[float], int]]:
    """A processor of audio without its tokenizer: with a WhisperFeatureExtractor that computes nothing, or one of the class named."""

    def make() -> Callable[[float], int]:
        import numpy
        import transformers

        kind = getattr(transformers, name)

        class Extractor(transformers.WhisperFeatureExtractor):
            def _np_extract_fbank_features(self, waveforms: Any, _device: str) -> Any:
                frames = numpy.shape(waveforms)[-1] // self.hop_length
                return numpy.broadcast_to(numpy.float32(0), (len(waveforms), self.feature_size, frames))

            _torch_extract_fbank_features = _np_extract_fbank_features

        class Probe(kind):  # type: ignore[misc,valid-type]
            def __init__(self) -> None:
                named = isinstance(extractor, str)
                self.feature_extractor = getattr(transformers, extractor)() if named else Extractor(**extractor)
                self.audio_token = "<audio>"
                for key, value in own.items():
                    setattr(self, key, value)

        probe, arguments = Probe(), {"sampling_rate": 16000, "device": "cpu"} | (getattr(kind, "audio_kwargs", None) or {})

        def tokens(seconds: float) -> int:
            return probe._process_audio([numpy.zeros(round(seconds * 16000), numpy.float32)], **arguments)[1][0].count("<audio>")

        return tokens

    return make


def granite_speech() -> Callable[[float], int]:
    from types import SimpleNamespace

    from transformers.models.granite_speech.feature_extraction_granite_speech import GraniteSpeechFeatureExtractor as Extractor

    own = SimpleNamespace(melspec_kwargs={"hop_length": 160}, projector_window_size=15, projector_downsample_rate=5)
    return lambda seconds: Extractor._get_num_audio_features(own, [round(seconds * 16000)])[0]


def phi4_multimodal() -> Callable[[float], int]:
    import numpy
    from transformers import Phi4MultimodalFeatureExtractor

    own = Phi4MultimodalFeatureExtractor()
    return lambda seconds: int(own(numpy.zeros(round(seconds * 16000), numpy.float32), sampling_rate=16000)["audio_embed_sizes"][0])


# The longest that a job may have, in seconds, and the processor.
AUDIOS: dict[str, dict[str, tuple[float, Callable[[], Callable[[float], int]]]]] = {
    "qwen2_audio": {"qwen2-audio-7b": (30, heard("Qwen2AudioProcessor", {"feature_size": 128}))},
    "audioflamingo3": {"audio-flamingo-3": (600, heard("AudioFlamingo3Processor", {"feature_size": 128}, max_audio_len=600))},
    "glmasr": {"glm-asr-nano-2512": (630, heard("GlmAsrProcessor", {"feature_size": 128}, max_audio_len=655))},
    "qwen2_5_omni": {"qwen2.5-omni-7b-thinker": (300, heard("Qwen2_5OmniProcessor", {"feature_size": 128, "chunk_length": 300}))},
    "qwen3_omni_moe": {"qwen3-omni-30b-a3b-thinker": (900, heard("Qwen3OmniMoeProcessor", {"feature_size": 128}, n_window=50))},
    "qwen3_asr": {"qwen3-asr-1.7b": (60, heard("Qwen3ASRProcessor", "Qwen3ASRFeatureExtractor"))},
    "granite_speech": {"granite-speech-3.3-8b": (900, granite_speech)},
    "phi4_multimodal": {"phi-4-multimodal-instruct": (40, phi4_multimodal)},
}


def audios_of(preset: str, longest: float, tokens: Callable[[float], int], count: int) -> dict[str, Any]:
    numbers = random.Random(preset)
    lengths = [round(numbers.uniform(0.1, longest), 3) if i % 2 else numbers.randint(1, int(4 * longest)) / 4 for i in range(count)]
    return {"model": preset, "audios": [[seconds, tokens(seconds)] for seconds in lengths]}


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
    arguments.add_argument("families", nargs="*", default=list(dict.fromkeys([*FAMILIES, *AUDIOS])))
    arguments.add_argument("--count", type=int, default=1000)
    given = arguments.parse_args()
    for family in given.families:
        lines = []
        for preset, make in FAMILIES.get(family, {}).items():
            numbers, tokens = random.Random(preset), make(config_of(preset))
            sizes = [[numbers.randint(28, 4000), numbers.randint(28, 4000)] for _ in range(given.count)]
            lines.append({"model": preset, "sizes": [[*size, int(tokens(*size))] for size in sizes]})
        if lines:
            write(family, "tokens.jsonl", lines)
        if family in VIDEOS:
            write(family, "videos.jsonl", [videos_of(preset, make(), given.count // 4) for preset, make in VIDEOS[family].items()])

        if family in AUDIOS:
            heard_of = [audios_of(preset, most, make(), given.count // 4) for preset, (most, make) in AUDIOS[family].items()]
            write(family, "audios.jsonl", heard_of)


if __name__ == "__main__":
    main()
