#include "tensor/listeners.h"

#include <utility>

#include "tensor/context.h"

namespace oometer {

template <class Listener>
Listener* Listeners<Listener>::only() const {
  const Log& log = context_.log;
  return listeners_.size() == 1 && log.end_of(kModel) >= log.modules.size() ? listeners_.front().listener : nullptr;
}

template <class Listener>
std::vector<Listener*> Listeners<Listener>::of(ModuleId module) const {
  const ModuleId root = context_.log.root_of(module == kNever ? context_.module : module);
  std::vector<Listener*> listeners;
  for (const OfModel& one : listeners_)
    if (one.root == root) listeners.push_back(one.listener);
  return listeners;
}

template class Listeners<GradientListener>;
template class Listeners<BlockListener>;
template class Listeners<ModuleListener>;

void GradientListeners::gradient_ready(const Tensor& parameter) {
  for (GradientListener* listener : of(context_.module)) listener->gradient_ready(parameter);
}

bool GradientListeners::is_post_accumulate() const {
  const std::vector<GradientListener*> listeners = of(context_.module);
  return !listeners.empty() && std::all_of(listeners.begin(), listeners.end(), [](const GradientListener* listener) {
    return listener->is_post_accumulate();
  });
}

Tensor BlockListeners::before_block(ModuleId block, Tensor input) {
  for (BlockListener* listener : of(block)) input = listener->before_block(block, std::move(input));
  return input;
}

Tensor BlockListeners::after_block(ModuleId block, Tensor output) {
  for (BlockListener* listener : of(block)) output = listener->after_block(block, std::move(output));
  return output;
}

void ModuleListeners::before_forward(ModuleId module) {
  for (ModuleListener* listener : of(module)) listener->before_forward(module);
}

void ModuleListeners::after_forward(ModuleId module) {
  for (ModuleListener* listener : of(module)) listener->after_forward(module);
}

void ModuleListeners::before_backward(ModuleId module) {
  for (ModuleListener* listener : of(module)) listener->before_backward(module);
}

void ModuleListeners::after_backward(ModuleId module) {
  for (ModuleListener* listener : of(module)) listener->after_backward(module);
}

void ModuleListeners::read(const Tensor& parameter) {
  for (ModuleListener* listener : of(context_.module)) listener->read(parameter);
}

Tensor ModuleListeners::full_tensor(const Tensor& parameter) {
  Tensor full = parameter;
  for (ModuleListener* listener : of(context_.module)) full = listener->full_tensor(full);
  return full;
}

bool ModuleListeners::hears(ModuleId module) const {
  const std::vector<ModuleListener*> listeners = of(module);
  return std::any_of(listeners.begin(), listeners.end(),
                     [&](const ModuleListener* listener) { return listener->hears(module); });
}

bool ModuleListeners::hears_keywords(ModuleId module) const {
  const std::vector<ModuleListener*> listeners = of(module);
  return std::any_of(listeners.begin(), listeners.end(),
                     [&](const ModuleListener* listener) { return listener->hears_keywords(module); });
}

std::optional<DType> ModuleListeners::input_dtype(ModuleId module) const {
  for (const ModuleListener* listener : of(module))
    if (const std::optional<DType> dtype = listener->input_dtype(module)) return dtype;
  return std::nullopt;
}

void ModuleListeners::begin_block(ModuleId block) {
  for (ModuleListener* listener : of(block)) listener->begin_block(block);
}

bool ModuleListeners::end_block(ModuleId block) {
  bool all = true;
  for (ModuleListener* listener : of(block)) all = listener->end_block(block) && all;
  return all;
}

bool ModuleListeners::repeat_block(const MovedModules& moved) {
  bool all = true;
  for (ModuleListener* listener : of(moved.begin)) all = listener->repeat_block(moved) && all;
  return all;
}

}  // namespace oometer
