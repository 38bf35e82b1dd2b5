#pragma once

#include <span>
#include <string_view>

/// The files of presets/, embedded at build (cmake/embed_presets.cmake).
namespace oometer {

/// One file: its folder under presets/ ("models", "jobs"; "" for gpus.json), its name without ".json", its text.
struct PresetFile {
  std::string_view folder;
  std::string_view id;
  std::string_view text;
};

/// All of them, sorted by folder and id. Defined by the generated source.
std::span<const PresetFile> preset_files();

/// The text of one file, "" where there is none: `preset_text("models", "llava-1.5-7b")`, `preset_text("", "gpus")`.
std::string_view preset_text(std::string_view folder, std::string_view id);

}  // namespace oometer
