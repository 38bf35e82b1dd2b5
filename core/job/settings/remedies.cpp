#include "job/settings/sections.h"

namespace oometer {

std::span<const Section* const> sections_with_remedies() {
  static constexpr const Section* kSections[] = {
      &settings::data_section, &settings::training_section, &settings::optimizer_section, &settings::ddp_section,
      &settings::fsdp_section, &settings::runtime_section,  &settings::inference_section, &settings::cache_section};
  return kSections;
}

}  // namespace oometer
