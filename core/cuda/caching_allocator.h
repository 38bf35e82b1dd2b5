#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

/// PyTorch's CUDA caching allocator, block by block: c10/cuda/CUDACachingAllocator.cpp, DeviceCachingAllocator, of
/// torch 2.0-2.15 with its default settings (no roundup_power2_divisions, no max_split_size, no garbage collection,
/// the default memory pool only) and, if asked, expandable segments. The rules are the same in all these versions but
/// for the tie among equally large free blocks: torch 2.15 takes the oldest segment's, older ones that of the lowest
/// address. A segment's address is chosen so that the lowest one is the one to take: each new segment is above all
/// before it for torch 2.15, below them for older ones, as the driver places them (tests/measured/fitcheck.jsonl:
/// twenty runs without quantisation on a T4, whose reserved bytes are so met to 0.5 % in the mean, and otherwise
/// to 2.1).
namespace oometer {

inline constexpr std::int64_t kMiB = std::int64_t{1} << 20;

struct AllocatorOptions {
  /// What the device gives to this allocator; cudaMalloc fails beyond it.
  std::int64_t usable_bytes = std::numeric_limits<std::int64_t>::max();
  bool expandable_segments = false;  ///< PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
  bool newest_of_equals = false;  ///< among equally large free blocks the newest segment's is taken, not the oldest's
};

/// torch.cuda.memory_stats(): what is in use now (or was at most).
struct MemoryStats {
  std::int64_t allocated = 0;  ///< whole blocks, until their free is asked for: memory_allocated()
  std::int64_t reserved = 0;   ///< what the device gave: memory_reserved()
};

class CachingAllocator {
  class FreeList;

 public:
  enum class State : std::uint8_t {
    free,
    allocated,
    waiting,   ///< its free was asked for, and waits for other streams
    unmapped,  ///< address space of an expandable segment, without memory
  };

  /// What puts a free block in its place: a size, an address, and the neighbours in a list of blocks in that order. Not
  /// cleared by itself: each list begins with more than a thousand.
  struct Links {
    std::int64_t size;
    std::uint64_t address;
    Links* smaller;
    Links* larger;
  };

  /// A piece of a segment. One cache line. Size 0: the record is not in use.
  struct alignas(64) Block : Links {
    Block() : Links{} {}

    Block* prev = nullptr;  ///< neighbours in the segment; at its ends a wall, which is never free
    Block* next = nullptr;
    FreeList* list = nullptr;  ///< of its pool and stream: where it is while it is free
    std::uint32_t owner = 0;   ///< of an allocated block: what its malloc was told
    std::uint16_t bin = 0;     ///< of a free block
    State state = State::free;
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
  /// What `other` would be on a device of `usable_bytes` that could not give it the segment of `refused`, its newest
  /// block: without that, and with the cached segments back. No free may wait. Without expandable segments.
  CachingAllocator(const CachingAllocator& other, std::int64_t usable_bytes, const Block* refused);
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  /// Null when the device has no memory left, even after the cached segments went back to it. `owner`: by what the
  /// caller knows the block.
  Block* malloc(std::int64_t bytes, std::uint8_t stream, std::uint32_t owner = 0);
  void free(Block* block);
  /// What malloc and free at once would do: nothing, where a cached block serves (it is split and made whole again).
  /// The size of the block; 0 where none serves, and malloc has to be called.
  std::int64_t transient_block(std::int64_t bytes, std::uint8_t stream);
  /// Tensor.record_stream: the free will wait for what `stream` has been given to do. No event's time is simulated:
  /// each is over when the next malloc looks.
  void record_stream(Block* block, std::uint8_t stream);
  /// torch.cuda.empty_cache()
  void empty_cache();

  const MemoryStats& stats() const { return stats_; }
  /// All blocks, in no order.
  template <class Visit>
  void for_each_block(const Visit& visit) const {
    for (const std::unique_ptr<Block[]>& chunk : chunks_) {
      const std::size_t used = chunk == chunks_.back() ? chunk_used_ : kChunk;
      for (Block& block : std::span(chunk.get(), used))
        if (block.size > 0) visit(block);
    }
  }
  bool starts_segment(const Block& block) const { return block.prev == &wall_; }
  std::uint8_t stream_of(const Block& block) const;
  bool is_small(const Block& block) const;  ///< of the small pool
  const std::vector<SegmentEvent>& segment_events() const { return segment_events_; }
  /// num_alloc_retries: how often the cached segments had to go before the device could give more.
  int retries() const { return retries_; }

  /// Each request takes a multiple of this: kMinBlockSize.
  static constexpr std::int64_t kMinBlock = 512;
  /// The largest block of the small pool: kSmallSize.
  static constexpr std::int64_t kSmallSize = kMiB;
  /// A segment, or a page of an expandable one, of the small pool: kSmallBuffer.
  static constexpr std::int64_t kSmallSegment = 2 * kMiB;
  /// The same of the large pool, for requests below kMinLargeAlloc: kLargeBuffer.
  static constexpr std::int64_t kLargeSegment = 20 * kMiB;
  /// Requests from here on get a segment of their own size, a multiple of kRoundLarge.
  static constexpr std::int64_t kMinLargeAlloc = 10 * kMiB;
  static constexpr std::int64_t kRoundLarge = 2 * kMiB;

  static std::int64_t round_size(std::int64_t bytes) {
    return bytes < kMinBlock ? kMinBlock : (bytes + kMinBlock - 1) & ~(kMinBlock - 1);
  }
  /// The segment that a (rounded) request asks the device for.
  static std::int64_t segment_size(std::int64_t size);

 private:
  /// Free blocks of one pool and stream, in the order of BlockComparatorSize: by size, then by address. Sizes are
  /// binned (16 bins between powers of two); each bin is a sorted ring of blocks, of which few are ever passed on the
  /// way. What this costs is mispredicted branches, so there is an end to each ring that compares as larger than any
  /// block.
  class FreeList {
   public:
    /// `min_rest`: a block is split where at least so much is left of it.
    FreeList(bool small, std::uint8_t stream, std::int64_t min_rest);
    FreeList(const FreeList&) = delete;
    FreeList& operator=(const FreeList&) = delete;

    void insert(Block* block);
    void erase(Block* block);
    /// The smallest block that holds `size`, the one of the lowest address among equals; null if there is none.
    Block* lower_bound(std::int64_t size) const;
    Block* after(const Block* block) const;
    Block* first() const { return first_from(0); }

    const bool small;
    const std::uint8_t stream;
    const std::int64_t min_rest;
    std::vector<Block*> unmapped;  ///< by address

   private:
    static constexpr std::uint32_t kBinsPerOctave = 16;
    static constexpr std::uint32_t kBins = 52 * kBinsPerOctave;  // from 512 to beyond 2^60 bytes

    static std::uint32_t bin_of(std::int64_t size);
    Block* first_from(std::uint32_t bin) const;

    std::array<Links, kBins> bins_;
    std::array<std::uint64_t, kBins / 64 + 1> used_{};  // a bit for each bin that is not empty
    std::uint64_t used_words_ = 0;                      // a bit for each word of these that is not zero
  };

  static std::size_t list_index(bool small, std::uint8_t stream) { return std::size_t{stream} * 2 + small; }
  void add_stream(std::uint8_t stream);
  void insert_unmapped(Block* block);
  void erase_unmapped(Block* block);
  void insert(Block* block);
  void erase(Block* block);
  void resize(Block* block, std::uint64_t address, std::int64_t size);
  Block* new_block();
  void drop(Block* block);
  Block* split(Block* block, std::int64_t size);
  Block* take_front(Block* block, std::int64_t size);
  void coalesce(Block* block);
  void free_block(Block* block);
  void process_events();

  static bool splits(const Block& block, std::int64_t size);
  Block* best_fit(const FreeList& free_blocks, std::int64_t size);
  Block* grow(FreeList& list, std::int64_t size);
  bool take(std::int64_t size);
  Block* new_segment(FreeList& list, std::int64_t size, State state);
  Block* expand(FreeList& list, std::int64_t size);
  Block* find_expandable(FreeList& list, std::int64_t size);
  Block* map(Block* block, std::int64_t size);
  void unmap(Block* block);
  bool is_segment(const Block* block) const { return block->prev == &wall_ && block->next == &wall_; }
  void release_segment(Block* block);
  void release_cached_blocks();

  static constexpr std::size_t kChunk = 256;

  std::int64_t usable_bytes_;
  bool expandable_;
  bool descending_;  // the addresses of segments
  MemoryStats stats_;
  int retries_ = 0;
  std::uint64_t next_address_;
  std::vector<std::unique_ptr<Block[]>> chunks_;
  std::size_t chunk_used_ = kChunk;               // of the last chunk
  Block* spare_ = nullptr;                        // records not in use, linked by `next`
  std::vector<Block*> waiting_;                   // frees that wait for other streams
  std::vector<std::unique_ptr<FreeList>> lists_;  // of stream s: 2s large, 2s + 1 small
  Block wall_;                                    // beside the ends of every segment
  std::vector<SegmentEvent> segment_events_;
};

}  // namespace oometer
