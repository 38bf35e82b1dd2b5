#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "models/data.h"
#include "models/traits.h"
#include "peft/config.h"

/// What each folder of core/models gives to the rest of the program: one constant `family::NAME`, of the folder's
/// name, in its family.cpp. The build makes the list of them.
namespace oometer {

class ConfigReader;
class Context;
class Model;
struct LlamaConfig;
struct ModelOptions;

/// A config.json as its family has read it, which alone knows what is in it. A value: it never changes.
class FamilyConfig {
 public:
  FamilyConfig() = default;
  template <typename T>
  requires(!std::is_same_v<T, FamilyConfig>)
      FamilyConfig(T config)  // NOLINT(google-explicit-constructor): a family returns its own
      : value_(std::make_shared<const T>(std::move(config))), equal_(&equal<T>) {}

  /// For the family's own folder.
  template <typename T>
  const T& as() const {
    return *static_cast<const T*>(value_.get());
  }
  bool operator==(const FamilyConfig& other) const {
    return value_ == other.value_ || (equal_ == other.equal_ && equal_(value_.get(), other.value_.get()));
  }

 private:
  template <typename T>
  static bool equal(const void* a, const void* b) {
    return *static_cast<const T*>(a) == *static_cast<const T*>(b);
  }

  std::shared_ptr<const void> value_;
  bool (*equal_)(const void*, const void*) = nullptr;
};

/// A class that can be built: a config's model_type, and the class that `architectures` may name with it.
struct ModelClass {
  const char *model_type, *class_name;
};

struct Family {
  /// The first of a model_type is the one taken where a config names no class.
  std::span<const ModelClass> classes = {};
  /// Classes of its modules that FSDP may wrap.
  std::span<const char* const> blocks = {};
  /// Reads and validates as the class's own config and the modelling code would; what is wrong is noted in the reader.
  FamilyConfig (*read)(ConfigReader& config, const ModelClass& of, Framework framework) = nullptr;
  std::unique_ptr<Model> (*build)(Context& context, const FamilyConfig& config, const DataConfig& data,
                                  const ModelOptions& options) = nullptr;
  /// Of a config in which nothing is wrong.
  ModelTraits (*traits)(const FamilyConfig& config) = nullptr;
  /// Bytes of about the largest tensor that the model makes of its data. In doubles: it must not overflow.
  double (*largest_tensor)(const FamilyConfig& config, const DataConfig& data) = nullptr;

  // What follows only some families have.
  /// Of an image of so many pixels, before any processing. `tiles`: as many as these instead; 0: as the processor cuts.
  /// None: images bring no tokens into a text.
  ImageCount (*count_image)(const FamilyConfig& config, std::int64_t height, std::int64_t width,
                            std::int64_t tiles) = nullptr;
  /// What the job's `data` says of images, where it is neither one size nor tiles: its patches and tokens.
  void (*read_images)(ConfigReader& data_reader, const FamilyConfig& config, DataConfig& data) = nullptr;
  /// Of an audio of so many seconds; of a family that hears.
  AudioCount (*count_audio)(const FamilyConfig& config, double seconds) = nullptr;
  /// The config of its language model inside another model's.
  LlamaConfig (*read_language)(ConfigReader& text_config) = nullptr;
  /// What peft makes of target_modules for this model, before it looks for them.
  void (*convert_targets)(ConfigReader& reader, const FamilyConfig& config, LoraConfig& lora) = nullptr;
  /// As trl's disable_dropout_in_model leaves it: it finds nn.Dropout modules, and not calls of functional.dropout.
  /// None: the class has no such module.
  FamilyConfig (*without_dropout)(const FamilyConfig& config) = nullptr;
};

/// Of a class whose nn.Dropout modules have these rates.
template <typename Config, auto... rates>
FamilyConfig without_dropout(const FamilyConfig& config) {
  Config without = config.as<Config>();
  ((without.*rates = 0), ...);
  return without;
}

/// A model as a job names it: a family's config, and what the family says of it.
class ModelConfig {
 public:
  ModelConfig() = default;
  ModelConfig(const Family& family, FamilyConfig config)
      : family_(&family),
        config_(std::move(config)),
        traits_(std::make_shared<const ModelTraits>(family.traits(config_))) {}

  const Family& family() const { return *family_; }
  const FamilyConfig& config() const { return config_; }
  const ModelTraits& traits() const { return *traits_; }
  ModelConfig without_dropout() const {
    return family_->without_dropout ? ModelConfig(*family_, family_->without_dropout(config_)) : *this;
  }
  bool operator==(const ModelConfig& other) const { return family_ == other.family_ && config_ == other.config_; }

 private:
  const Family* family_ = nullptr;
  FamilyConfig config_;
  std::shared_ptr<const ModelTraits> traits_;
};

/// All of them, in the order of their folders' names. A function that calls this knows every family, and the first part
/// of the WebAssembly module has none such: whoever looks for one family looks among the first ones before.
std::vector<const Family*> families();

/// Those of first answers (cmake/families.cmake).
std::span<const Family* const> first_families();

}  // namespace oometer
