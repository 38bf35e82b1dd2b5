#pragma once

#include <span>
#include <string_view>
#include <vector>

/// The models and GPUs of presets/, embedded at build (cmake/embed_presets.cmake).
namespace oometer {

/// One document: what it is of ("gpus", "models"), its id, its JSON. The catalogue of GPUs is one document a
/// GPU, in the catalogue's order.
struct PresetFile {
  std::string_view folder;
  std::string_view id;
  std::string_view text;
};

/// All of them, models by their ids. Like `families()`, none of the functions that first answers run may call it.
std::vector<PresetFile> preset_files();

/// The GPUs, and the models of first answers: some of `first_families()` (cmake/families.cmake).
std::span<const PresetFile> first_preset_files();

/// The text of one, "" where there is none: `preset_text("models", "llava-1.5-7b")`.
std::string_view preset_text(std::string_view folder, std::string_view id);

}  // namespace oometer
