#include "device.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace standin {

namespace {

constexpr int kL2Bytes = 40 << 20;
thread_local int chosen = 0;

Device read_device() {
  Device device;
  if (const char* const text = std::getenv("OOMETER_DEVICE_NAME")) device.name = text;
  if (const char* const text = std::getenv("OOMETER_DEVICE_CAPABILITY"))
    std::sscanf(text, "%d.%d", &device.major, &device.minor);
  if (const char* const text = std::getenv("OOMETER_DEVICE_MULTIPROCESSORS")) device.multiprocessors = std::atoi(text);
  if (const char* const text = std::getenv("OOMETER_DEVICE_COUNT")) device.count = std::atoi(text);
  if (const char* const text = std::getenv("OOMETER_DEVICE_TOTAL")) device.total = std::strtoull(text, nullptr, 10);
  if (const char* const text = std::getenv("OOMETER_DEVICE_TAKEN")) device.taken = std::strtoull(text, nullptr, 10);
  if (const char* const text = std::getenv("OOMETER_DEVICE_ENDS")) device.ends = std::strcmp(text, "0") != 0;

  struct Row {
    int capability;
    std::size_t shared, shared_optin;
    int threads;
  };
  constexpr Row kRows[] = {
      {70, 98304, 98304, 2048},    {75, 65536, 65536, 1024},    {80, 167936, 166912, 2048}, {86, 102400, 101376, 1536},
      {87, 167936, 166912, 1536},  {89, 102400, 101376, 1536},  {90, 233472, 232448, 2048}, {100, 233472, 232448, 2048},
      {103, 233472, 232448, 2048}, {120, 102400, 101376, 1536},
  };
  for (const Row& row : kRows) {
    if (row.capability > 10 * device.major + device.minor) break;
    device.shared_per_multiprocessor = row.shared;
    device.shared_per_block_optin = row.shared_optin;
    device.threads_per_multiprocessor = row.threads;
  }
  return device;
}

}  // namespace

const Device& device() {
  static const Device its = read_device();
  return its;
}

void describe(DeviceProperties& p) {
  const Device& its = device();
  std::memset(&p, 0, sizeof p);
  std::snprintf(p.name, sizeof p.name, "%s", its.name.c_str());
  p.totalGlobalMem = its.total;
  p.sharedMemPerBlock = 48 << 10;
  p.sharedMemPerBlockOptin = its.shared_per_block_optin;
  p.sharedMemPerMultiprocessor = its.shared_per_multiprocessor;
  p.reservedSharedMemPerBlock = 1024;
  p.regsPerBlock = p.regsPerMultiprocessor = 65536;
  p.warpSize = 32;
  p.memPitch = 0x7fffffff;
  p.maxThreadsPerBlock = 1024;
  p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024;
  p.maxThreadsDim[2] = 64;
  p.maxGridSize[0] = 0x7fffffff;
  p.maxGridSize[1] = p.maxGridSize[2] = 65535;
  p.totalConstMem = 65536;
  p.major = its.major;
  p.minor = its.minor;
  p.textureAlignment = 512;
  p.texturePitchAlignment = 32;
  p.surfaceAlignment = 512;
  p.multiProcessorCount = its.multiprocessors;
  p.canMapHostMemory = p.concurrentKernels = p.unifiedAddressing = p.managedMemory = p.cooperativeLaunch = 1;
  p.streamPrioritiesSupported = p.globalL1CacheSupported = p.localL1CacheSupported = 1;
  p.computePreemptionSupported = p.canUseHostPointerForRegisteredMem = p.hostRegisterSupported = 1;
  p.asyncEngineCount = 3;
  p.memoryBusWidth = 5120;
  p.l2CacheSize = kL2Bytes;
  p.maxThreadsPerMultiProcessor = its.threads_per_multiprocessor;
  p.maxBlocksPerMultiProcessor = 32;
  p.clusterLaunch = its.major >= 9;
}

int attribute(int which) {
  const Device& its = device();
  switch (which) {
    case kMaxThreadsPerBlock:
    case kMaxBlockDimX:
    case kMaxBlockDimY:
      return 1024;
    case kMaxBlockDimZ:
      return 64;
    case kMaxGridDimX:
      return 0x7fffffff;
    case kMaxGridDimY:
    case kMaxGridDimZ:
      return 65535;
    case kSharedPerBlock:
      return 48 << 10;
    case kSharedPerBlockOptin:
      return static_cast<int>(its.shared_per_block_optin);
    case kSharedPerMultiprocessor:
      return static_cast<int>(its.shared_per_multiprocessor);
    case kReservedSharedPerBlock:
      return 1024;
    case kWarpSize:
    case kMaxBlocksPerMultiprocessor:
      return 32;
    case kRegistersPerBlock:
    case kRegistersPerMultiprocessor:
      return 65536;
    case kClockRate:
      return 1410000;
    case kMultiProcessorCount:
      return its.multiprocessors;
    case kL2CacheSize:
      return kL2Bytes;
    case kMaxThreadsPerMultiProcessor:
      return its.threads_per_multiprocessor;
    case kComputeCapabilityMajor:
      return its.major;
    case kComputeCapabilityMinor:
      return its.minor;
    case kUnifiedAddressing:
    case kManagedMemory:
    case kCooperativeLaunch:
    case kStreamPriorities:
    case kCanMapHostMemory:
    case kHostRegisterSupported:
    case kVirtualMemoryManagement:
      return 1;
    default:
      return 0;
  }
}

int current_device() { return chosen; }

Error set_current_device(int index) {
  if (index < 0 || index >= device().count) return kInvalidDevice;
  chosen = index;
  return kSuccess;
}

}  // namespace standin
