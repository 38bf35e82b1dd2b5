// libnvidia-ml: PyTorch asks it about NVLink, fabric handles and other processes. There are none.
#include <cstddef>

#include "abi.h"
#include "device.h"

namespace {

constexpr int kNvmlNotSupported = 3;

}  // namespace

STANDIN_API int nvmlInit_v2() { return 0; }
STANDIN_API int nvmlShutdown() { return 0; }
STANDIN_API int nvmlSystemGetCudaDriverVersion_v2(int* version) { return *version = 13020, 0; }
STANDIN_API int nvmlDeviceGetCount_v2(unsigned* count) {
  return *count = static_cast<unsigned>(standin::device().count), 0;
}
STANDIN_API int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) {
  return *handle = reinterpret_cast<void*>(std::size_t{0x5000} + index), 0;
}
STANDIN_API int nvmlDeviceGetHandleByPciBusId_v2(const char*, void** handle) {
  return *handle = reinterpret_cast<void*>(0x5000), 0;
}
STANDIN_API int nvmlDeviceGetComputeRunningProcesses(void*, unsigned* count, void*) { return *count = 0, 0; }
STANDIN_API int nvmlDeviceGetGpuFabricInfoV(void*, void*) { return kNvmlNotSupported; }
STANDIN_API int nvmlDeviceGetNvLinkRemoteDeviceType() { return kNvmlNotSupported; }
STANDIN_API int nvmlDeviceGetNvLinkRemotePciInfo_v2() { return kNvmlNotSupported; }
