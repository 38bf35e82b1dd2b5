#pragma once

#include <span>
#include <string_view>

/// The models and GPUs of presets/, embedded at build (cmake/embed_presets.cmake).
namespace oometer {

/// One document: what it is of ("gpus", "models"), its id, its JSON. The catalogue of GPUs is one document a
/// GPU, in the catalogue's order.
struct PresetFile {
  std::string_view folder;
  std::string_view id;
  std::string_view text;
};

/// All of them. Defined by the generated source.
std::span<const PresetFile> preset_files();

/// The text of one, "" where there is none: `preset_text("models", "llava-1.5-7b")`.
std::string_view preset_text(std::string_view folder, std::string_view id);

}  // namespace oometer
