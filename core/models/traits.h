#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nn/components.h"
#include "nn/precision.h"
#include "ops/liger.h"
#include "runtime/behaviours.h"

/// What a model is and can do, for those who must not look into its config: the job's reader, the advice, the page, the
/// tools.
namespace oometer {

/// What a job may ask of a model, and not every model can.
// clang-format off
#define OOMETER_FEATURES                                                                                         \
  X(transformers) X(original_llava) X(training) X(inference) X(pretrain) X(finetune) X(adapters) X(checkpointing) \
  X(no_grad) X(eager_attention) X(flash_attention) X(flash_attention_2) X(sdpa) X(liger) X(chunked_cross_entropy)        \
  X(quantization) X(deepspeed) X(zero3) X(fsdp) X(lengths) X(packing) X(generate_options) X(turn_images)         \
  X(headinfer) X(quantized_cache) X(mtla) X(image_preferences)
// clang-format on
enum class Feature : std::uint8_t {
#define X(name) name,
  OOMETER_FEATURES
#undef X
};
#define X(name) +1  // NOLINT(bugprone-macro-parentheses): a sum
inline constexpr std::size_t kFeatures = OOMETER_FEATURES;
#undef X
const char* name_of(Feature feature);

/// Why a model cannot do something.
struct Refusal {
  const char* code = "not-modelled";  ///< or "inconsistent": the libraries themselves refuse it
  std::string why;                    ///< follows "found X; "
};

/// Tiles and tokens of the language model that one image takes.
struct ImageCount {
  std::int64_t tiles = 1, tokens = 0;
};

/// Of an audio: tokens of the language model's sequence, if it takes any there, and how they come about.
struct AudioCount {
  std::int64_t tokens = 0;
  std::string words;  ///< for people: "30 s of audio are 3,000 frames ..."
};

/// What a cache or a kernel has to know of the language model.
struct TextShape {
  std::int64_t max_position_embeddings = 0;
  std::int64_t num_key_value_heads = 0, head_dim = 0;  ///< 0: its cache has no such heads
  std::int64_t sliding_window = 0;                     ///< tokens that each one sees, in layers that slide; 0: all
  std::vector<std::int64_t> windows;                   ///< each layer's, 0: all it sees; empty: no layer slides
};

/// What Liger's kernels meet in the model, and what its apply_liger_kernel_to_... does (liger-kernel 0.8.5,
/// transformers/monkey_patch.py).
struct LigerTraits {
  LigerConfig usual = LigerConfig::usual();  ///< that function's defaults
  LigerConfig lacks{.layer_norm = true};     ///< switches that it has not, or which it answers with an error
  bool is_known = true;                      ///< its model_type is in MODEL_TYPE_TO_APPLY_LIGER_FN
  bool experts = false;                      ///< `swiglu` puts LigerExperts in its experts' place
  bool swiglu = true;                        ///< its hidden_act is the one that Liger's MLP computes
  LigerConfig ignores;                       ///< switches that it takes, and which change nothing
  const char* note = "";                     ///< for people, where not all of its switches are on
  std::int64_t widest_row = 0;               ///< elements
};

struct ModelTraits {
  std::string class_name;  ///< the Hugging Face class, "LlamaForCausalLM"
  bool takes_text = false;
  bool takes_targets = false;  ///< an encoder reads its text, and a decoder beside it makes another
  bool takes_images = false;
  bool prompts_take_images = true;  ///< false: a model that takes images is supported without them in inference
  bool has_idle_parts = false;      ///< it has parts that no supported sample reaches, so that they get no gradients
  bool generates = false;           ///< it has generate(), a cache and logits
  bool classifies = false;          ///< a head scores whole sequences
  std::int64_t labels = 0;          ///< of such a head
  bool contrastive = false;         ///< its loss compares samples with each other
  bool has_experts = false;
  bool balances_experts = false;  ///< its class can add a loss that does (output_router_logits, router_aux_loss_coef)
  bool counts_experts = true;     ///< false: TRL's head wants its config's num_experts, which is not there
  bool outputs_router_logits = false;  ///< and does, as its config says
  bool is_recorded = false;            ///< a graph: its operators are as they were recorded
  Kernels kernels = Kernels::torch;    ///< operations of its class that an installed package can run
  Version oldest_transformers{};       ///< what `Behaviours` says of earlier ones was not found in its code
  bool has_pad_token = false;          ///< pad_token_id
  bool ties_embeddings = false;        ///< the output embeddings are the input's (tie_word_embeddings)
  std::int64_t hidden_size = 0;        ///< what transformers resolves DeepSpeed's "auto" with; 0: it cannot

  /// Dotted names of its parts; empty: it has none. The language model's head stands beside it.
  std::string tower, projector, language;
  const char* original_projector = "";  ///< its projector in the original LLaVA code
  /// What the stages mean; as Feature::pretrain and Feature::finetune say, there may be no such stage.
  Components pretrain, finetune;

  std::int64_t default_sequence_length = 0;  ///< where the job gives none
  std::int64_t max_sequence_length = 0;      ///< 0: no limit, else longer sequences are refused (CLIP's text model)
  std::int64_t fixed_batch = 0;              ///< the only micro-batch that it takes; 0: any
  TextShape text;

  /// Of images: how many a sample may have, and why; the keys of the job's `data` that say what they are like.
  std::int64_t min_images = 0, max_images = std::int64_t{1} << 16;
  const char* images_why = "";
  std::vector<const char*> image_keys;
  bool cuts_images = false;       ///< images of any size, which the processor cuts into tiles
  bool chooses_tiles = false;     ///< the job may say how many, in place of a size
  std::int64_t image_size = 0;    ///< the config's own, pixels; 0: none, or no images
  std::int64_t convolutions = 0;  ///< whose workspaces are cuDNN's own; of a model that takes images: where it gets any

  /// Of audio: how many a sample may have; 0: it hears nothing.
  std::int64_t min_audios = 0, max_audios = 0;
  double usual_audio_seconds = 30, max_audio_seconds = 0;  ///< 0: of any length
  const char* audio_why = "";                              ///< why no longer

  /// Outputs that can be the loss, and whether there is one of its own. One output and no own loss: it is the loss.
  std::vector<const char*> losses;
  bool has_loss = true;
  const char* loss_name = "";  ///< what its own loss may be called
  /// Those that it runs in, its usual one first; empty: any, bf16 being usual.
  std::vector<Precision> precisions, inference_precisions;
  const char* precisions_why = "";
  bool needs_precision = false;  ///< it has none that the job could ask for

  /// peft's own target_modules, and (IA)^3's feedforward_modules, for the model_type; none: it has no opinion
  std::vector<std::string> lora_targets, ia3_targets, ia3_feedforward, ln_tuning_targets;
  std::vector<std::string> quantization_skips;  ///< usual llm_int8_skip_modules beside adapters
  LigerTraits liger;

  /// The classes that transformers does not split (_no_split_modules), which accelerate wraps for FSDP by default.
  std::vector<std::string> no_split_modules;
  bool casts_by_first_parameter = false;  ///< its forward casts pixels to the dtype of its first parameter
  const char* scalar_parameter = "";      ///< a parameter without dimensions

  /// Why it cannot what it was not allowed, where it says no more: code of its own, that has no such thing.
  const char* why_not = "";

  /// How many images a sample has where the job does not say.
  std::int64_t usual_images(bool infers) const { return takes_images && (prompts_take_images || !infers) ? 1 : 0; }
  /// A key of the job's `data` that says what its images are like.
  bool reads_images_by(std::string_view key) const;
  void allow(std::initializer_list<Feature> features);
  /// peft does not know its model_type: whoever adapts it names the modules.
  void has_no_peft_targets() { lora_targets = ia3_targets = ia3_feedforward = ln_tuning_targets = {}; }
  void refuse(Feature feature, const char* code, std::string why);
  /// Liger does not know it: a Trainer that asks for its kernels runs without.
  void has_no_liger();
  /// liger-kernel 0.8.5 stops at it with transformers 5.
  void stop_at_liger(const char* why);
  static constexpr const char* kNoLigerOutputs = "an ImportError, as its class of outputs has gone";
  /// Liger has kernels for it that are not supported yet.
  void leave_liger_out();
  /// Sets the names of its parts, and what the stages are of a model with a tower, a projector and a language model.
  void set_parts(const char* its_tower, const char* its_projector, const char* its_language);
  /// None: it can.
  std::optional<Refusal> refusal(Feature feature) const;
  bool can(Feature feature) const { return is_allowed_[static_cast<std::size_t>(feature)]; }

 private:
  std::array<bool, kFeatures> is_allowed_{};
  std::vector<std::pair<Feature, Refusal>> refusals_;
};

/// Of a class of transformers: what such a class has, whatever it does.
ModelTraits transformers_traits(std::string class_name);

}  // namespace oometer
