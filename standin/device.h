#pragma once

#include <cstdint>
#include <string>

#include "abi.h"

/// Which GPU the stand-in is, as `oometer run` says in the environment.
namespace standin {

struct Device {
  std::string name = "oometer stand-in";      ///< OOMETER_DEVICE_NAME
  int major = 8, minor = 0;                   ///< OOMETER_DEVICE_CAPABILITY, "8.0"
  int multiprocessors = 108;                  ///< OOMETER_DEVICE_MULTIPROCESSORS
  int count = 1;                              ///< OOMETER_DEVICE_COUNT
  std::size_t total = std::size_t{16} << 40;  ///< OOMETER_DEVICE_TOTAL: bytes, as cudaMemGetInfo gives them
  std::size_t taken = 0;                      ///< OOMETER_DEVICE_TAKEN: bytes of it that the context and NCCL hold
  bool ends = true;  ///< OOMETER_DEVICE_ENDS=0: memory never runs out, to learn how much a run takes

  // What follows from the capability (CUDA programming guide, "Technical Specifications per Compute Capability").
  std::size_t shared_per_multiprocessor = 0, shared_per_block_optin = 0;
  int threads_per_multiprocessor = 0;
};

/// Read once.
const Device& device();

/// As cudaGetDeviceProperties and cudaDeviceGetAttribute say it.
void describe(DeviceProperties& properties);
int attribute(int which);

/// The device of this thread (cudaSetDevice).
int current_device();
Error set_current_device(int index);

}  // namespace standin
