#include "job/notes.h"

namespace oometer {

void note_inference(const Job& job, const Simulation& simulation, ReportInput& input) {
  const CacheConfig& cache = job.inference.cache;
  const auto assume = [&](const char* what) { input.assumptions.emplace_back(what); };
  const auto assume_from_source = [&](const char* what) {
    assume(what);
    input.evidence = Evidence::source_only;
  };
  if (!job.model.config.traits().generates)
    return assume("one forward in eval mode under torch.no_grad(), whose outputs are kept");
  if (cache.implementation == CacheImplementation::paged)
    return assume_from_source(
        "vLLM from its source (vllm/v1/worker/gpu_worker.py, determine_available_memory), never measured: of "
        "gpu_memory_utilization of the GPU, what weights and a forward of max_num_batched_tokens leave is cut into "
        "blocks; transformers' modules stand for vLLM's fused ones, so the forward is rather too large; CUDA graphs "
        "are not counted");
  assume(
      "transformers' generate(): greedy, eager (no torch.compile), all prompts of one length, until new_tokens are "
      "there");
  if (cache.implementation == CacheImplementation::quantized && cache.backend == CacheBackend::quanto)
    assume(
        "the cache is optimum-quanto 0.2.7's; of its CUDA extension, which it builds itself, the kernel that unpacks "
        "is known from its source: one output, no scratch memory");
  if (cache.implementation == CacheImplementation::quantized && cache.backend == CacheBackend::hqq)
    assume(
        "the cache is hqq 0.2.8's, without the hqq_aten extension; its fit of the scales takes the same memory in each "
        "iteration, so that two stand for all");
  if (cache.implementation == CacheImplementation::headinfer)
    assume_from_source(
        "HeadInfer (arXiv 2502.12574) from its source (github.com/wdlctc/headinfer at b57e449, written for "
        "transformers 4.45), never measured: one key head at a time, the cache of the others in pinned host memory, "
        "the next head's on its way; PyTorch's flash attention stands for the flash-attn package");
  if (cache.implementation == CacheImplementation::mtla)
    assume_from_source(
        "MTLA (arXiv 2505.13544) from its source (github.com/D-Keqi/mtla at 498b1d3, its Hugging Face attention), "
        "never measured: with this model's projections, norms and rotary embedding, a hyper-network of its own, "
        "scores in full as the source computes them; such a model has to be trained so");
  if (simulation.generated.skipped)
    assume("the first and the last tokens of an answer are decoded in full, those between as far as the cache grows");
}

}  // namespace oometer
