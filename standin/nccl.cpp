// NCCL: each process is one rank of a group that answers at once. A collective whose result has the shape of every
// rank's input gives each rank's part this rank's values, so that lengths and counts that are read afterwards make
// sense; large buffers hold no values anyway.
#include <sys/random.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "abi.h"

using namespace standin;

namespace {

constexpr std::size_t kLargestCopy = std::size_t{1} << 20;
constexpr std::size_t kLargestGather = std::size_t{16} << 20;  // all ranks' parts: each page that is written takes room

struct UniqueId {
  std::uint64_t number;
  char rest[120];
};
static_assert(sizeof(UniqueId) == 128);

struct Communicator {
  int ranks, rank;
  std::uint64_t id;  // the same in each of its processes
  int splits = 0;    // how many communicators were made of it
};

int make(void** communicator, int ranks, int rank, std::uint64_t id) {
  *communicator = new Communicator{ranks, rank, id};
  return kSuccess;
}

Communicator& of(void* communicator) { return *static_cast<Communicator*>(communicator); }

int release(void* communicator) {
  delete static_cast<Communicator*>(communicator);
  return kSuccess;
}

/// ncclDataType_t (nccl.h): bytes of int8, uint8, int32, uint32, int64, uint64, fp16, fp32, fp64, bf16, e4m3, e5m2.
std::size_t bytes_of(int type) {
  constexpr std::size_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return type >= 0 && type < 12 ? kBytes[type] : 0;
}

void give(void* to, const void* from, std::size_t bytes) {
  if (to != from && bytes <= kLargestCopy) std::memmove(to, from, bytes);
}

// --- which ranks share a colour only the others know: they say it in files of the run's folder

constexpr int kInternalError = 3, kInvalidUsage = 5, kNoColour = -1;
constexpr int kPatience = 120'000'000, kPause = 2000;  // microseconds

struct Choice {
  int colour, key;
};

std::string file_of_choice(const Communicator& parent, int rank) {
  const char* const folder = std::getenv("OOMETER_RUN");
  return std::string(folder == nullptr ? "/tmp" : folder) + "/split-" + std::to_string(parent.id) + "-" +
         std::to_string(parent.splits) + "-" + std::to_string(rank);
}

bool say(const Communicator& parent, Choice choice) {
  const std::string path = file_of_choice(parent, parent.rank), draft = path + ".new";
  std::FILE* const file = std::fopen(draft.c_str(), "w");
  if (file == nullptr) return false;
  std::fprintf(file, "%d %d", choice.colour, choice.key);
  std::fclose(file);
  return std::rename(draft.c_str(), path.c_str()) == 0;
}

bool hear(const Communicator& parent, int rank, Choice* choice) {
  const std::string path = file_of_choice(parent, rank);
  for (int waited = 0; waited < kPatience; waited += kPause) {
    if (std::FILE* const file = std::fopen(path.c_str(), "r")) {
      const int read = std::fscanf(file, "%d %d", &choice->colour, &choice->key);
      std::fclose(file);
      return read == 2;
    }
    usleep(kPause);
  }
  return false;
}

int split(Communicator& parent, Choice own, void** child) {
  *child = nullptr;
  if (!say(parent, own)) return kInternalError;
  int ranks = 0, rank = 0;
  for (int other = 0; other < parent.ranks; ++other) {
    Choice theirs{};
    if (!hear(parent, other, &theirs)) return kInternalError;
    if (theirs.colour != own.colour) continue;
    ++ranks;
    if (theirs.key < own.key || (theirs.key == own.key && other < parent.rank)) ++rank;
  }
  const std::uint64_t id = (parent.id * 1'000'003 + static_cast<std::uint64_t>(parent.splits)) * 1'000'003 +
                           static_cast<std::uint64_t>(own.colour);
  ++parent.splits;
  return own.colour == kNoColour ? kSuccess : make(child, ranks, rank, id);
}

}  // namespace

STANDIN_API int ncclGetVersion(int* version) { return *version = 22900, kSuccess; }
STANDIN_API int ncclGetUniqueId(UniqueId* id) {
  std::memset(id, 0, sizeof *id);
  return getrandom(&id->number, sizeof id->number, 0) == sizeof id->number ? kSuccess : kInternalError;
}
STANDIN_API int ncclCommInitRank(void** communicator, int ranks, UniqueId id, int rank) {
  return make(communicator, ranks, rank, id.number);
}
STANDIN_API int ncclCommInitRankConfig(void** communicator, int ranks, UniqueId id, int rank, void*) {
  return make(communicator, ranks, rank, id.number);
}
STANDIN_API int ncclCommInitRankScalable(void** communicator, int ranks, int rank, int, UniqueId* ids, void*) {
  return make(communicator, ranks, rank, ids->number);
}
STANDIN_API int ncclCommSplit(void* communicator, int colour, int key, void** child, void*) {
  return communicator == nullptr ? kInvalidUsage : split(of(communicator), {colour, key}, child);
}
STANDIN_API int ncclCommDestroy(void* communicator) { return release(communicator); }
STANDIN_API int ncclCommAbort(void* communicator) { return release(communicator); }
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
  const auto ranks = static_cast<std::size_t>(of(communicator).ranks);
  for (std::size_t rank = 0; rank < ranks && bytes * ranks <= kLargestGather; ++rank)
    give(static_cast<char*>(to) + rank * bytes, from, bytes);
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
