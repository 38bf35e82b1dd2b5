#include "models/clip/config.h"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "config/reader.h"
#include "models/idefics3/config.h"
#include "models/llama/config.h"
#include "models/llava/config.h"
#include "models/nanovlm/config.h"
#include "models/registry.h"

namespace oometer {
namespace {

/// What a config.json reads as; the test fails where it is wrong.
ModelConfig read_model(const std::string& text, Framework framework = Framework::transformers) {
  const nlohmann::json document = nlohmann::json::parse(text);
  Findings findings;
  ConfigReader reader(&document, "", Mode::lenient, findings);
  const ModelConfig config = read_model_config(reader, framework);
  INFO(text);
  if (findings.error) FAIL(findings.error->pointer << ": " << findings.error->message);
  return config;
}

/// As its family holds it.
template <typename T>
T read(const std::string& text, Framework framework = Framework::transformers) {
  return read_model(text, framework).config().as<T>();
}

std::string class_name(const std::string& text) { return read_model(text).traits().class_name; }

TEST_CASE("An empty config is its class's defaults", "[models]") {
  CHECK(read<LlamaConfig>(R"({"model_type": "llama"})") == LlamaConfig{});
  CHECK(read<ClipVisionConfig>(R"({"model_type": "clip_vision_model"})") == ClipVisionConfig{});
  CHECK(read<ClipConfig>(R"({"model_type": "clip"})") == ClipConfig{});
  CHECK(read<ClipConfig>(R"({"architectures": ["CLIPModel"]})") == ClipConfig{});
}

/// What is wrong with a config.json.
std::string message(const std::string& text) {
  const nlohmann::json document = nlohmann::json::parse(text);
  Findings findings;
  ConfigReader reader(&document, "", Mode::lenient, findings);
  read_model_config(reader, Framework::transformers);
  REQUIRE(findings.error);
  return findings.error->message;
}

TEST_CASE("What is no transformers config is called by its name", "[models]") {
  CHECK(message(R"({"_class_name": "UNet2DConditionModel"})")
            .starts_with("found \"UNet2DConditionModel\"; this is a config of diffusers"));
  CHECK(message(R"({"general.architecture": "llama"})").find("metadata of a GGUF file") != std::string::npos);
  CHECK(message(R"({"llama.block_count": 32})").find("config.json of a transformers model") != std::string::npos);
}

TEST_CASE("LlamaConfig fills in what depends on other fields", "[models]") {
  const auto c = read<LlamaConfig>(R"({"model_type": "llama", "hidden_size": 2048, "num_attention_heads": "16",
                                       "num_key_value_heads": null, "rope_theta": 500000.0})");
  CHECK(c.num_attention_heads == 16);
  CHECK(c.num_key_value_heads == 16);
  CHECK(c.head_dim == 128);
  CHECK(read<LlamaConfig>(R"({"model_type": "llama", "head_dim": 64})").head_dim == 64);
}

TEST_CASE("Qwen2Config has its own defaults, and biases where Qwen2's attention has them", "[models]") {
  const auto c = read<LlamaConfig>(R"({"model_type": "qwen2"})");
  CHECK(c.vocab_size == 151936);
  CHECK(c.intermediate_size == 22016);
  CHECK(c.num_key_value_heads == 32);
  CHECK(c.qkv_bias);
  CHECK_FALSE(c.output_bias);
  CHECK(class_name(R"({"model_type": "qwen2"})") == "Qwen2ForCausalLM");
  CHECK(read<LlamaConfig>(R"({"model_type": "qwen2", "num_attention_heads": 64})").num_key_value_heads == 32);
  CHECK(read<LlamaConfig>(R"({"model_type": "qwen2", "num_attention_heads": 64, "num_key_value_heads": null})")
            .num_key_value_heads == 64);
  // A window that no layer has changes nothing.
  CHECK(read<LlamaConfig>(R"({"model_type": "qwen2", "use_sliding_window": true, "max_window_layers": 32})") == c);
  CHECK(read<LlamaConfig>(R"({"model_type": "qwen2", "use_sliding_window": true, "sliding_window": null})") == c);
  CHECK(c.window_of(31) == 0);
  const auto slides = read<LlamaConfig>(
      R"({"model_type": "qwen2", "use_sliding_window": true, "sliding_window": 100, "max_window_layers": 30})");
  CHECK(slides.window_of(29) == 0);
  CHECK(slides.window_of(30) == 100);
  const auto named = read<LlamaConfig>(
      R"({"model_type": "qwen2", "num_hidden_layers": 2, "use_sliding_window": true, "max_window_layers": 0,
          "layer_types": ["sliding_attention", "full_attention"]})");
  CHECK(named.window_of(0) == 4096);
  CHECK(named.window_of(1) == 0);
  CHECK(read<LlamaConfig>(R"({"model_type": "mistral"})").window_of(31) == 4096);
}

TEST_CASE("Qwen3Config has a head_dim of its own, and attention_bias in all four projections", "[models]") {
  const auto c = read<LlamaConfig>(R"({"model_type": "qwen3", "hidden_size": 1024})");
  CHECK(c.head_dim == 128);
  CHECK(c.vocab_size == 151936);
  CHECK(c.num_key_value_heads == 32);
  CHECK(c.max_position_embeddings == 32768);
  CHECK_FALSE((c.qkv_bias || c.output_bias));
  CHECK(class_name(R"({"model_type": "qwen3"})") == "Qwen3ForCausalLM");
  const auto biased = read<LlamaConfig>(R"({"model_type": "qwen3", "attention_bias": true})");
  CHECK((biased.qkv_bias && biased.output_bias));
  CHECK_FALSE(biased.mlp_bias);
  CHECK(message(R"({"model_type": "qwen3", "head_dim": null})").find("found null") != std::string::npos);
  const auto slides = read<LlamaConfig>(
      R"({"model_type": "qwen3", "use_sliding_window": true, "sliding_window": 100, "max_window_layers": 30})");
  CHECK(slides.window_of(29) == 0);
  CHECK(slides.window_of(30) == 100);
}

TEST_CASE("LlavaConfig takes the language models that are modelled", "[models]") {
  const auto c = read<LlavaConfig>(R"({"model_type": "llava", "text_config": {"model_type": "qwen2"}})");
  CHECK(c.text.qkv_bias);
}

TEST_CASE("LlavaConfig: an absent tower is ViT-L/14-336, an empty one its class's default", "[models]") {
  const auto absent = read<LlavaConfig>(R"({"model_type": "llava"})");
  CHECK(absent.vision.hidden_size == 1024);
  CHECK(absent.vision.image_size == 336);
  CHECK(absent.tokens_per_image() == 576);
  CHECK(absent.text == LlamaConfig{});
  CHECK(absent.vision_feature_layers == std::vector<std::int64_t>{23});
  CHECK_FALSE(absent.vision_feature_layer_is_list);
  CHECK(read<LlavaConfig>(R"({"model_type": "llava", "vision_config": null})").vision == absent.vision);
  CHECK(read<LlavaConfig>(R"({"model_type": "llava", "vision_config": {}})").vision == ClipVisionConfig{});
}

TEST_CASE("LlavaConfig: several layers, full selection, tied embeddings of the text config", "[models]") {
  const auto c = read<LlavaConfig>(R"({"model_type": "llava", "vision_feature_layer": [-2, 0, -25],
      "vision_feature_select_strategy": "full", "multimodal_projector_bias": false, "projector_hidden_act": "relu",
      "text_config": {"model_type": "llama", "tie_word_embeddings": true}})");
  CHECK(c.vision_feature_layer_is_list);
  CHECK(c.vision_feature_layers == std::vector<std::int64_t>{23, 0, 0});
  CHECK(c.projector_input_size() == 3 * 1024);
  CHECK(c.tokens_per_image() == 577);
  CHECK_FALSE(c.projector_bias);
  CHECK(c.projector_hidden_act == Activation::relu);
  CHECK(c.tie_word_embeddings);
}

TEST_CASE("LLaVA-NeXT: tiles and tokens of an image", "[models]") {
  const auto c = read<LlavaConfig>(R"({"model_type": "llava_next", "text_config": {"model_type": "mistral"}})");
  CHECK(class_name(R"({"model_type": "llava_next"})") == "LlavaNextForConditionalGeneration");
  CHECK(c.text.num_key_value_heads == 8);
  CHECK(c.text.sliding_window == 4096);
  // As select_best_resolution and unpad_image have it.
  const auto check = [&](std::int64_t height, std::int64_t width, std::int64_t tiles, std::int64_t rows,
                         std::int64_t columns, std::int64_t tokens) {
    const LlavaConfig::Anyres anyres = c.anyres(height, width);
    CAPTURE(height, width);
    CHECK(anyres.tiles() == tiles);
    CHECK(anyres.rows == rows);
    CHECK(anyres.columns == columns);
    CHECK(anyres.tokens == tokens);
  };
  check(336, 336, 3, 24, 24, 1176);
  check(672, 672, 5, 48, 48, 2928);
  check(480, 640, 5, 36, 48, 2340);
  check(1000, 300, 4, 72, 22, 2232);
  check(200, 1333, 4, 10, 72, 1306);
}

TEST_CASE("LLaVA with a SigLIP tower and other language models", "[models]") {
  const auto c = read<LlavaConfig>(R"({"model_type": "llava", "vision_feature_select_strategy": "full",
      "vision_config": {"model_type": "siglip_vision_model", "image_size": 384, "patch_size": 14, "hidden_size": 1152,
                        "num_attention_heads": 16},
      "text_config": {"model_type": "qwen2"}})");
  CHECK(c.has_siglip());
  CHECK(c.vision.has_head);
  CHECK(c.vision.hidden_act == Activation::gelu_tanh);
  CHECK(c.vision.num_positions() == 27 * 27);
  CHECK(c.tokens_per_image() == 729);
  CHECK(c.text.qkv_bias);
  const auto cut = read<LlavaConfig>(R"({"model_type": "llava",
      "vision_config": {"model_type": "siglip_vision_model", "vision_use_head": false}})");
  CHECK_FALSE(cut.vision.has_head);
  CHECK(cut.tokens_per_image() == 14 * 14 - 1);  // "default" drops the first patch, as there is no class token
}

TEST_CASE("nanoVLM's VLMConfig", "[models]") {
  const auto c = read<NanoVlmConfig>(R"({"model_type": "nanovlm"})");
  CHECK(class_name(R"({"model_type": "nanovlm"})") == "VisionLanguageModel");
  CHECK(c.vision.num_positions() == 256);
  CHECK(c.tokens_per_image() == 64);
  CHECK(c.text.head_dim == 64);
  CHECK(c.tie_word_embeddings);
}

TEST_CASE("Idefics3Config: what its class and its processor say", "[models]") {
  const auto c = read<Idefics3Config>(R"({"model_type": "idefics3", "scale_factor": 3,
      "vision_config": {"hidden_size": 1152, "image_size": 384, "patch_size": "14", "max_image_size": {"longest_edge": 384},
                        "size": {"longest_edge": 1536}}, "text_config": {"model_type": "qwen2"}})");
  CHECK(c.vision.num_hidden_layers == 12);
  CHECK(c.vision.intermediate_size == 3072);
  CHECK(c.vision.num_positions() == 729);
  CHECK(c.text.qkv_bias);
  CHECK(c.tokens_per_tile() == 81);
  // As Idefics3ImageProcessor cuts them (rows, columns): 4 x 4, 3 x 4, 2 x 4, 1 x 4, and 4 x 3 of a tall one.
  CHECK(c.tiles(384, 384) == 17);
  CHECK(c.tiles(720, 1280) == 13);
  CHECK(c.tiles(100, 200) == 9);
  CHECK(c.tiles(1, 4000) == 5);
  CHECK(c.tiles(1280, 720) == 13);
  CHECK(class_name(R"({"model_type": "smolvlm", "scale_factor": 7})") == "SmolVLMForConditionalGeneration");
}

TEST_CASE("CLIPConfig: *_config_dict is the complete result", "[models]") {
  const auto c = read<ClipConfig>(R"({"model_type": "clip", "text_config": {"hidden_size": 1024, "vocab_size": 7},
                                      "text_config_dict": {"hidden_size": 768}, "vision_config_dict": null})");
  CHECK(c.text.hidden_size == 768);
  CHECK(c.text.vocab_size == 49408);
  CHECK(c.vision == ClipVisionConfig{});
}

TEST_CASE("architectures picks the class", "[models]") {
  const auto c = read<ClipVisionConfig>(
      R"({"model_type": "clip", "architectures": ["CLIPVisionModel"], "vision_config": {"patch_size": 16}})");
  CHECK(c.patch_size == 16);
}

TEST_CASE("The original code's config.json", "[models]") {
  const auto original = [](const std::string& members) {
    return read<LlavaConfig>(R"({"architectures": ["LlavaLlamaForCausalLM"], "model_type": "llava", "hidden_size": 5120,
        "intermediate_size": 13824, "num_attention_heads": 40, "num_hidden_layers": 40,
        "mm_vision_tower": "openai/clip-vit-large-patch14-336", "mm_hidden_size": 1024, )" +
                                 members + "}",
                             Framework::llava);
  };
  const LlavaConfig v15 = original(R"("mm_projector_type": "mlp2x_gelu", "mm_vision_select_layer": -2,
                                      "mm_vision_select_feature": "patch")");
  CHECK(v15.original_format);
  CHECK(v15.text.hidden_size == 5120);
  CHECK(v15.projector_depth == 2);
  CHECK(v15.vision_feature_layers == std::vector<std::int64_t>{23});
  CHECK(original(R"("mm_projector_type": "linear")").projector_depth == 1);
  CHECK(original(R"("mm_projector_type": "mlp12x_gelu")").projector_depth == 12);
  CHECK(original(R"("mm_vision_select_feature": "cls_patch")").tokens_per_image() == 577);
}

TEST_CASE("Traits of a config", "[models]") {
  const ModelTraits clip = read_model(R"({"model_type": "clip"})").traits();
  CHECK(clip.takes_text);
  CHECK(clip.takes_images);
  CHECK(clip.max_sequence_length == 77);
  CHECK(clip.hidden_size == 512);
  const ModelTraits llama = read_model(R"({"model_type": "llama"})").traits();
  CHECK_FALSE(llama.takes_images);
  CHECK(llama.max_sequence_length == 0);
}

}  // namespace
}  // namespace oometer
