#include "tensor/listeners.h"

#include <catch2/catch_test_macros.hpp>

#include "autograd/engine.h"
#include "process.h"

namespace oometer {
namespace {

using Modules = std::vector<ModuleId>;

struct Gradients : GradientListener {
  std::vector<const TensorImpl*> heard;
  void gradient_ready(const Tensor& parameter) override { heard.push_back(parameter.get()); }
};

/// Notes whose forward began, with what it is called.
struct Forwards : ModuleListener {
  Forwards(std::string& told_, char name_) : told(told_), name(name_) {}

  std::string& told;
  char name;
  Modules begun;

  void before_forward(ModuleId module) override {
    told += name;
    begun.push_back(module);
  }
  void after_forward(ModuleId) override {}
  void before_backward(ModuleId) override {}
  void after_backward(ModuleId) override {}
  void read(const Tensor&) override {}
};

/// Two models of one Linear each.
struct TwoModels : Process {
  Builder builder_of(ModuleId model) { return {&context, &parameters, &buffers, model, Modality::none, kBf16}; }

  Linear first{builder().child("linear", "Linear"), 8, 8, false};
  ModuleId second_root = context.add_root("Test", Modality::none);
  Linear second{builder_of(second_root).child("linear", "Linear"), 8, 8, false};
};

TEST_CASE("A listener hears of the gradients of its own model", "[tensor]") {
  TwoModels p;
  Gradients of_first, of_second;
  p.context.listen(p.root, of_first);
  p.context.listen(p.second_root, of_second);
  autograd::backward(sum_all(p.second(p.first(p.input({2, 8})))));
  CHECK(of_first.heard == std::vector<const TensorImpl*>{p.first.weight.get()});
  CHECK(of_second.heard == std::vector<const TensorImpl*>{p.second.weight.get()});
}

TEST_CASE("A model that nobody listens to is left alone", "[tensor]") {
  TwoModels p;
  Gradients of_first;
  p.context.listen(p.root, of_first);
  autograd::backward(sum_all(p.second(p.input({2, 8}))));
  CHECK(of_first.heard.empty());
  p.context.forget(of_first);
  CHECK(p.context.gradients == nullptr);
}

TEST_CASE("Several listeners of one model are told in the order in which they came", "[tensor]") {
  TwoModels p;
  std::string told;
  Forwards a(told, 'a'), b(told, 'b'), c(told, 'c');
  p.context.listen(p.root, a);
  p.context.listen(p.second_root, b);
  p.context.listen(p.root, c);
  p.second(p.first(p.input({2, 8})));
  CHECK(told == "acb");
  CHECK(a.begun == Modules{p.first.module});
  CHECK(b.begun == Modules{p.second.module});
  p.context.forget(a);
  p.first(p.input({2, 8}));
  CHECK(told == "acbc");
}

TEST_CASE("One listener of one model is called without a search", "[tensor]") {
  Process p;
  Gradients listener;
  p.context.listen(p.root, listener);
  CHECK(p.context.gradients == &listener);
  p.context.add_root("Test", Modality::none);  // of another model it must not hear
  CHECK(p.context.gradients != &listener);
}

}  // namespace
}  // namespace oometer
