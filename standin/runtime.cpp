// libcudart, as far as PyTorch calls it. Streams and events complete at once, kernels do nothing.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "device.h"
#include "driver.h"
#include "memory.h"

using namespace standin;

namespace {

thread_local Error last_error = kSuccess;

int said(Error error) {
  if (error != kSuccess) last_error = error;
  return error;
}

/// A stream or an event: an address that nobody else has.
int make_token(void** token) {
  *token = std::calloc(1, 16);
  return kSuccess;
}

/// Where a kernel's variables would be.
void* symbols() {
  static char bytes[1 << 16];
  return bytes;
}

constexpr int kNotCapturing = 0;
constexpr int kCudaVersion = 13020;

}  // namespace

// --- devices

STANDIN_API int cudaGetDeviceCount(int* count) { return *count = device().count, kSuccess; }
STANDIN_API int cudaGetDevice(int* index) { return *index = current_device(), kSuccess; }
STANDIN_API int cudaSetDevice(int index) { return said(set_current_device(index)); }
STANDIN_API int cudaDriverGetVersion(int* version) { return *version = kCudaVersion, kSuccess; }
STANDIN_API int cudaRuntimeGetVersion(int* version) { return *version = kCudaVersion, kSuccess; }
STANDIN_API int cudaDeviceSynchronize() { return kSuccess; }
STANDIN_API int cudaGetDeviceProperties(DeviceProperties* properties, int index) {
  if (index < 0 || index >= device().count) return said(kInvalidDevice);
  describe(*properties);
  return kSuccess;
}
STANDIN_API int cudaDeviceGetAttribute(int* value, int which, int) { return *value = attribute(which), kSuccess; }
STANDIN_API int cudaDeviceCanAccessPeer(int* can, int a, int b) { return *can = a != b, kSuccess; }
STANDIN_API int cudaDeviceEnablePeerAccess(int, unsigned) { return kSuccess; }
STANDIN_API int cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return kSuccess;
}
STANDIN_API int cudaDeviceGetPCIBusId(char* text, int size, int index) {
  std::snprintf(text, static_cast<std::size_t>(size), "0000:%02x:00.0", static_cast<unsigned>(index));
  return kSuccess;
}

// --- errors

STANDIN_API int cudaGetLastError() {
  const Error error = last_error;
  last_error = kSuccess;
  return error;
}
STANDIN_API int cudaPeekAtLastError() { return last_error; }
STANDIN_API const char* cudaGetErrorName(int error) {
  return error == kSuccess       ? "cudaSuccess"
         : error == kOutOfMemory ? "cudaErrorMemoryAllocation"
                                 : "cudaErrorNotSupported";
}
STANDIN_API const char* cudaGetErrorString(int error) {
  switch (error) {
    case kSuccess:
      return "no error";
    case kInvalidValue:
      return "invalid argument";
    case kOutOfMemory:
      return "out of memory";
    case kInvalidDevice:
      return "invalid device ordinal";
    default:
      return "operation not supported by oometer's stand-in device";
  }
}

// --- memory

STANDIN_API int cudaMalloc(void** pointer, std::size_t bytes) { return said(allocate(pointer, bytes)); }
STANDIN_API int cudaMallocManaged(void** pointer, std::size_t bytes, unsigned) {
  return said(allocate(pointer, bytes));
}
STANDIN_API int cudaFree(void* pointer) { return said(release(pointer)); }
STANDIN_API int cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total) {
  count(free_bytes, total);
  return kSuccess;
}
STANDIN_API int cudaMallocHost(void** pointer, std::size_t bytes) { return said(allocate_pinned(pointer, bytes)); }
STANDIN_API int cudaHostAlloc(void** pointer, std::size_t bytes, unsigned) {
  return said(allocate_pinned(pointer, bytes));
}
STANDIN_API int cudaFreeHost(void* pointer) { return release_pinned(pointer); }
STANDIN_API int cudaHostRegister(void* pointer, std::size_t bytes, unsigned) { return pin(pointer, bytes), kSuccess; }
STANDIN_API int cudaHostUnregister(void* pointer) { return unpin(pointer), kSuccess; }
STANDIN_API int cudaHostGetDevicePointer(void** its, void* pointer, unsigned) { return *its = pointer, kSuccess; }
STANDIN_API int cudaPointerGetAttributes(PointerAttributes* attributes, const void* pointer) {
  describe(*attributes, pointer);
  return kSuccess;
}
STANDIN_API int cudaMemcpy(void* to, const void* from, std::size_t bytes, int kind) {
  return copy(to, from, bytes, kind), kSuccess;
}
STANDIN_API int cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, int kind, void*) {
  return copy(to, from, bytes, kind), kSuccess;
}
STANDIN_API int cudaMemcpy2DAsync(void* to, std::size_t pitch, const void* from, std::size_t from_pitch,
                                  std::size_t width, std::size_t height, int kind, void*) {
  if (width * height <= (std::size_t{16} << 20))
    for (std::size_t row = 0; row < height; ++row)
      copy(static_cast<char*>(to) + row * pitch, static_cast<const char*>(from) + row * from_pitch, width, kind);
  return kSuccess;
}
STANDIN_API int cudaMemcpyPeerAsync(void*, int, const void*, int, std::size_t, void*) { return kSuccess; }
STANDIN_API int cudaMemcpyToSymbol(const void*, const void*, std::size_t, std::size_t, int) { return kSuccess; }
STANDIN_API int cudaMemset(void*, int, std::size_t) { return kSuccess; }
STANDIN_API int cudaMemsetAsync(void*, int, std::size_t, void*) { return kSuccess; }
STANDIN_API int cudaGetSymbolAddress(void** pointer, const void*) { return *pointer = symbols(), kSuccess; }

/// For `oometer run`: the most that all of this process's allocations took on a device.
STANDIN_API std::size_t oometer_standin_peak(int index) { return peak(index); }

// --- streams and events

STANDIN_API int cudaStreamCreate(void** stream) { return make_token(stream); }
STANDIN_API int cudaStreamCreateWithFlags(void** stream, unsigned) { return make_token(stream); }
STANDIN_API int cudaStreamCreateWithPriority(void** stream, unsigned, int) { return make_token(stream); }
STANDIN_API int cudaStreamDestroy(void*) { return kSuccess; }
STANDIN_API int cudaStreamQuery(void*) { return kSuccess; }
STANDIN_API int cudaStreamSynchronize(void*) { return kSuccess; }
STANDIN_API int cudaStreamWaitEvent(void*, void*, unsigned) { return kSuccess; }
STANDIN_API int cudaStreamGetPriority(void*, int* priority) { return *priority = 0, kSuccess; }
STANDIN_API int cudaStreamIsCapturing(void*, int* status) { return *status = kNotCapturing, kSuccess; }
STANDIN_API int cudaStreamGetCaptureInfo(void*, int* status, unsigned long long* id, void**, const void**, const void**,
                                         std::size_t* dependencies) {
  if (status != nullptr) *status = kNotCapturing;
  if (id != nullptr) *id = 0;
  if (dependencies != nullptr) *dependencies = 0;
  return kSuccess;
}
STANDIN_API int cudaThreadExchangeStreamCaptureMode(int*) { return kSuccess; }
STANDIN_API int cudaStreamAddCallback(void* stream, void (*call)(void*, int, void*), void* data, unsigned) {
  return call(stream, kSuccess, data), kSuccess;
}
STANDIN_API int cudaLaunchHostFunc(void*, void (*call)(void*), void* data) { return call(data), kSuccess; }
STANDIN_API int cudaEventCreate(void** event) { return make_token(event); }
STANDIN_API int cudaEventCreateWithFlags(void** event, unsigned) { return make_token(event); }
STANDIN_API int cudaEventDestroy(void* event) { return std::free(event), kSuccess; }
STANDIN_API int cudaEventQuery(void*) { return kSuccess; }
STANDIN_API int cudaEventRecord(void*, void*) { return kSuccess; }
STANDIN_API int cudaEventRecordWithFlags(void*, void*, unsigned) { return kSuccess; }
STANDIN_API int cudaEventSynchronize(void*) { return kSuccess; }
STANDIN_API int cudaEventElapsedTime(float* milliseconds, void*, void*) { return *milliseconds = 0.001F, kSuccess; }

// --- CUDA graphs, memory pools and memory of other processes are not there, and say so

STANDIN_API int cudaStreamBeginCapture(void*, int) { return said(kNotSupported); }
STANDIN_API int cudaStreamBeginCaptureToGraph(void*, void*, const void*, const void*, std::size_t, int) {
  return said(kNotSupported);
}
STANDIN_API int cudaMallocAsync(void**, std::size_t, void*) { return said(kNotSupported); }
STANDIN_API int cudaDeviceGetDefaultMemPool(void**, int) { return said(kNotSupported); }
STANDIN_API int cudaIpcGetMemHandle(void*, void*) { return said(kNotSupported); }
STANDIN_API int cudaIpcOpenMemHandle(void**, void*, unsigned) { return said(kNotSupported); }

// --- kernels

STANDIN_API int cudaLaunchKernel(const void*, Dim3, Dim3, void**, std::size_t, void*) { return kSuccess; }
STANDIN_API int cudaLaunchKernelExC(const void*, const void*, void**) { return kSuccess; }
STANDIN_API int cudaLaunchCooperativeKernel(const void*, Dim3, Dim3, void**, std::size_t, void*) { return kSuccess; }
// CUDA 13's headers launch through these two (crt/host_runtime.h).
STANDIN_API int __cudaGetKernel(const void** kernel, const void* function) { return *kernel = function, kSuccess; }
STANDIN_API int __cudaLaunchKernel(const void*, Dim3, Dim3, void**, std::size_t, void*) { return kSuccess; }
STANDIN_API int cudaFuncGetAttributes(FunctionAttributes* attributes, const void*) {
  std::memset(attributes, 0, sizeof *attributes);
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 64;
  attributes->ptxVersion = attributes->binaryVersion = 10 * device().major + device().minor;
  attributes->maxDynamicSharedSizeBytes = 48 << 10;
  return kSuccess;
}
STANDIN_API int cudaFuncSetAttribute(const void*, int, int) { return kSuccess; }
STANDIN_API int cudaKernelSetAttributeForDevice(void*, int, int, int) { return kSuccess; }
// Scratch of sorts and scans depends on it: two blocks a multiprocessor is what recorded cases had.
STANDIN_API int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, std::size_t) {
  return *blocks = 2, kSuccess;
}
STANDIN_API int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int, std::size_t,
                                                                       unsigned) {
  return *blocks = 2, kSuccess;
}

// --- the driver's functions, by name

STANDIN_API int cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                                 int* found) {
  *function = driver_function(name);
  if (found != nullptr) *found = 0;
  return kSuccess;
}
STANDIN_API int cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long flags, int* found) {
  return cudaGetDriverEntryPointByVersion(name, function, 13000, flags, found);
}
