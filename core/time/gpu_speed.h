#pragma once

#include <cstdint>
#include <string_view>

#include "trace/dtype.h"

/// How fast GPUs are: their data sheets, and what kernels reach of these.
namespace oometer {

/// What matrix products reach: fractions of the peak and of the memory's bandwidth, and microseconds of each call.
/// All 0: not measured.
struct ProductRate {
  double flops, bytes, launch_us;
};

/// What flash attention's forward reaches of the peak with very long sequences, at which length half of that, and
/// microseconds of each call.
struct AttentionRate {
  double flops, tokens, launch_us;
};

/// A chip of which kernels were measured.
struct Chip {
  std::string_view id;
  ProductRate half, single;                   ///< operands of 16 bits (fp32 accumulation), fp32
  AttentionRate attention_64, attention_128;  ///< heads of up to 64, and wider
  double elementwise, reduction;              ///< fractions of the memory's bandwidth
  double strided;  ///< GB/s of elementwise kernels that PyTorch does not vectorize; 0: as of the others
};

/// What connects GPUs of a node.
enum class Fabric : std::uint8_t { nvlink3, nvlink4, nvlink5, pcie };

/// A GPU of the catalogue.
struct GpuSpeed {
  std::string_view id;            ///< of presets/gpus.json
  std::string_view chip;          ///< whose kernels it is taken to have
  bool is_that_chip;              ///< false: another of its architecture
  double fp32, tf32, bf16, fp16;  ///< TFLOP/s of products, dense, fp32 accumulation; 0: it has no such units
  double memory, link;            ///< GB/s (1e9 bytes); of a link in one direction
  Fabric fabric;
};

/// What NCCL takes for a message: microseconds at least, and the fraction of the link that large ones reach.
struct Collective {
  double launch_us, link;
};

/// None where no kernel of the GPU's architecture was measured, and of a GPU that a job describes itself ("").
const GpuSpeed* find_speed(std::string_view gpu);
/// The chip's constants; what was not measured of it is the median of those of which it was (`is_known`: it was).
/// Elementwise kernels reach 0.74 to 0.91 of the bandwidth on every chip: they are known.
struct ChipRates {
  Chip rates;
  struct {
    bool half, single, attention, reduction;
  } is_known;
};
ChipRates rates_of(const GpuSpeed& gpu);
/// Of an all_reduce, or of another collective, of so many ranks in a node.
Collective collective_rate(Fabric fabric, bool is_all_reduce, std::int64_t ranks);

/// FLOP/s that the data sheet has for products of a dtype; 0: none. `tensor_float_32`: products of fp32 use it.
double peak_flops(const GpuSpeed& gpu, DType dtype, bool tensor_float_32 = false);

}  // namespace oometer
