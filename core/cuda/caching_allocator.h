#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

/// PyTorch's CUDA caching allocator, block by block: c10/cuda/CUDACachingAllocator.cpp, DeviceCachingAllocator, of
/// torch 2.0-2.15 with its default settings (no roundup_power2_divisions, no max_split_size, no garbage collection,
/// the default memory pool only) and, if asked, expandable segments. The rules are the same in all these versions but
/// for the tie among equally large free blocks: torch 2.15 takes the oldest segment's, older ones that of the lowest
/// address. The driver's choice of addresses is not knowable, so each new segment is placed above all before it: then
/// both rules choose the same block.
namespace oometer {

inline constexpr std::int64_t kMiB = std::int64_t{1} << 20;

struct AllocatorOptions {
  /// What the device gives to this allocator; cudaMalloc fails beyond it.
  std::int64_t usable_bytes = std::numeric_limits<std::int64_t>::max();
  bool expandable_segments = false;  ///< PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
};

/// torch.cuda.memory_stats(): what is in use now (or was at most).
struct MemoryStats {
  std::int64_t allocated = 0;  ///< whole blocks, until their free is asked for: memory_allocated()
  std::int64_t reserved = 0;   ///< what the device gave: memory_reserved()
  std::int64_t requested = 0;  ///< what was asked for, before rounding, until the free is completed
  std::int64_t active = 0;     ///< whole blocks, until their free is completed
};

class CachingAllocator {
 public:
  using BlockId = std::uint32_t;
  static constexpr BlockId kNone = std::numeric_limits<BlockId>::max();

  /// A piece of a segment; `prev` and `next` are its neighbours there.
  struct Block {
    std::uint64_t address = 0;
    std::int64_t size = 0;       ///< 0: this record is not in use
    std::int64_t requested = 0;  ///< of an allocated block
    BlockId prev = kNone;
    BlockId next = kNone;
    std::uint8_t stream = 0;
    bool small = false;        ///< of the small pool
    bool allocated = false;    ///< until its free is completed
    bool freed = false;        ///< its free was asked for, and waits for other streams
    bool mapped = true;        ///< false: address space of an expandable segment without memory
    bool used_elsewhere = false;  ///< record_stream: another stream uses it too
  };

  /// What passed between allocator and driver, as a memory snapshot tells it.
  struct SegmentEvent {
    enum class Kind : std::uint8_t { alloc, free, map, unmap } kind;
    std::uint8_t stream;
    std::uint64_t address;
    std::int64_t size;
  };

  explicit CachingAllocator(const AllocatorOptions& options);

  /// kNone when the device has no memory left, even after the cached segments went back to it.
  BlockId malloc(std::int64_t bytes, std::uint8_t stream);
  void free(BlockId block);
  /// Tensor.record_stream: the free will wait for what `stream` has been given to do. No event's time is simulated:
  /// each is over when the next malloc looks.
  void record_stream(BlockId block, std::uint8_t stream);
  /// torch.cuda.empty_cache()
  void empty_cache();

  const MemoryStats& stats() const { return stats_; }
  const Block& block(BlockId id) const { return blocks_[id]; }
  const std::vector<Block>& blocks() const { return blocks_; }
  const std::vector<SegmentEvent>& segment_events() const { return segment_events_; }
  /// num_alloc_retries: how often the cached segments had to go before the device could give more.
  int retries() const { return retries_; }

  /// Each request takes a multiple of this. kMinBlockSize
  static constexpr std::int64_t kMinBlock = 512;
  /// The largest block of the small pool. kSmallSize
  static constexpr std::int64_t kSmallSize = kMiB;
  /// A segment, or a page, of the small pool. kSmallBuffer
  static constexpr std::int64_t kSmallSegment = 2 * kMiB;
  /// A segment for large requests that are below kMinLargeAlloc, or a page. kLargeBuffer
  static constexpr std::int64_t kLargeSegment = 20 * kMiB;
  /// Requests from here on get a segment of their own size. kMinLargeAlloc
  static constexpr std::int64_t kMinLargeAlloc = 10 * kMiB;
  /// ... rounded up to this. kRoundLarge
  static constexpr std::int64_t kRoundLarge = 2 * kMiB;

  static std::int64_t round_size(std::int64_t bytes);
  /// The segment that a (rounded) request asks the device for.
  static std::int64_t segment_size(std::int64_t size);

 private:
  /// Free blocks of one pool and stream, by size and then address: BlockComparatorSize.
  struct FreeBlock {
    std::int64_t size;
    BlockId block;
  };
  struct FreeList {
    std::vector<FreeBlock> mapped;
    std::vector<BlockId> unmapped;  ///< by address
  };

  FreeList& free_list(const Block& block) { return pools_[block.small][block.stream]; }
  std::vector<FreeBlock>::iterator find(FreeList& list, const Block& block);
  void insert(BlockId id);
  void erase(BlockId id);
  BlockId new_block(const Block& block);
  BlockId split(BlockId id, std::int64_t size);
  bool merge(BlockId id, BlockId other);
  void coalesce(BlockId id);
  void free_block(BlockId id);
  void process_events();

  BlockId best_fit(FreeList& list, std::int64_t size);
  BlockId grow(std::int64_t size, bool small, std::uint8_t stream);
  bool take(std::int64_t size);
  BlockId new_segment(std::int64_t size, bool small, std::uint8_t stream, bool mapped);
  BlockId expand(std::int64_t size, bool small, std::uint8_t stream);
  BlockId find_expandable(std::int64_t size, bool small, std::uint8_t stream);
  BlockId map(BlockId id, std::int64_t size);
  void unmap(BlockId id);
  void release_segment(BlockId id);
  void release_cached_blocks();

  std::int64_t usable_bytes_;
  bool expandable_;
  MemoryStats stats_;
  int retries_ = 0;
  std::uint64_t next_address_;
  std::vector<Block> blocks_;
  std::vector<BlockId> spare_blocks_;
  std::vector<BlockId> waiting_;  ///< frees that wait for other streams
  std::array<std::vector<FreeList>, 2> pools_;
  std::vector<SegmentEvent> segment_events_;
};

}  // namespace oometer
