#pragma once

#include <string>

#include "job/settings/setting.h"

/// What is generated of the table of settings.
namespace oometer {

/// A setting's words for the command's help, with its choices or versions.
std::string settings_help(const Setting& row, const Field& field);

/// presets/job.schema.json: a JSON schema of a job.
std::string job_schema();

/// presets/settings.json: the table as data, for the page and for tools.
///
///     {"sections": [{"pointer": "/training", "words": "The training step"}, ...],
///      "settings": [{"pointer": "/training/keep_outputs", "types": ["boolean"], "default": false, "words": "...",
///                    "applies": [{"setting": "/task", "is": ["train"]}], "option": "--keep-outputs",
///                    "label": "Keep model outputs", "link": "outputs", "link_values": ["dropped", "kept"]}, ...]}
///
/// `types`: those of JSON that it takes. `default`: what absence means; left out where that depends on the model.
/// `minimum`, `maximum`, `unit`: of numbers, also in a list, whose `length` is given where it is fixed. `choices`:
/// every text that it takes, each {"value", "label", "words"}. `offers`: values that a form lists, where more are
/// allowed. `applies`: conditions that all hold where the setting means something, those of the objects around it
/// included; `is` or `not` lists values. What a model has no use for, it says itself, by pointers. `option`, `label`,
/// `link` are left out where it has none; several settings may share a `link`, the key in a permalink. `link_values`:
/// how a permalink spells false and true, where not "off" and "on".
std::string settings_json();

/// docs/settings.md: the table for people.
std::string settings_markdown();

}  // namespace oometer
