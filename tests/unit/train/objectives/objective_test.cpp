#include "train/objectives/objective.h"

#include <catch2/catch_test_macros.hpp>

#include "models/llama/llama.h"
#include "ops/ops.h"
#include "process.h"

namespace oometer {
namespace {

LlamaConfig llama_of_one_layer() {
  LlamaConfig config;
  config.vocab_size = 64;
  config.hidden_size = 32;
  config.intermediate_size = 64;
  config.num_hidden_layers = 1;
  config.num_attention_heads = config.num_key_value_heads = 2;
  config.head_dim = 16;
  return config;
}

DataConfig two_of_eight_tokens() {
  DataConfig data;
  data.micro_batch_size = 2;
  data.sequence_length = 8;
  return data;
}

TEST_CASE("without labels forward gives logits alone", "[train]") {
  Process p;
  const std::unique_ptr<Model> model = build_llama(p.context, llama_of_one_layer(), two_of_eight_tokens(), {});
  const std::unique_ptr<Objective> objective = make_objective({}, model->loss_type);
  model->loss_function = objective->loss_function();
  const ModelInputs batch = model->make_inputs(false);
  CHECK_FALSE(batch.labels);
  const ModelOutputs outputs = model->forward(batch);
  CHECK_FALSE(outputs.loss);
  CHECK(outputs.others.front().sizes() == Shape{2, 8, 64});
}

TEST_CASE("a model calls the loss that it is handed, whichever that is", "[train]") {
  struct MeanOfLogits : LossFunction {
    Tensor operator()(const Tensor& logits, const Tensor&, const Tensor&) const override { return mean_all(logits); }
  };
  Process p;
  const std::unique_ptr<Model> model = build_llama(p.context, llama_of_one_layer(), two_of_eight_tokens(), {});
  const MeanOfLogits mean;
  const auto allocations_of = [&](const LossFunction* loss_function) {
    model->loss_function = loss_function;
    const ModelInputs batch = model->make_inputs(true);
    p.mark();
    const ModelOutputs outputs = model->forward(batch);
    CHECK(outputs.loss.ndim() == 0);
    return p.allocations().size();
  };
  const std::unique_ptr<Objective> causal_lm = make_objective({}, model->loss_type);
  // The logits' float32 copy, the labels' two, and what cross_entropy makes.
  CHECK(allocations_of(causal_lm->loss_function()) > allocations_of(&mean));
}

TEST_CASE("the mean of an output needs no labels", "[train]") {
  Process p;
  const std::unique_ptr<Model> model = build_llama(p.context, llama_of_one_layer(), two_of_eight_tokens(), {});
  TrainingConfig training;
  training.loss = "last_hidden_state";
  const std::unique_ptr<Objective> objective = make_objective(training, model->loss_type);
  CHECK(objective->loss_function() == nullptr);
  ModelInputs batch = objective->prepare(*model);
  CHECK_FALSE(batch.labels);
  ModelOutputs outputs;
  const Tensor loss = objective->loss(
      [&](ModelInputs& inputs) -> const ModelOutputs& { return outputs = model->forward(inputs); }, batch);
  CHECK(loss.dtype() == DType::float32);
  CHECK(loss.requires_grad());
}

}  // namespace
}  // namespace oometer
