// mmap and munmap, as everybody in the process calls them: some of what is mapped is remembered.
#include "holes.h"

#include <limits.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>
#include <string>

#include "abi.h"

namespace standin {

namespace {

constexpr std::size_t kSmallest = std::size_t{1} << 20;  // bytes; of smaller files it does not matter

std::mutex guard;
std::atomic<int> known = 0;

/// By address, with their bytes. Others' constructors, which may run before ours, call mmap, too.
std::map<std::uintptr_t, std::size_t>& holes() {
  static auto& table = *new std::map<std::uintptr_t, std::size_t>;
  return table;
}

/// Whether an open file is such weights, by its name.
bool is_hole(int file) {
  const char* const folder = std::getenv("OOMETER_RUN");
  if (file < 0 || folder == nullptr) return false;
  char name[PATH_MAX];
  const ssize_t length = readlink(("/proc/self/fd/" + std::to_string(file)).c_str(), name, sizeof name);
  const std::string begin = std::string(folder) + "/weights-";
  return length > 0 && std::string(name, static_cast<std::size_t>(length)).rfind(begin, 0) == 0;
}

void* map(void* where, std::size_t bytes, int protection, int flags, int file, off_t offset) {
  void* const found = reinterpret_cast<void*>(syscall(SYS_mmap, where, bytes, protection, flags, file, offset));
  if (found == MAP_FAILED || bytes < kSmallest || !is_hole(file)) return found;
  const std::lock_guard<std::mutex> lock(guard);
  holes()[reinterpret_cast<std::uintptr_t>(found)] = bytes;
  known = static_cast<int>(holes().size());
  return found;
}

}  // namespace

bool in_hole(const void* pointer) {
  if (known == 0) return false;
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  const std::lock_guard<std::mutex> lock(guard);
  const auto after = holes().upper_bound(address);
  return after != holes().begin() && address < std::prev(after)->first + std::prev(after)->second;
}

}  // namespace standin

STANDIN_API void* mmap(void* where, std::size_t bytes, int protection, int flags, int file, off_t offset) noexcept {
  return standin::map(where, bytes, protection, flags, file, offset);
}
STANDIN_API void* mmap64(void* where, std::size_t bytes, int protection, int flags, int file, off64_t offset) noexcept {
  return standin::map(where, bytes, protection, flags, file, offset);
}
STANDIN_API int munmap(void* pointer, std::size_t bytes) noexcept {
  if (standin::known > 0) {
    const std::lock_guard<std::mutex> lock(standin::guard);
    standin::holes().erase(reinterpret_cast<std::uintptr_t>(pointer));
    standin::known = static_cast<int>(standin::holes().size());
  }
  return static_cast<int>(syscall(SYS_munmap, pointer, bytes));
}
