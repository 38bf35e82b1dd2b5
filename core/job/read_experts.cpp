#include <nlohmann/json.hpp>

#include "job/names.h"
#include "job/notes.h"
#include "job/read.h"

namespace oometer {

ExpertLoad read_routing(ConfigReader& data, const ModelTraits& traits) {
  if (!data.has("routing")) return {};
  ExpertLoad load;
  if (data.is_list("routing"))
    load.counts = data.integers("routing", non_negative);
  else
    load.is_worst = data.choice("routing", false, {{"balanced", false}, {"worst", true}});
  if (!traits.has_experts && load != ExpertLoad{})
    data.fail_found("routing", "inconsistent", traits.class_name + " has no experts: leave it out");
  return load;
}

void write_routing(const ExpertLoad& routing, nlohmann::json& data) {
  if (!routing.counts.empty()) data["routing"] = routing.counts;
  if (routing.is_worst) data["routing"] = "worst";
}

void note_experts(const Job& job, ReportInput& input) {
  if (job.runtime.experts == ExpertsImplementation::eager) {
    input.assumptions.emplace_back(std::string("experts run one after another, as their class does by itself; ") +
                                   (!job.data.routing.counts.empty() ? "each gets as many tokens as data.routing says"
                                    : job.data.routing.is_worst      ? "all tokens go to the same ones (data.routing)"
                                                                : "tokens are spread evenly over them (data.routing)"));
    return;
  }
  input.assumptions.emplace_back(
      "experts use grouped_mm (batched_mm while generate() decodes): their memory depends on the number of tokens, not "
      "on the routing (at least one token is routed, none is dropped)");
  if (job.data.routing != ExpertLoad{})
    input.notes.emplace_back(
        "data.routing changes no memory here: with grouped_mm all experts' tokens are in one tensor, however they are "
        "spread; with \"experts\": \"eager\" in runtime it would");
}

namespace {

/// What the loop over experts was not compared with.
const char* not_with_loop(const Job& job) {
  if (job.task == Task::inference) return "inference";
  if (job.parallel.strategy != Strategy::none) return "a parallel strategy";
  if (job.training.quantization) return "quantization";
  if (job.training.liger != LigerConfig{}) return "Liger's kernels";
  if (job.samples.are_given() && !job.data.routing.counts.empty()) return "counts of tokens and samples of lengths";
  return nullptr;
}

}  // namespace

void check_experts(ConfigReader& reader, const Job& job) {
  if (job.runtime.experts == ExpertsImplementation::batched_mm)
    reader.object("runtime").fail(
        "experts", "not-modelled",
        "found batched_mm, which is not supported yet but for decoding; expected grouped_mm, or eager");
  if (job.runtime.experts == ExpertsImplementation::eager)
    if (const char* other = not_with_loop(job))
      reader.object("runtime").fail(
          "experts", "not-modelled",
          std::string("found eager with ") + other + ", which is not supported yet; expected grouped_mm");
  // SFTTrainer.__init__, DPOTrainer.__init__, KTOTrainer.__init__ (trl 1.16): on where the config has a
  // router_aux_loss_coef.
  const LoopConfig& loop = job.training.loop;
  const ModelTraits& traits = job.model.config.traits();
  const bool adds_loss =
      loop.has_fused_head() ? traits.balances_experts : loop.is_trl() && traits.outputs_router_logits;
  // Of KTO's forwards the policy's own has routers' logits: all that a loss without a KL term asks of it.
  const bool has_own_reference = !job.training.has_adapters() || job.model.reference == Reference::copy;
  const bool is_known = loop.has_fused_head() &&
                        (loop.name == LoopName::sft || (loop.name == LoopName::dpo && !traits.outputs_router_logits) ||
                         (loop.name == LoopName::kto && !traits.outputs_router_logits &&
                          loop.loss_type == "apo_zero_unpaired" && has_own_reference));
  if (loop.has_fused_head() && !traits.counts_experts)
    reader.object("training")
        .fail("loop", "inconsistent",
              "found a trainer of TRL 1.16, which stops with " + traits.class_name +
                  ": it asks the config for num_experts, which is not there (trl/trainer/utils.py, _fused_forward); "
                  "expected transformers.Trainer, or router_aux_loss_coef 0 in the model's config");
  else if (adds_loss && !is_known)
    reader.object("training")
        .fail("loop", "not-modelled",
              "found a trainer of TRL, which adds the loss that balances experts; that is supported with SFTTrainer "
              "and DPOTrainer (TRL 1.15 or later), and with KTOTrainer's apo_zero_unpaired and a reference of its own: "
              "expected that, transformers.Trainer or \"step\"");
  if (traits.outputs_router_logits && (job.task == Task::inference || traits.classifies))
    reader.fail("model", "not-modelled",
                "found output_router_logits in its config, which is supported with the training of language models "
                "only; expected false");
}

}  // namespace oometer
