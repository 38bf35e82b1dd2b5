#include "models/family.h"

#include <catch2/catch_test_macros.hpp>
#include <set>
#include <string>
#include <utility>

#include "job/catalogue.h"
#include "job/parse.h"

namespace oometer {
namespace {

TEST_CASE("Every family says all that a family has to say", "[models]") {
  std::set<std::pair<std::string, std::string>> classes;
  for (const Family* family : families()) {
    REQUIRE_FALSE(family->classes.empty());
    CHECK(family->read);
    CHECK(family->build);
    CHECK(family->traits);
    CHECK(family->largest_tensor);
    for (const ModelClass& of : family->classes) {
      INFO(of.model_type << ", " << of.class_name);
      CHECK(classes.emplace(of.model_type, of.class_name).second);  // no two families read the same
    }
  }
  CHECK(classes.size() > 10);
}

TEST_CASE("Every preset is one family's, which names its class and its parts", "[models]") {
  for (const ModelPreset& preset : model_presets()) {
    INFO(preset.id);
    const Result<Job> job = default_job(preset.id);
    // CLIP's tower alone has no loss of its own, so that its job has to name one.
    if (!job) continue;
    const Family& family = job->model.config.family();
    const ModelTraits& traits = job->model.config.traits();
    bool found = false;
    for (const ModelClass& of : family.classes) found |= of.class_name == traits.class_name;
    CHECK(found);
    CHECK((traits.takes_text || traits.takes_images || traits.max_audios > 0));
    if (traits.convolutions > 0) CHECK((traits.takes_images || traits.max_audios > 0));
    CHECK(traits.can(Feature::pretrain) == !traits.projector.empty());
    if (traits.generates) CHECK((traits.text.max_position_embeddings > 0 && !traits.contrastive));
    if (traits.can(Feature::fsdp)) CHECK_FALSE(traits.no_split_modules.empty());
  }
}

TEST_CASE("What a model cannot do has a reason", "[models]") {
  const Result<Job> clip = default_job("clip-vit-l-14");
  REQUIRE(clip);
  const ModelTraits& traits = clip->model.config.traits();
  CHECK_FALSE(traits.refusal(Feature::adapters));
  REQUIRE(traits.refusal(Feature::fsdp));
  CHECK(traits.refusal(Feature::fsdp)->why.find("logit_scale") != std::string::npos);
  REQUIRE(traits.refusal(Feature::mtla));
  CHECK(traits.refusal(Feature::mtla)->why.starts_with("CLIPModel has no latent attention"));
  std::set<std::string> names;
  for (std::size_t i = 0; i < kFeatures; ++i) {
    const auto feature = static_cast<Feature>(i);
    CHECK(names.insert(name_of(feature)).second);
    if (const auto refusal = traits.refusal(feature)) CHECK_FALSE(refusal->why.empty());
  }
}

}  // namespace
}  // namespace oometer
