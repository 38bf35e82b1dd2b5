#include "advice/beside.h"

#include <functional>
#include <string>
#include <utility>

#include "advice/changes.h"
#include "advice/parallel_changes.h"
#include "advice/remedies.h"
#include "advice/trial.h"
#include "config/patch.h"
#include "job/catalogue.h"
#include "sort_by.h"

namespace oometer {

using nlohmann::json;

namespace {

class Spares {
 public:
  explicit Spares(const json& document) : document_(document) {}

  /// Keeps it where it fits.
  bool offer(const std::string& label, const std::string& gains, const std::function<void(json&)>& make) {
    json changed = document_;
    make(changed);
    const std::optional<Trial> trial = try_job(changed);
    if (!trial || !trial->fits) return false;
    spares_.push_back({label, gains, text_of(patch_between(document_, changed)), *trial});
    return true;
  }
  std::vector<Spare> take() { return std::move(spares_); }

 private:
  const json& document_;
  std::vector<Spare> spares_;
};

/// "Activation checkpointing" within a sentence; a name in capitals stays.
std::string within(std::string label) {
  if (label.size() > 1 && label[1] >= 'a' && label[1] <= 'z' && label[0] >= 'A' && label[0] <= 'Z')
    label[0] = static_cast<char>(label[0] - 'A' + 'a');
  return label;
}

const char* gain_of(Price price) {
  constexpr const char* kGains[] = {"", "faster", "more exact", "more of the model trains", "less hardware"};
  return kGains[static_cast<std::size_t>(price)];
}

}  // namespace

std::vector<Spare> what_fits_beside(const Job& job, const json& document) {
  Spares spares(document);
  for (const Change& change : dispensable_remedies(job, document))
    spares.offer("Without " + within(change.label), gain_of(change.price), change.make);
  for (const Change& change : less_sharding(job)) spares.offer(change.label, change.costs, change.make);
  std::vector<Gpu> gpus = gpu_catalogue();
  sort_by(gpus, [](const Gpu& gpu) { return gpu.usable_bytes; });
  for (const Gpu& gpu : gpus) {
    if (gpu.usable_bytes >= job.gpu.usable_bytes) break;
    if (gpu.vendor != job.gpu.vendor) continue;
    if (spares.offer(gpu.name, "a smaller GPU", [id = gpu.id](json& changed) { set_gpu(changed, id); })) break;
  }
  return spares.take();
}

}  // namespace oometer
