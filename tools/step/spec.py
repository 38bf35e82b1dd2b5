"""A *spec*: the flat form of a job that the builders read: the model's class and config, the input tensors, the training options."""

from __future__ import annotations

from typing import Any

Spec = dict[str, Any]
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "amp_bf16": "float32", "amp_fp16": "float32"}
DTYPES |= {f"{half}_in_autocast": DTYPES[half] for half in ("bf16", "fp16")}
CLASSES = {
    "llama": "LlamaForCausalLM",
    "llava": "LlavaForConditionalGeneration",
    "clap": "ClapModel",
    "clip": "CLIPModel",
    "clip_vision_model": "CLIPVisionModel",
    "llava_next": "LlavaNextForConditionalGeneration",
    "llava_next_video": "LlavaNextVideoForConditionalGeneration",
    "ovis2": "Ovis2ForConditionalGeneration",
    "florence2": "Florence2ForConditionalGeneration",
    "chameleon": "ChameleonForConditionalGeneration",
    "vision-encoder-decoder": "VisionEncoderDecoderModel",
    "molmo2": "Molmo2ForConditionalGeneration",
    "kosmos-2.5": "Kosmos2_5ForConditionalGeneration",
    "janus": "JanusForConditionalGeneration",
    "deepseek_vl": "DeepseekVLForConditionalGeneration",
    "qwen2_vl": "Qwen2VLForConditionalGeneration",
    "qwen2_5_vl": "Qwen2_5_VLForConditionalGeneration",
    "qwen3_vl": "Qwen3VLForConditionalGeneration",
    "qwen3_vl_moe": "Qwen3VLMoeForConditionalGeneration",
    "qwen3_5": "Qwen3_5ForConditionalGeneration",
    "qwen3_5_moe": "Qwen3_5MoeForConditionalGeneration",
    "qwen2_5_omni_thinker": "Qwen2_5OmniThinkerForConditionalGeneration",
    "qwen3_omni_moe_thinker": "Qwen3OmniMoeThinkerForConditionalGeneration",
    "audioflamingo3": "AudioFlamingo3ForConditionalGeneration",
    "glmasr": "GlmAsrForConditionalGeneration",
    "parakeet_ctc": "ParakeetForCTC",
    "canary": "CanaryForConditionalGeneration",
    "cohere_asr": "CohereAsrForConditionalGeneration",
    "moonshine": "MoonshineForConditionalGeneration",
    "phi4_multimodal": "Phi4MultimodalForCausalLM",
    "granite4_vision": "Granite4VisionForConditionalGeneration",
    "granite_speech": "GraniteSpeechForConditionalGeneration",
    "granite_speech_plus": "GraniteSpeechPlusForConditionalGeneration",
    "qwen3_asr": "Qwen3ASRForConditionalGeneration",
    "glm4v": "Glm4vForConditionalGeneration",
    "glm4v_moe": "Glm4vMoeForConditionalGeneration",
    "exaone4_5": "Exaone4_5_ForConditionalGeneration",
    "lfm3_vl": "Lfm3VlForConditionalGeneration",
    "lighton_ocr": "LightOnOcrForConditionalGeneration",
    "llama4": "Llama4ForConditionalGeneration",
    "glm46v": "Glm46VForConditionalGeneration",
    "glm_ocr": "GlmOcrForConditionalGeneration",
    "paddleocr_vl": "PaddleOCRVLForConditionalGeneration",
    "hunyuan_vl": "HunYuanVLForConditionalGeneration",
    "perception_lm": "PerceptionLMForConditionalGeneration",
    "kimi_k25": "Kimi_K25ForConditionalGeneration",
    "muse_glimmer": "MuseGlimmerForConditionalGeneration",
    "gemma3": "Gemma3ForConditionalGeneration",
    "video_llava": "VideoLlavaForConditionalGeneration",
    "gemma3n": "Gemma3nForConditionalGeneration",
    "gemma4": "Gemma4ForConditionalGeneration",
    "gemma4_unified": "Gemma4UnifiedForConditionalGeneration",
    "internvl": "InternVLForConditionalGeneration",
    "qianfan_ocr": "QianfanOCRForConditionalGeneration",
    "minicpmv4_6": "MiniCPMV4_6ForConditionalGeneration",
    "minicpmv4_7": "MiniCPMV4_7ForConditionalGeneration",
    "minicpm_ocr": "MiniCPMOcrForConditionalGeneration",
    "siglip2": "Siglip2Model",
    "got_ocr2": "GotOcr2ForConditionalGeneration",
    "deepseek_ocr2": "DeepseekOcr2ForConditionalGeneration",
    "mistral3": "Mistral3ForConditionalGeneration",
    "mistral_large4": "MistralLarge4ForConditionalGeneration",
    "smolvlm": "SmolVLMForConditionalGeneration",
    "idefics2": "Idefics2ForConditionalGeneration",
    "idefics3": "Idefics3ForConditionalGeneration",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
}
MINICPM_V = ("minicpmv4_6", "minicpmv4_7", "minicpm_ocr")  # images are one row of patches (target_sizes)
QWEN3_VL = ("qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "qwen3_omni_moe_thinker")
QWEN_VL = ("qwen2_vl", "qwen2_5_vl", "qwen2_5_omni_thinker", *QWEN3_VL)
OMNI = ("qwen2_5_omni_thinker", "qwen3_omni_moe_thinker")  # they hear, too
GLM_V = ("glm4v", "glm4v_moe", "glm46v", "glm_ocr")
KIMI_VL = ("kimi_k25", "muse_glimmer")  # their towers merge patches at the end, and positions are the text's own
FLAT_VL = ("exaone4_5", "lfm3_vl")  # their text has one position a token, too, with Qwen-VL's grids
WAVEFORMS = ("wav2vec2", "hubert", "wavlm")  # they hear samples, not spectrograms
CANARIES = ("canary", "cohere_asr")  # Parakeet's encoder, and a decoder that sees its states
WAVEFORMS += ("unispeech", "unispeech-sat")
GRIDS = (*QWEN_VL, *GLM_V, *KIMI_VL, *FLAT_VL, "paddleocr_vl", "hunyuan_vl")  # images are grids of patches (image_grid_thw)


def tensor(shape: list[int], dtype: str = "int64", fill: int = 1) -> dict[str, Any]:
    return {"shape": shape, "dtype": dtype, "fill": fill}
