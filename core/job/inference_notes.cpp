#include "job/notes.h"

namespace oometer {

void note_inference(const Job& job, const Simulation& simulation, ReportInput& input) {
  const CacheConfig& cache = job.inference.cache;
  const auto assume = [&](const char* what) { input.assumptions.emplace_back(what); };
  const auto assume_from_source = [&](const char* what) {
    assume(what);
    input.evidence = Evidence::source_only;
  };
  if (const std::int64_t replicas = job.parallel.data; replicas > 1)
    input.notes.push_back(
        "Each of the " + std::to_string(replicas) +
        " GPUs holds the whole model and serves prompts of its own: " + std::to_string(job.data.micro_batch_size) +
        " at once on each, " + std::to_string(replicas * job.data.micro_batch_size) + " in all.");
  if (!job.model.config.traits().generates)
    return assume("one forward pass in eval mode under torch.no_grad(); its outputs are kept");
  if (cache.implementation == CacheImplementation::paged)
    return assume_from_source(
        "vLLM follows its source (vllm/v1/worker/gpu_worker.py, determine_available_memory) and was not measured: the "
        "GPU memory that gpu_memory_utilization allows, minus weights and a forward pass of max_num_batched_tokens, is "
        "divided into blocks; transformers' modules replace vLLM's fused ones, so the forward pass is overestimated; "
        "CUDA graphs are not counted");
  assume(
      "transformers' generate(): greedy, without torch.compile, prompts of equal length, exactly new_tokens generated");
  if (cache.implementation == CacheImplementation::quantized && cache.backend == CacheBackend::quanto)
    assume(
        "the cache is that of optimum-quanto 0.2.7; its CUDA unpacking kernel follows the source: one output, no "
        "scratch "
        "memory");
  if (cache.implementation == CacheImplementation::quantized && cache.backend == CacheBackend::hqq)
    assume(
        "the cache is that of hqq 0.2.8, without the hqq_aten extension; two iterations of its optimizer for the "
        "scales "
        "are simulated, because all take the same memory");
  if (cache.implementation == CacheImplementation::headinfer)
    assume_from_source(
        "HeadInfer (arXiv 2502.12574) follows its source (github.com/wdlctc/headinfer at b57e449, written for "
        "transformers 4.45) and was not measured: one key-value head at a time, the cache of the others in pinned host "
        "memory, the next head's being prefetched; PyTorch's flash attention replaces the flash-attn package");
  if (cache.implementation == CacheImplementation::mtla)
    assume_from_source(
        "MTLA (arXiv 2505.13544) follows its source (github.com/D-Keqi/mtla at 498b1d3, its Hugging Face attention) "
        "and "
        "was not measured: this model's projections, norms and rotary embedding, MTLA's hyper-network, and the full "
        "score matrix, as in the source; the model must have been trained with MTLA");
  if (simulation.generated.skipped)
    assume(
        "the first and last tokens of an answer are decoded in full; for those between, only the growing cache is "
        "simulated");
}

}  // namespace oometer
