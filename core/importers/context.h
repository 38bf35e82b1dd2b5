#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "importers/keys.h"
#include "importers/ledger.h"

namespace oometer::importers {

/// How the program is started, where a command line or a file of accelerate says it.
struct Launch {
  std::int64_t gpus = 0;      ///< 0: nobody says it
  std::string file, key;      ///< who does
  std::string program;        ///< "trl sft", "llamafactory-cli train", a script's path
  nlohmann::json accelerate;  ///< the content of accelerate's file and options; null: none
  std::string accelerate_file;
  std::map<std::string, std::string> environment;

  /// More than one process, as far as is known so far.
  bool is_of_several() const { return gpus > 1 || (gpus == 0 && !accelerate.is_null()); }
};

/// One question while it is read: everything that was given, and what was made of it.
class Context {
 public:
  /// The catalogue must outlive it: it is long to copy.
  Context(std::vector<SourceFile> files, const nlohmann::json& hub) : files_(std::move(files)), hub_(&hub) {}

  Ledger ledger;
  Launch launch;
  bool shards_by_fsdp_config = false;  ///< the trainer enables FSDP where its fsdp_config stands alone
  bool is_own_command = true;          ///< the trainer's own command starts it, as where nobody says how

  /// The file that a key names, which is asked for where it was not given; a tree in its place is that file.
  nlohmann::json named_file(Keys& keys, const char* key);
  /// A given file by the last part of its path.
  const SourceFile* find_file(const std::string& path) const;

  /// The model that a key names: of the hub's catalogue, or the config.json that was given too, else it is asked for.
  /// `named`: its name, where the key's value is not quite that.
  void take_model(Keys& keys, const char* key, const std::string& named = "");
  /// Its configuration, as far as it is known; else null.
  const nlohmann::json& model_config() const { return model_config_; }
  /// The Hugging Face class of it: "LlamaForCausalLM"; "" where it is not known.
  std::string model_class() const;
  /// What a trainer that looks for the Linear layers itself, and gives peft their names, has for target_modules. With
  /// peft's own "all-linear" it is the same but in mixtures of experts, whose experts are no Linear layers.
  nlohmann::json linear_layers() const;
  /// The type of its weights as they are published: fp32, bf16 or fp16. Where nobody says it, fp32, as the largest
  /// of these, which is listed as not modelled at the key that names the model.
  std::string published_dtype(Keys& keys);

  /// Weights and autocast ("": none), in the shortest spelling. The keys that decide each.
  void take_precision(Keys& keys, const char* weights_key, const std::string& weights, const char* autocast_key,
                      const std::string& autocast);

 private:
  std::vector<SourceFile> files_;
  const nlohmann::json* hub_;
  nlohmann::json model_config_;
  std::string model_key_;        ///< that names the model
  bool is_dtype_asked_ = false;  ///< and it is listed that nobody says it
};

/// "bfloat16", "torch.bfloat16", "bf16" -> "bf16"; "" for others.
std::string dtype_of(const std::string& name);

}  // namespace oometer::importers
