// libcuda, as far as PyTorch, NVRTC's loader and Triton call it. The library has its name, so that whoever opens
// libcuda.so.1 finds it loaded.
#include "driver.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "device.h"
#include "memory.h"

using namespace standin;

namespace {

void* const kContext = reinterpret_cast<void*>(0x1000);
void* const kModule = reinterpret_cast<void*>(0x2000);
void* const kFunction = reinterpret_cast<void*>(0x3000);
constexpr std::size_t kGranularity = std::size_t{2} << 20;

/// CUmemAllocationProp, as far as it is read.
struct AllocationProperties {
  int type, handle_types, location_type, location;
};

int not_supported() { return kNotSupported; }

}  // namespace

STANDIN_API int cuInit(unsigned) { return kSuccess; }
STANDIN_API int cuDriverGetVersion(int* version) { return *version = 13020, kSuccess; }
STANDIN_API int cuGetErrorString(int error, const char** text) {
  *text = error == kOutOfMemory ? "out of memory" : "not supported by oometer's stand-in device";
  return kSuccess;
}
STANDIN_API int cuDeviceGet(int* its, int index) { return *its = index, kSuccess; }
STANDIN_API int cuDeviceGetCount(int* count) { return *count = device().count, kSuccess; }
STANDIN_API int cuDeviceGetAttribute(int* value, int which, int) { return *value = attribute(which), kSuccess; }
STANDIN_API int cuDevicePrimaryCtxGetState(int, unsigned* flags, int* active) {
  *flags = 0;
  *active = 1;
  return kSuccess;
}
STANDIN_API int cuDevicePrimaryCtxRetain(void** context, int) { return *context = kContext, kSuccess; }
STANDIN_API int cuCtxGetCurrent(void** context) { return *context = kContext, kSuccess; }
STANDIN_API int cuCtxSetCurrent(void*) { return kSuccess; }
STANDIN_API int cuCtxPushCurrent_v2(void*) { return kSuccess; }
STANDIN_API int cuCtxPopCurrent_v2(void** context) { return *context = kContext, kSuccess; }
STANDIN_API int cuCtxGetDevice(int* its) { return *its = current_device(), kSuccess; }

// --- modules and kernels

STANDIN_API int cuModuleLoad(void** module, const char*) { return *module = kModule, kSuccess; }
STANDIN_API int cuModuleLoadData(void** module, const void*) { return *module = kModule, kSuccess; }
STANDIN_API int cuModuleLoadDataEx(void** module, const void*, unsigned, int*, void**) {
  return *module = kModule, kSuccess;
}
STANDIN_API int cuModuleUnload(void*) { return kSuccess; }
STANDIN_API int cuModuleGetFunction(void** function, void*, const char*) { return *function = kFunction, kSuccess; }
STANDIN_API int cuFuncGetAttribute(int* value, int, void*) { return *value = 0, kSuccess; }
STANDIN_API int cuFuncSetAttribute(void*, int, int) { return kSuccess; }
STANDIN_API int cuFuncSetCacheConfig(void*, int) { return kSuccess; }
STANDIN_API int cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
                               void**, void**) {
  return kSuccess;
}
STANDIN_API int cuLaunchKernelEx(const void*, void*, void**, void**) { return kSuccess; }
STANDIN_API int cuLaunchCooperativeKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                          void*, void**) {
  return kSuccess;
}
STANDIN_API int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void*, int, std::size_t) {
  return *blocks = 2, kSuccess;
}
STANDIN_API int cuOccupancyMaxActiveClusters(int* clusters, void*, const void*) { return *clusters = 1, kSuccess; }
STANDIN_API int cuTensorMapEncodeTiled() { return kSuccess; }
STANDIN_API int cuLinkCreate_v2(unsigned, int*, void**, void** state) { return *state = kModule, kSuccess; }
STANDIN_API int cuLinkAddData_v2() { return kSuccess; }
STANDIN_API int cuLinkComplete() { return kSuccess; }
STANDIN_API int cuStreamWriteValue32() { return kSuccess; }
STANDIN_API int cuMemsetD32Async() { return kSuccess; }
STANDIN_API int cuPointerGetAttribute() { return kInvalidValue; }

// --- virtual memory: PyTorch's expandable segments

STANDIN_API int cuMemGetAllocationGranularity(std::size_t* bytes, const void*, int) {
  return *bytes = kGranularity, kSuccess;
}
STANDIN_API int cuMemAddressReserve(std::uintptr_t* pointer, std::size_t bytes, std::size_t, std::uintptr_t,
                                    unsigned long long) {
  void* found = nullptr;
  const Error error = reserve_addresses(&found, bytes);
  *pointer = reinterpret_cast<std::uintptr_t>(found);
  return error;
}
STANDIN_API int cuMemAddressFree(std::uintptr_t pointer, std::size_t bytes) {
  return release_addresses(reinterpret_cast<void*>(pointer), bytes);
}
STANDIN_API int cuMemCreate(std::size_t* handle, std::size_t bytes, const AllocationProperties* properties,
                            unsigned long long) {
  return create_physical(bytes, properties->location, handle);
}
STANDIN_API int cuMemRelease(std::size_t handle) { return release_physical(handle); }
STANDIN_API int cuMemMap(std::uintptr_t, std::size_t, std::size_t, std::size_t, unsigned long long) { return kSuccess; }
STANDIN_API int cuMemUnmap(std::uintptr_t pointer, std::size_t bytes) {
  return forget(reinterpret_cast<void*>(pointer), bytes), kSuccess;
}
STANDIN_API int cuMemSetAccess(std::uintptr_t, std::size_t, const void*, std::size_t) { return kSuccess; }
STANDIN_API int cuMemGetAddressRange_v2(std::uintptr_t* begin, std::size_t* bytes, std::uintptr_t pointer) {
  void* its = nullptr;
  if (!block_of(reinterpret_cast<void*>(pointer), &its, bytes)) return kInvalidValue;
  if (begin != nullptr) *begin = reinterpret_cast<std::uintptr_t>(its);
  return kSuccess;
}

STANDIN_API int cuGetProcAddress_v2(const char* name, void** function, int, unsigned long long, int* found) {
  *function = driver_function(name);
  if (found != nullptr) *found = 0;
  return kSuccess;
}

namespace standin {

void* driver_function(const char* name) {
  struct Row {
    const char* name;
    void* function;
  };
#define STANDIN_ROW(name) \
  { #name, reinterpret_cast < void*>(&name) }
  static const Row rows[] = {
      STANDIN_ROW(cuInit),
      STANDIN_ROW(cuDriverGetVersion),
      STANDIN_ROW(cuGetErrorString),
      STANDIN_ROW(cuDeviceGet),
      STANDIN_ROW(cuDeviceGetCount),
      STANDIN_ROW(cuDeviceGetAttribute),
      STANDIN_ROW(cuDevicePrimaryCtxGetState),
      STANDIN_ROW(cuDevicePrimaryCtxRetain),
      STANDIN_ROW(cuCtxGetCurrent),
      STANDIN_ROW(cuCtxSetCurrent),
      {"cuCtxPushCurrent", reinterpret_cast<void*>(&cuCtxPushCurrent_v2)},
      {"cuCtxPopCurrent", reinterpret_cast<void*>(&cuCtxPopCurrent_v2)},
      STANDIN_ROW(cuTensorMapEncodeTiled),
      STANDIN_ROW(cuStreamWriteValue32),
      STANDIN_ROW(cuMemsetD32Async),
      STANDIN_ROW(cuMemGetAllocationGranularity),
      STANDIN_ROW(cuMemAddressReserve),
      STANDIN_ROW(cuMemAddressFree),
      STANDIN_ROW(cuMemCreate),
      STANDIN_ROW(cuMemRelease),
      STANDIN_ROW(cuMemMap),
      STANDIN_ROW(cuMemUnmap),
      STANDIN_ROW(cuMemSetAccess),
      {"cuMemGetAddressRange", reinterpret_cast<void*>(&cuMemGetAddressRange_v2)},
  };
#undef STANDIN_ROW
  for (const Row& row : rows)
    if (std::strcmp(row.name, name) == 0) return row.function;
  return reinterpret_cast<void*>(&not_supported);
}

}  // namespace standin
