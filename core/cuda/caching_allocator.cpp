#include "cuda/caching_allocator.h"

#include <algorithm>
#include <cstddef>

namespace oometer {

namespace {

/// More than any device has, and few enough that no sum of sizes below overflows.
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 60;
/// Address space of an expandable segment. PyTorch reserves 9/8 of the device's memory; here there may be no limit.
constexpr std::int64_t kAddressSpace = std::int64_t{1} << 46;
/// Where the first segment lies: any multiple of both page sizes, so that pages are aligned.
constexpr std::uint64_t kFirstAddress = std::uint64_t{CachingAllocator::kLargeSegment} << 16;

constexpr std::int64_t round_up(std::int64_t bytes, std::int64_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

constexpr std::int64_t page_size(bool small) {
  return small ? CachingAllocator::kSmallSegment : CachingAllocator::kLargeSegment;
}

}  // namespace

CachingAllocator::CachingAllocator(const AllocatorOptions& options)
    : usable_bytes_(std::min(options.usable_bytes, kMaxBytes)),
      expandable_(options.expandable_segments),
      next_address_(kFirstAddress) {
  blocks_.reserve(4096);  // enough for most models: a block record is reused when its block is merged into another
}

std::int64_t CachingAllocator::round_size(std::int64_t bytes) {
  return bytes < kMinBlock ? kMinBlock : (bytes + kMinBlock - 1) & ~(kMinBlock - 1);
}

// get_allocation_size
std::int64_t CachingAllocator::segment_size(std::int64_t size) {
  if (size <= kSmallSize) return kSmallSegment;
  if (size < kMinLargeAlloc) return kLargeSegment;
  return round_up(size, kRoundLarge);
}

CachingAllocator::BlockId CachingAllocator::malloc(std::int64_t bytes, std::uint8_t stream) {
  process_events();
  const std::int64_t size = round_size(std::min(bytes, kMaxBytes + 1));
  const bool small = size <= kSmallSize;
  std::vector<FreeList>& lists = pools_[small];
  if (stream >= lists.size()) lists.resize(std::size_t{stream} + 1);

  BlockId id = best_fit(lists[stream], size);
  if (id == kNone) id = grow(size, small, stream);
  if (id == kNone) {
    release_cached_blocks();
    ++retries_;
    id = grow(size, small, stream);
    if (id == kNone) return kNone;
  }

  // should_split
  const std::int64_t rest = blocks_[id].size - size;
  if (small || expandable_ ? rest >= kMinBlock : rest > kSmallSize) insert(split(id, size));

  Block& block = blocks_[id];
  block.allocated = true;
  block.requested = bytes;
  stats_.allocated += block.size;
  stats_.active += block.size;
  stats_.requested += bytes;
  return id;
}

void CachingAllocator::free(BlockId id) {
  Block& block = blocks_[id];
  stats_.allocated -= block.size;
  if (block.used_elsewhere) {
    block.freed = true;
    waiting_.push_back(id);
  } else {
    free_block(id);
  }
}

void CachingAllocator::record_stream(BlockId id, std::uint8_t stream) {
  Block& block = blocks_[id];
  if (stream != block.stream) block.used_elsewhere = true;
}

void CachingAllocator::empty_cache() {
  process_events();
  release_cached_blocks();
}

// --- free lists -------------------------------------------------------------------------------------------------------

std::vector<CachingAllocator::FreeBlock>::iterator CachingAllocator::find(FreeList& list, const Block& block) {
  return std::lower_bound(list.mapped.begin(), list.mapped.end(), block, [this](const FreeBlock& a, const Block& b) {
    return a.size != b.size ? a.size < b.size : blocks_[a.block].address < b.address;
  });
}

void CachingAllocator::insert(BlockId id) {
  const Block& block = blocks_[id];
  FreeList& list = free_list(block);
  if (block.mapped) {
    list.mapped.insert(find(list, block), {block.size, id});
  } else {
    list.unmapped.insert(std::lower_bound(list.unmapped.begin(), list.unmapped.end(), id,
                                          [this](BlockId a, BlockId b) { return blocks_[a].address < blocks_[b].address; }),
                         id);
  }
}

void CachingAllocator::erase(BlockId id) {
  const Block& block = blocks_[id];
  FreeList& list = free_list(block);
  if (block.mapped) {
    list.mapped.erase(find(list, block));
  } else {
    list.unmapped.erase(std::find(list.unmapped.begin(), list.unmapped.end(), id));
  }
}

// --- blocks -----------------------------------------------------------------------------------------------------------

CachingAllocator::BlockId CachingAllocator::new_block(const Block& block) {
  if (spare_blocks_.empty()) {
    blocks_.push_back(block);
    return static_cast<BlockId>(blocks_.size() - 1);
  }
  const BlockId id = spare_blocks_.back();
  spare_blocks_.pop_back();
  blocks_[id] = block;
  return id;
}

/// Cuts a block that is in no list; it keeps the front, the result is the rest.
CachingAllocator::BlockId CachingAllocator::split(BlockId id, std::int64_t size) {
  Block tail = blocks_[id];
  tail.address += static_cast<std::uint64_t>(size);
  tail.size -= size;
  tail.prev = id;
  const BlockId rest = new_block(tail);
  if (tail.next != kNone) blocks_[tail.next].prev = rest;
  blocks_[id].size = size;
  blocks_[id].next = rest;
  return rest;
}

/// Adds a free neighbour of the same kind to a block that is in no list. try_merge_blocks
bool CachingAllocator::merge(BlockId id, BlockId other) {
  if (other == kNone || blocks_[other].allocated || blocks_[other].mapped != blocks_[id].mapped) return false;
  erase(other);
  Block& block = blocks_[id];
  Block& gone = blocks_[other];
  if (block.prev == other) {
    block.address = gone.address;
    block.prev = gone.prev;
    if (block.prev != kNone) blocks_[block.prev].next = id;
  } else {
    block.next = gone.next;
    if (block.next != kNone) blocks_[block.next].prev = id;
  }
  block.size += gone.size;
  gone.size = 0;
  spare_blocks_.push_back(other);
  return true;
}

/// Puts a block that has become free, mapped or unmapped in its list, as one with its free neighbours.
void CachingAllocator::coalesce(BlockId id) {
  merge(id, blocks_[id].prev);
  merge(id, blocks_[id].next);
  insert(id);
}

void CachingAllocator::free_block(BlockId id) {
  Block& block = blocks_[id];
  block.allocated = block.freed = block.used_elsewhere = false;
  stats_.active -= block.size;
  stats_.requested -= block.requested;
  coalesce(id);
}

void CachingAllocator::process_events() {
  for (const BlockId id : waiting_) free_block(id);
  waiting_.clear();
}

/// get_free_block: takes the smallest free block that is large enough out of its list.
CachingAllocator::BlockId CachingAllocator::best_fit(FreeList& list, std::int64_t size) {
  const auto end = list.mapped.end();
  auto best = std::lower_bound(list.mapped.begin(), end, size,
                               [](const FreeBlock& a, std::int64_t wanted) { return a.size < wanted; });
  if (best == end) return kNone;
  if (expandable_) {
    // A block counts as large as it could grow, so that the one at the end of the mapped memory is used last.
    const auto expandable_size = [this](const FreeBlock& free) {
      const BlockId next = blocks_[free.block].next;
      return free.size + (next != kNone && !blocks_[next].mapped ? blocks_[next].size : 0);
    };
    for (auto next = best + 1; next != end && expandable_size(*next) < expandable_size(*best); ++next) best = next;
  }
  const BlockId id = best->block;
  list.mapped.erase(best);
  return id;
}

// --- device memory ----------------------------------------------------------------------------------------------------

bool CachingAllocator::take(std::int64_t size) {
  if (size > usable_bytes_ - stats_.reserved) return false;
  stats_.reserved += size;
  return true;
}

/// A new segment's one block, in no list.
CachingAllocator::BlockId CachingAllocator::new_segment(std::int64_t size, bool small, std::uint8_t stream, bool mapped) {
  Block block;
  block.address = next_address_;
  block.size = size;
  block.stream = stream;
  block.small = small;
  block.mapped = mapped;
  next_address_ += static_cast<std::uint64_t>(size);
  return new_block(block);
}

/// alloc_block: a block of at least `size` from the device, in no list; kNone if it has not that much.
CachingAllocator::BlockId CachingAllocator::grow(std::int64_t size, bool small, std::uint8_t stream) {
  if (expandable_) return expand(size, small, stream);
  const std::int64_t bytes = segment_size(size);
  if (!take(bytes)) return kNone;
  const BlockId id = new_segment(bytes, small, stream, true);
  segment_events_.push_back({SegmentEvent::Kind::alloc, stream, blocks_[id].address, bytes});
  return id;
}

/// try_allocate_expandable_block
CachingAllocator::BlockId CachingAllocator::expand(std::int64_t size, bool small, std::uint8_t stream) {
  BlockId id = find_expandable(size, small, stream);
  if (!blocks_[id].mapped) id = map(id, std::min(blocks_[id].size, size));
  while (id != kNone && blocks_[id].size < size) {
    const BlockId next = blocks_[id].next;
    id = map(next, std::min(size - blocks_[id].size, blocks_[next].size));
  }
  if (id != kNone) erase(id);
  return id;
}

/// find_expandable_block: the lowest run of free and unmapped blocks that has room, else a new segment.
CachingAllocator::BlockId CachingAllocator::find_expandable(std::int64_t size, bool small, std::uint8_t stream) {
  for (const BlockId unmapped : pools_[small][stream].unmapped) {
    const BlockId before = blocks_[unmapped].prev;
    const BlockId first = before != kNone && !blocks_[before].allocated ? before : unmapped;
    std::int64_t room = 0;
    for (BlockId id = first; room < size && id != kNone && !blocks_[id].allocated; id = blocks_[id].next) {
      room += blocks_[id].size;
    }
    if (room >= size) return first;
  }
  const std::int64_t space = round_up(std::max(size, kAddressSpace), kLargeSegment);  // whole pages of either size
  const BlockId id = new_segment(space, small, stream, false);
  insert(id);
  return id;
}

/// map_block: gives memory to the pages of an unmapped block's first `size` bytes. The free block that holds them, in
/// its list; kNone if the device has not that much.
CachingAllocator::BlockId CachingAllocator::map(BlockId id, std::int64_t size) {
  const std::int64_t bytes = round_up(size, page_size(blocks_[id].small));
  if (!take(bytes)) return kNone;
  erase(id);
  if (bytes < blocks_[id].size) insert(split(id, bytes));
  segment_events_.push_back({SegmentEvent::Kind::map, blocks_[id].stream, blocks_[id].address, bytes});
  blocks_[id].mapped = true;
  coalesce(id);
  return id;
}

/// unmap_block: gives back the pages that lie whole inside a free block.
void CachingAllocator::unmap(BlockId id) {
  const auto page = static_cast<std::uint64_t>(page_size(blocks_[id].small));
  const std::uint64_t begin = blocks_[id].address;
  const std::uint64_t end = begin + static_cast<std::uint64_t>(blocks_[id].size);
  const std::uint64_t first = (begin + page - 1) / page * page;
  const std::uint64_t last = end / page * page;
  if (first >= last) return;
  erase(id);
  if (first > begin) {
    const BlockId front = id;
    id = split(front, static_cast<std::int64_t>(first - begin));
    insert(front);
  }
  if (last < end) insert(split(id, static_cast<std::int64_t>(last - first)));
  const std::int64_t bytes = blocks_[id].size;
  stats_.reserved -= bytes;
  segment_events_.push_back({SegmentEvent::Kind::unmap, blocks_[id].stream, first, bytes});
  blocks_[id].mapped = false;
  coalesce(id);
}

void CachingAllocator::release_segment(BlockId id) {
  Block& block = blocks_[id];
  stats_.reserved -= block.size;
  segment_events_.push_back({SegmentEvent::Kind::free, block.stream, block.address, block.size});
  block.size = 0;
  spare_blocks_.push_back(id);
}

/// Gives back every segment that is free as a whole; of expandable segments, every page.
void CachingAllocator::release_cached_blocks() {
  for (std::vector<FreeList>& lists : pools_) {
    for (FreeList& list : lists) {
      if (expandable_) {
        std::vector<FreeBlock> cached;
        cached.swap(list.mapped);
        list.mapped = cached;  // unmapping changes the list
        for (const FreeBlock& free : cached) unmap(free.block);
      } else {
        const auto whole = [this](const FreeBlock& free) {
          return blocks_[free.block].prev == kNone && blocks_[free.block].next == kNone;
        };
        for (const FreeBlock& free : list.mapped) {
          if (whole(free)) release_segment(free.block);
        }
        list.mapped.erase(std::remove_if(list.mapped.begin(), list.mapped.end(), whole), list.mapped.end());
      }
    }
  }
}

}  // namespace oometer
