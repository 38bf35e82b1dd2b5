#include "train/samples.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <set>

#include "jobs.h"
#include "trace/same_log.h"

namespace oometer {
namespace {

using Lengths = SamplesConfig::Lengths;

DataConfig full(std::int64_t batch, std::int64_t length) {
  DataConfig data;
  data.micro_batch_size = batch;
  data.sequence_length = length;
  return data;
}

TEST_CASE("A micro-batch is padded to its longest sample, to a multiple, or to the maximum", "[train]") {
  SamplesConfig samples;
  samples.batches = {{100, 70}, {33}};
  const auto lengths = [&] {
    std::vector<std::int64_t> out;
    for (const DataConfig& data : micro_batches(samples, full(2, 128), 3)) out.push_back(data.sequence_length);
    return out;
  };
  CHECK(lengths() == Lengths{100, 33, 100});
  samples.padding = Padding::multiple;
  samples.multiple = 64;
  CHECK(lengths() == Lengths{128, 64, 128});
  samples.padding = Padding::max;
  samples.multiple = 1;
  CHECK(lengths() == Lengths{128, 128, 128});
  const DataConfig first = micro_batches(samples, full(2, 128), 1)[0];
  CHECK(first.rows.has_mask);
  CHECK(first.rows.are_padded(128));
  CHECK_FALSE(first.rows.are_packed());
}

TEST_CASE("Scored labels are counted after the shift and the cut", "[train]") {
  SamplesConfig samples;
  samples.batches = {{100, 70}};
  const auto scored = [&] { return micro_batches(samples, full(2, 100), 1)[0].scored; };
  CHECK(scored() == 99 + 69);
  samples.max_length = 80;
  CHECK(scored() == 79 + 69);
  samples.scored.kind = ScoredKind::completion;
  CHECK(scored() == 30 + 35);
  samples.padding_free = true;
  CHECK(scored() == 30 + 35);
  const DataConfig row = micro_batches(samples, full(2, 100), 1)[0];
  CHECK(row.rows.documents == std::vector<Lengths>{{80, 70}});
  CHECK(row.rows.has_bounds);
  CHECK(row.sequence_length == 150);
  CHECK(row.micro_batch_size == 1);
  samples = {};
  CHECK(collated(samples, full(2, 100)).scored == 2 * 99);
  CHECK(collated(samples, full(2, 100)).rows.has_mask);
}

TEST_CASE("Rows of documents come in turn and are as long as the longest", "[train]") {
  SamplesConfig samples;
  samples.packed = {{40, 60}, {30}, {5, 5}};
  const std::vector<DataConfig> batches = micro_batches(samples, full(2, 100), 2);
  CHECK(batches[0].rows.documents == std::vector<Lengths>{{40, 60}, {30}});
  CHECK(batches[0].sequence_length == 100);
  CHECK(batches[0].rows.are_packed());
  CHECK_FALSE(batches[0].rows.has_mask);
  CHECK(batches[1].rows.documents == std::vector<Lengths>{{5, 5}, {40, 60}});
}

TEST_CASE("bfd puts samples where the least room is left, wrapped cuts a stream", "[train]") {
  // TRL's own examples (data_utils.py, pack_dataset)
  CHECK(pack({5, 2, 3, 1}, 4, Packing::bfd) == std::vector<Lengths>{{4}, {3, 1}, {2}});
  CHECK(pack({5, 2, 3, 1}, 4, Packing::wrapped) == std::vector<Lengths>{{4}, {4}, {3}});
  SamplesConfig samples;
  samples.batches = {{5, 2, 3, 1}};
  samples.packing = Packing::bfd;
  const DataConfig one = micro_batches(samples, full(2, 4), 1)[0];  // padding-free: one row of all
  CHECK(one.micro_batch_size == 1);
  CHECK(one.sequence_length == 8);
  CHECK(one.rows.documents == std::vector<Lengths>{{4, 3, 1}});
}

TEST_CASE("Samples of a distribution keep to it, in an order that the seed decides", "[train]") {
  SamplesConfig samples;
  samples.uniform = {10, 20};
  const auto drawn = [&](std::int64_t seed) {
    samples.seed = seed;
    std::vector<Lengths> out;
    for (const DataConfig& data : micro_batches(samples, full(4, 20), 50))
      for (const Lengths& row : data.rows.documents) out.push_back(row);
    return out;
  };
  CHECK(drawn(0) == drawn(0));
  CHECK(drawn(0) != drawn(1));
  std::set<std::int64_t> seen;
  for (const Lengths& row : drawn(0)) seen.insert(row[0]);
  CHECK(seen.size() == 11);
  CHECK(*seen.begin() == 10);
  CHECK(*seen.rbegin() == 20);
  samples.uniform.reset();
  samples.histogram = {{8, 1}, {16, 0}, {32, 3}};
  seen.clear();
  for (const Lengths& row : drawn(0)) seen.insert(row[0]);
  CHECK(seen == std::set<std::int64_t>{8, 32});
  // Of each epoch's four samples one is short.
  const std::vector<Lengths> all = drawn(3);
  for (std::size_t i = 0; i + 4 <= all.size(); i += 4)
    CHECK(std::count(all.begin() + static_cast<std::ptrdiff_t>(i), all.begin() + static_cast<std::ptrdiff_t>(i + 4),
                     Lengths{8}) == 1);
}

TEST_CASE("Samples of like length come in mega-batches that begin with the longest", "[train]") {
  SamplesConfig samples;
  samples.histogram = {{10, 20}, {20, 20}, {30, 19}, {99, 1}};
  const DataConfig pairs = full(2, 99);
  samples.by_length = LengthGroups{2, 1};  // 60 samples: 7 groups of 2 in a mega-batch
  for (samples.seed = 0; samples.seed < 20; ++samples.seed) {
    const std::vector<DataConfig> batches = micro_batches(samples, pairs, 30);
    CHECK(batches.front().sequence_length == 99);
    std::map<std::int64_t, int> counts;
    for (std::size_t i = 0; i < batches.size(); ++i) {
      for (const auto& row : batches[i].rows.documents) ++counts[row.front()];
      if (i % 7 > 1) CHECK(batches[i].sequence_length <= batches[i - 1].sequence_length);
    }
    CHECK(counts == std::map<std::int64_t, int>{{10, 20}, {20, 20}, {30, 19}, {99, 1}});  // each once
  }
  samples.by_length->processes = 2;
  samples.seed = 1;
  const std::vector<DataConfig> alone = micro_batches(samples, pairs, 5);
  samples.by_length->processes = 1;
  const std::vector<DataConfig> all = micro_batches(samples, pairs, 10);
  for (std::size_t i = 0; i < alone.size(); ++i) CHECK(alone[i].rows == all[2 * i].rows);
}

TEST_CASE("Samples between quantiles are spread evenly", "[train]") {
  SamplesConfig samples;
  samples.quantiles = {{0, 10}, {0.5, 20}, {1, 1000}};
  CHECK(samples.longest() == 1000);
  int short_ones = 0;
  const std::vector<DataConfig> batches = micro_batches(samples, full(1000, 1000), 1);
  for (const auto& row : batches.front().rows.documents) {
    CHECK((row.front() >= 10 && row.front() <= 1000));
    short_ones += row.front() <= 20 ? 1 : 0;
  }
  CHECK(short_ones > 450);
  CHECK(short_ones < 550);
}

TEST_CASE("Steps are one pass over what is listed, at least two, and eight of a distribution", "[train]") {
  SamplesConfig samples;
  samples.batches.assign(6, {10, 10});
  CHECK(samples.steps_of(2, 1) == 6);
  CHECK(samples.steps_of(2, 2) == 3);
  CHECK(samples.steps_of(2, 6) == 2);
  samples.batches.clear();
  samples.packed.assign(12, {10});
  CHECK(samples.steps_of(2, 2) == 3);
  samples.packed.clear();
  samples.uniform = {1, 2};
  CHECK(samples.steps_of(2, 2) == 8);
  samples.steps = 5;
  CHECK(samples.steps_of(2, 2) == 5);
}

TEST_CASE("Labels are scored where they are neither padding nor an image", "[train]") {
  CHECK(Scored{}.of(100, 30) == 70);
  CHECK(Scored{ScoredKind::completion}.of(101, 0) == 51);
  CHECK(Scored{ScoredKind::completion}.of(100, 80) == 20);
  CHECK(Scored{ScoredKind::tokens, 20}.of(100, 90) == 10);
  CHECK(Scored{ScoredKind::fraction, 0, 0.25}.of(100, 0) == 25);
}

TEST_CASE("A step of lengths seen before is written as execution gives it", "[train]") {
  for (const char* const training :
       {R"("precision": "bf16")", R"("precision": "amp-bf16", "activation_checkpointing": "non-reentrant")",
        R"("precision": "bf16", "gradient_accumulation_steps": 2, "keep_outputs": true, "max_grad_norm": 1.0)",
        R"("precision": "bf16", "attention": "eager", "optimizer": {"implementation": "foreach"})"}) {
    const std::string text = tiny_llama(
        training, "", R"("lengths": {"batches": [[40, 64], [64, 64], [40, 60], [64, 9], [12, 12]]}, "steps": 12)");
    INFO(text);
    const Job job = job_of(text);
    const Behaviours behaviours = resolve_behaviours(job.runtime);
    const Simulation written = simulate(job, behaviours), executed = simulate(job, behaviours, false);
    CHECK(difference(written.log, executed.log) == "");
    CHECK(written.log.phases.back().iteration == 12);
  }
}

}  // namespace
}  // namespace oometer
