// NCCL: each process is one rank of a group that answers at once. A collective whose result has the shape of every
// rank's input gives each rank's part this rank's values, so that lengths and counts that are read afterwards make
// sense; large buffers hold no values anyway.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "abi.h"

using namespace standin;

namespace {

constexpr std::size_t kLargestCopy = std::size_t{1} << 20;

struct Communicator {
  int ranks, rank;
};

int make(void** communicator, int ranks, int rank) {
  auto* const its = static_cast<Communicator*>(std::malloc(sizeof(Communicator)));
  *its = {ranks, rank};
  *communicator = its;
  return kSuccess;
}

const Communicator& of(void* communicator) { return *static_cast<Communicator*>(communicator); }

/// ncclDataType_t (nccl.h): bytes of int8, uint8, int32, uint32, int64, uint64, fp16, fp32, fp64, bf16, e4m3, e5m2.
std::size_t bytes_of(int type) {
  constexpr std::size_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return type >= 0 && type < 12 ? kBytes[type] : 0;
}

void give(void* to, const void* from, std::size_t bytes) {
  if (to != from && bytes <= kLargestCopy) std::memmove(to, from, bytes);
}

struct UniqueId {
  char bytes[128];
};

}  // namespace

STANDIN_API int ncclGetVersion(int* version) { return *version = 22900, kSuccess; }
STANDIN_API int ncclGetUniqueId(UniqueId* id) { return std::memset(id, 0, sizeof *id), kSuccess; }
STANDIN_API int ncclCommInitRank(void** communicator, int ranks, UniqueId, int rank) {
  return make(communicator, ranks, rank);
}
STANDIN_API int ncclCommInitRankConfig(void** communicator, int ranks, UniqueId, int rank, void*) {
  return make(communicator, ranks, rank);
}
STANDIN_API int ncclCommInitRankScalable(void** communicator, int ranks, int rank, int, UniqueId*, void*) {
  return make(communicator, ranks, rank);
}
// Which ranks share a colour only the others know: those of other processes are not asked.
STANDIN_API int ncclCommSplit(void*, int, int, void**, void*) { return 5; }
STANDIN_API int ncclCommDestroy(void* communicator) { return std::free(communicator), kSuccess; }
STANDIN_API int ncclCommAbort(void* communicator) { return std::free(communicator), kSuccess; }
STANDIN_API int ncclCommFinalize(void*) { return kSuccess; }
STANDIN_API int ncclCommGetAsyncError(void*, int* error) { return *error = kSuccess, kSuccess; }
STANDIN_API int ncclCommCount(void* communicator, int* ranks) { return *ranks = of(communicator).ranks, kSuccess; }
STANDIN_API int ncclCommUserRank(void* communicator, int* rank) { return *rank = of(communicator).rank, kSuccess; }
STANDIN_API int ncclCommRegister(void*, void*, std::size_t, void** handle) { return *handle = nullptr, kSuccess; }
STANDIN_API int ncclCommDeregister(void*, void*) { return kSuccess; }
STANDIN_API int ncclGroupStart() { return kSuccess; }
STANDIN_API int ncclGroupEnd() { return kSuccess; }
STANDIN_API int ncclRedOpCreatePreMulSum(int* operation, void*, int, int, void*) { return *operation = 0, kSuccess; }
STANDIN_API int ncclRedOpDestroy(int, void*) { return kSuccess; }
STANDIN_API const char* ncclGetErrorString(int error) {
  return error == kSuccess ? "no error" : "not supported by oometer's stand-in device";
}
STANDIN_API const char* ncclGetLastError(void*) { return ""; }

STANDIN_API int ncclAllReduce(const void* from, void* to, std::size_t count, int type, int, void*, void*) {
  return give(to, from, count * bytes_of(type)), kSuccess;
}
STANDIN_API int ncclReduce(const void* from, void* to, std::size_t count, int type, int, int, void*, void*) {
  return give(to, from, count * bytes_of(type)), kSuccess;
}
STANDIN_API int ncclBroadcast(const void* from, void* to, std::size_t count, int type, int, void*, void*) {
  return give(to, from, count * bytes_of(type)), kSuccess;
}
STANDIN_API int ncclBcast(void*, std::size_t, int, int, void*, void*) { return kSuccess; }
STANDIN_API int ncclAllGather(const void* from, void* to, std::size_t count, int type, void* communicator, void*) {
  const std::size_t bytes = count * bytes_of(type);
  for (int rank = 0; rank < of(communicator).ranks; ++rank)
    give(static_cast<char*>(to) + static_cast<std::size_t>(rank) * bytes, from, bytes);
  return kSuccess;
}
STANDIN_API int ncclReduceScatter(const void* from, void* to, std::size_t count, int type, int, void* communicator,
                                  void*) {
  const std::size_t bytes = count * bytes_of(type);
  give(to, static_cast<const char*>(from) + static_cast<std::size_t>(of(communicator).rank) * bytes, bytes);
  return kSuccess;
}
STANDIN_API int ncclAlltoAll(const void* from, void* to, std::size_t count, int type, void* communicator, void*) {
  return give(to, from, count * bytes_of(type) * static_cast<std::size_t>(of(communicator).ranks)), kSuccess;
}
STANDIN_API int ncclSend(const void*, std::size_t, int, int, void*, void*) { return kSuccess; }
STANDIN_API int ncclRecv(void*, std::size_t, int, int, void*, void*) { return kSuccess; }
