#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "advice/changes.h"
#include "job/job.h"

namespace oometer {

/// The remedies of a job's settings (job/settings/setting.h) that it does not have already: a choice a setting. Of
/// several values those milder than what the job has are left out.
std::vector<Alternatives> remedies_of_settings(const Job& job, const nlohmann::json& document);

/// What a job could do without: the settings that have a remedy's value now, set back to a milder one or to their
/// default. The label says what goes; the price is what is saved.
std::vector<Change> dispensable_remedies(const Job& job, const nlohmann::json& document);

}  // namespace oometer
