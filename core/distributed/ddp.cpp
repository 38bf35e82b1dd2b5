#include "distributed/ddp.h"

#include <algorithm>
#include <limits>

#include "distributed/broadcast.h"
#include "ops/ops.h"
#include "tensor/kernel.h"
#include "tensor/node.h"

namespace oometer {

namespace {

/// kDefaultFirstBucketBytes, reducer.hpp; and the cap where none is given (_DEFAULT_BUCKET_CAP_MB).
constexpr std::int64_t kFirstBucket = 1 << 20, kDefaultCap = 25 << 20;

/// _DDPSink.backward hands its gradients on.
void hand_on(Backward& b) {
  for (unsigned i = 0; i < b.node.edges.size(); ++i) b.give(i, std::move(b.grads[i]));
}

}  // namespace

DistributedDataParallel::DistributedDataParallel(Context& context, Model& model, const TrainingConfig& training,
                                                 const DdpConfig& config, std::int64_t world)
    : TrainingStrategy(context, model, training), config_(config), world_(world) {}

DistributedDataParallel::~DistributedDataParallel() { context_.forget(*this); }

void DistributedDataParallel::initialize() {
  {
    const NoGrad no_grad(context_);
    const ModuleScope scope(context_, model_.root);
    TensorList states, trained;  // _sync_module_states
    for (const Parameter& parameter : model_.parameters) {
      states.push_back(parameter.tensor);
      if (!parameter.tensor->leaf_requires_grad) continue;
      parameter.tensor->index = static_cast<std::uint32_t>(parameters_.size());
      parameters_.push_back(parameter);
      trained.push_back(parameter.tensor);
    }
    if (config_.broadcast_buffers)
      for (const Tensor& buffer : model_.buffers) states.push_back(buffer);
    broadcast_coalesced(context_, states, world_);
    // compute_bucket_size_limits: one bucket until the order of arrival is known, if it ever will be.
    std::vector<std::int64_t> limits{std::numeric_limits<std::int64_t>::max()};
    if (config_.find_unused_parameters && !config_.static_graph) limits = bucket_limits();
    std::vector<Indices> assignment = assign_buckets(trained, limits, true);
    std::reverse(assignment.begin(), assignment.end());
    initialize_buckets(assignment);
    // initialize_local_used_map, where it is looked at.
    if (config_.find_unused_parameters || config_.static_graph)
      local_used_map_ = empty(context_, Op::empty, {static_cast<std::int64_t>(trained.size())}, DType::int32);
  }
  TrainingStrategy::initialize();
  context_.listen(model_.root, *this);
}

/// `first_bucket_bytes_cap`, then `bucket_bytes_cap`.
std::vector<std::int64_t> DistributedDataParallel::bucket_limits() const {
  if (!config_.bucket_cap_mb) return {kFirstBucket, kDefaultCap};
  return {*config_.bucket_cap_mb * 1024 * 1024};
}

void DistributedDataParallel::initialize_buckets(const std::vector<Indices>& assignment) {
  release_buckets();
  buckets_.clear();
  bucket_of_.resize(parameters_.size());
  for (const Indices& indices : assignment) {
    for (const std::size_t i : indices) bucket_of_[i] = buckets_.size();
    Bucket& bucket = buckets_.emplace_back(Bucket{indices, {}, {}});
    if (!config_.lazy_bucket_allocation) allocate(bucket);
  }
}

void DistributedDataParallel::allocate(Bucket& bucket) {
  std::int64_t numel = 0;
  for (const std::size_t i : bucket.parameters) numel += parameters_[i].tensor.numel();
  const DType dtype = parameters_[bucket.parameters.front()].tensor.dtype();
  bucket.contents = empty(context_, Op::bucket, {numel}, dtype, Role::gradient);
  for (const std::size_t i : bucket.parameters)
    context_.share(bucket.contents, parameters_[i].module, parameters_[i].tensor.numel());
}

/// The first goes first, as in a std::vector.
void DistributedDataParallel::release_buckets() {
  for (Bucket& bucket : buckets_) bucket.contents.reset();
}

/// Reducer::rebuild_buckets: once, in the order in which the gradients came. A static graph's come in the second
/// iteration (the first only counts), so that its buckets change in the third.
void DistributedDataParallel::rebuild_buckets() {
  const bool is_fixed = config_.find_unused_parameters && !config_.static_graph;
  if (has_rebuilt_ || is_fixed || arrived_.empty()) return;
  has_rebuilt_ = true;
  TensorList tensors;
  for (const std::size_t i : arrived_) tensors.push_back(parameters_[i].tensor);
  std::vector<Indices> assignment = assign_buckets(tensors, bucket_limits(), false);
  for (Indices& bucket : assignment)
    for (std::size_t& i : bucket) i = arrived_[i];
  {
    // sync_bucket_indices: rank 0's are everybody's.
    const auto count = static_cast<std::int64_t>(arrived_.size());
    const Tensor indices = empty(context_, Op::empty, {count + 1}, DType::int32);
    const Tensor sizes = empty(context_, Op::empty, {static_cast<std::int64_t>(assignment.size())}, DType::int32);
  }
  initialize_buckets(assignment);
}

/// _pre_forward
void DistributedDataParallel::before_forward(ModelInputs&, bool last_micro_step) {
  const bool has_grad = context_.grad_mode;  // otherwise no backward follows
  const NoGrad no_grad(context_);
  const ModuleScope scope(context_, model_.root);
  if (has_grad && reduces_ && !config_.find_unused_parameters && !config_.static_graph &&
      arrived_.size() < parameters_.size()) {
    // ensure_prior_reduction_finished
    refusal_ =
        Error{"inconsistent", "/parallel/ddp",
              "found " + std::to_string(parameters_.size() - arrived_.size()) +
                  " trained parameters without a gradient, at which DistributedDataParallel fails in the second step; "
                  "expected {\"find_unused_parameters\": true}, or those parameters frozen"};
    return;
  }
  if (has_grad) rebuild_buckets();
  if (syncs_buffers_ && config_.broadcast_buffers) {
    TensorList buffers;
    for (const Tensor& buffer : model_.buffers) buffers.push_back(buffer);
    broadcast_coalesced(context_, buffers, world_);
  }
  syncs_buffers_ = has_grad && last_micro_step;
  if (has_grad) reduces_ = last_micro_step;
}

/// _post_forward: where unused parameters are looked for, _DDPSink clones every output.
void DistributedDataParallel::after_forward(ModelOutputs& outputs) {
  const bool sinks = config_.static_graph ? !static_graph_known_ : config_.find_unused_parameters;
  if (!sinks) return;
  const ModuleScope scope(context_, model_.root);
  TensorList given;
  for (Tensor* output : outputs.all()) given.push_back(*output);
  Record record(Op::clone, hand_on, given);
  TensorList clones;
  for (const Tensor& tensor : given) clones.push_back(empty_like(Op::clone, tensor));
  std::size_t i = 0;
  for (Tensor* output : outputs.all()) {
    // What has no history is handed back as it is.
    const Tensor clone = record.output(clones[i++]);
    if (output->requires_grad()) *output = clone;
  }
}

void DistributedDataParallel::backward(const Tensor& loss, bool last_micro_step) {
  TrainingStrategy::backward(loss, last_micro_step);
  if (!reduces_) return;
  if (config_.static_graph && !static_graph_known_) {
    // Reducer::delay_all_reduce: the first iteration only counts, and reduces everything at its end.
    static_graph_known_ = true;
    for (std::size_t i = 0; i < parameters_.size(); ++i) mark_ready(i);
  }
  for (Bucket& bucket : buckets_) {  // those with unused parameters: find_unused_parameters reduces them, too
    if (bucket.ready < bucket.parameters.size()) reduce(bucket);
    bucket.ready = 0;
  }
  if (config_.lazy_bucket_allocation) release_buckets();
}

/// Reducer::autograd_hook
void DistributedDataParallel::gradient_ready(const Tensor& tensor) {
  if (tensor->index == kNever || !reduces_ || (config_.static_graph && !static_graph_known_)) return;
  if (!has_rebuilt_) arrived_.push_back(tensor->index);
  mark_ready(tensor->index);
}

/// all_reduce_bucket, and finalize_bucket_dense, which copies back what is no view of the bucket.
void DistributedDataParallel::reduce(Bucket& bucket) {
  if (!bucket.contents) return;
  collective(context_, Op::all_reduce, bucket.contents.nbytes(), bucket.contents.dtype(), world_);
  if (!config_.gradient_as_bucket_view) kernel(Op::copy, {&bucket.contents}, bucket.contents);
}

/// mark_variable_ready_dense: the gradient is copied into its bucket, and back when that is reduced; or it becomes a
/// view of the bucket, at once or with all of the bucket's (batched_grad_copy).
void DistributedDataParallel::mark_ready(std::size_t index) {
  const ModuleScope scope(context_, model_.root);
  Bucket& bucket = buckets_[bucket_of_[index]];
  if (!bucket.contents) allocate(bucket);
  if (!config_.gradient_as_bucket_view) {
    const Tensor& gradient = parameters_[index].tensor->grad;
    if (gradient) kernel(Op::copy, {&gradient}, gradient);
  }
  if (++bucket.ready == bucket.parameters.size()) reduce(bucket);
  if (!config_.gradient_as_bucket_view) return;
  bucket.waiting.push_back(index);
  if (config_.batched_grad_copy && bucket.waiting.size() < bucket.parameters.size()) return;
  for (const std::size_t i : bucket.waiting) {
    const Tensor& gradient = parameters_[i].tensor->grad;
    if (gradient) set_data(gradient, bucket.contents);
  }
  bucket.waiting.clear();
}

}  // namespace oometer
