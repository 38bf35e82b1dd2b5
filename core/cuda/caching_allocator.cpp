#include "cuda/caching_allocator.h"

#include <algorithm>
#include <bit>

#include "rounding.h"

namespace oometer {

namespace {

/// More than any device has, and few enough that no sum of sizes below overflows.
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 60;
/// Address space of an expandable segment. PyTorch reserves 9/8 of the device's memory; here there may be no limit.
constexpr std::int64_t kAddressSpace = std::int64_t{1} << 46;
/// Where the first segment lies: any multiple of both page sizes, so that pages are aligned.
constexpr std::uint64_t kFirstAddress = std::uint64_t{CachingAllocator::kLargeSegment} << 16;
/// Where an address space of 47 bits ends, as x86-64 gives a process; segments beyond 128 TiB would go on at its top.
constexpr std::uint64_t kTopAddress = std::uint64_t{1} << 47;

constexpr std::int64_t page_size(bool small) {
  return small ? CachingAllocator::kSmallSegment : CachingAllocator::kLargeSegment;
}

bool lower_address(const CachingAllocator::Block* a, const CachingAllocator::Block* b) {
  return a->address < b->address;
}

/// Size and address as one number, so that comparing them is one branch.
__extension__ typedef unsigned __int128 Key;

Key key(const CachingAllocator::Links& block) {
  return Key{static_cast<std::uint64_t>(block.size)} << 64 | block.address;
}

bool smaller(const CachingAllocator::Links& a, const CachingAllocator::Links& b) { return key(a) < key(b); }

}  // namespace

CachingAllocator::CachingAllocator(const AllocatorOptions& options)
    : usable_bytes_(std::min(options.usable_bytes, kMaxBytes)),
      expandable_(options.expandable_segments),
      descending_(options.newest_of_equals && !options.expandable_segments),
      next_address_(descending_ ? kTopAddress : kFirstAddress) {
  wall_.state = State::allocated;
  add_stream(0);
}

CachingAllocator::CachingAllocator(const CachingAllocator& other, std::int64_t usable_bytes, const Block* refused)
    : CachingAllocator({usable_bytes, false, other.descending_}) {
  next_address_ = other.next_address_;
  add_stream(static_cast<std::uint8_t>(other.lists_.size() / 2 - 1));
  other.for_each_block([&](const Block& first) {
    if (!other.starts_segment(first) || &first == refused || (first.state == State::free && other.is_segment(&first)))
      return;
    FreeList& list = *lists_[list_index(first.list->small, first.list->stream)];
    Block* prev = &wall_;
    for (const Block* theirs = &first; theirs != &other.wall_; theirs = theirs->next) {
      Block* block = new_block();
      *block = *theirs;
      block->list = &list;
      block->prev = prev;
      block->next = &wall_;
      if (prev != &wall_) prev->next = block;
      if (block->state == State::free) {
        list.insert(block);
      } else {
        stats_.allocated += block->size;
      }
      stats_.reserved += block->size;
      prev = block;
    }
  });
}

// get_allocation_size
std::int64_t CachingAllocator::segment_size(std::int64_t size) {
  if (size <= kSmallSize) return kSmallSegment;
  if (size < kMinLargeAlloc) return kLargeSegment;
  return round_up(size, kRoundLarge);
}

// should_split
inline bool CachingAllocator::splits(const Block& block, std::int64_t size) {
  return block.size - size >= block.list->min_rest;
}

CachingAllocator::Block* CachingAllocator::malloc(std::int64_t bytes, std::uint8_t stream, std::uint32_t owner) {
  if (!waiting_.empty()) process_events();
  const std::int64_t size = round_size(std::min(bytes, kMaxBytes + 1));
  const bool small = size <= kSmallSize;
  if (list_index(small, stream) >= lists_.size()) add_stream(stream);
  FreeList& free_blocks = *lists_[list_index(small, stream)];

  Block* block = best_fit(free_blocks, size);
  if (block == nullptr) block = grow(free_blocks, size);
  if (block == nullptr) {
    release_cached_blocks();
    ++retries_;
    block = grow(free_blocks, size);
    if (block == nullptr) return nullptr;
  }

  if (splits(*block, size)) {
    block = split(block, size);
  } else {
    free_blocks.erase(block);
  }

  block->state = State::allocated;
  block->owner = owner;
  stats_.allocated += block->size;
  return block;
}

std::int64_t CachingAllocator::transient_block(std::int64_t bytes, std::uint8_t stream) {
  if (!waiting_.empty()) process_events();
  const std::int64_t size = round_size(std::min(bytes, kMaxBytes + 1));
  const bool small = size <= kSmallSize;
  if (list_index(small, stream) >= lists_.size()) return 0;
  const Block* block = best_fit(*lists_[list_index(small, stream)], size);
  if (block == nullptr) return 0;
  return splits(*block, size) ? size : block->size;
}

void CachingAllocator::free(Block* block) {
  stats_.allocated -= block->size;
  if (block->used_elsewhere) {
    block->state = State::waiting;
    waiting_.push_back(block);
  } else {
    free_block(block);
  }
}

void CachingAllocator::record_stream(Block* block, std::uint8_t stream) {
  if (stream != block->list->stream) block->used_elsewhere = true;
}

void CachingAllocator::empty_cache() {
  process_events();
  release_cached_blocks();
}

std::uint8_t CachingAllocator::stream_of(const Block& block) const { return block.list->stream; }

bool CachingAllocator::is_small(const Block& block) const { return block.list->small; }

// --- free lists
// -------------------------------------------------------------------------------------------------------

CachingAllocator::FreeList::FreeList(bool small_, std::uint8_t stream_, std::int64_t min_rest_)
    : small(small_), stream(stream_), min_rest(min_rest_) {
  for (Links& end : bins_) end = {std::numeric_limits<std::int64_t>::max(), 0, &end, &end};
}

/// Where the highest bit is, and the four behind it.
inline std::uint32_t CachingAllocator::FreeList::bin_of(std::int64_t size) {
  const auto bytes = static_cast<std::uint64_t>(size);
  const auto width = static_cast<std::uint32_t>(std::bit_width(bytes | kMinBlock));
  constexpr auto kSmallest = static_cast<std::uint32_t>(std::bit_width(static_cast<std::uint64_t>(kMinBlock)));
  return (width - kSmallest) * kBinsPerOctave + static_cast<std::uint32_t>(bytes >> (width - 5)) - kBinsPerOctave;
}

inline CachingAllocator::Block* CachingAllocator::FreeList::first_from(std::uint32_t bin) const {
  std::size_t word = bin / 64;
  std::uint64_t bits = used_[word] >> (bin % 64) << (bin % 64);
  if (bits == 0) {
    const std::uint64_t words = used_words_ & (~std::uint64_t{1} << word);
    if (words == 0) return nullptr;
    word = static_cast<std::size_t>(std::countr_zero(words));
    bits = used_[word];
  }
  return static_cast<Block*>(bins_[word * 64 + static_cast<std::size_t>(std::countr_zero(bits))].larger);
}

inline CachingAllocator::Block* CachingAllocator::FreeList::lower_bound(std::int64_t size) const {
  const std::uint32_t bin = bin_of(size);
  const Links* end = &bins_[bin];
  Links* block = end->larger;
  while (block->size < size) block = block->larger;
  return block != end ? static_cast<Block*>(block) : first_from(bin + 1);
}

inline CachingAllocator::Block* CachingAllocator::FreeList::after(const Block* block) const {
  const std::uint32_t bin = block->bin;
  return block->larger != &bins_[bin] ? static_cast<Block*>(block->larger) : first_from(bin + 1);
}

inline void CachingAllocator::FreeList::insert(Block* block) {
  const std::uint32_t bin = bin_of(block->size);
  Links* const end = &bins_[bin];
  // Its place is mostly near one of the ends: look from both.
  Links* above = end->larger;
  Links* below = end->smaller;
  while (!smaller(*block, *above)) {
    above = above->larger;
    if (smaller(*below, *block)) {
      above = below->larger;
      break;
    }
    below = below->smaller;
  }
  block->bin = static_cast<std::uint16_t>(bin);
  block->larger = above;
  block->smaller = above->smaller;
  above->smaller->larger = block;
  above->smaller = block;
  used_[bin / 64] |= std::uint64_t{1} << (bin % 64);
  used_words_ |= std::uint64_t{1} << (bin / 64);
}

inline void CachingAllocator::FreeList::erase(Block* block) {
  block->smaller->larger = block->larger;
  block->larger->smaller = block->smaller;
  const std::uint32_t bin = block->bin;
  const std::uint64_t word = used_[bin / 64] ^ std::uint64_t{bins_[bin].larger == &bins_[bin]} << (bin % 64);
  used_[bin / 64] = word;
  used_words_ ^= std::uint64_t{word == 0} << (bin / 64);
}

void CachingAllocator::add_stream(std::uint8_t stream) {
  while (lists_.size() <= list_index(true, stream)) {
    const bool small = lists_.size() % 2 == 1;
    const auto of_stream = static_cast<std::uint8_t>(lists_.size() / 2);
    const std::int64_t min_rest = small || expandable_ ? kMinBlock : kSmallSize + 1;
    lists_.push_back(std::make_unique<FreeList>(small, of_stream, min_rest));
  }
}

void CachingAllocator::insert_unmapped(Block* block) {
  std::vector<Block*>& unmapped = block->list->unmapped;
  unmapped.insert(std::lower_bound(unmapped.begin(), unmapped.end(), block, lower_address), block);
}

void CachingAllocator::erase_unmapped(Block* block) {
  std::vector<Block*>& unmapped = block->list->unmapped;
  unmapped.erase(std::find(unmapped.begin(), unmapped.end(), block));
}

inline void CachingAllocator::insert(Block* block) {
  if (block->state == State::unmapped) [[unlikely]] {
    insert_unmapped(block);
  } else {
    block->list->insert(block);
  }
}

inline void CachingAllocator::erase(Block* block) {
  if (block->state == State::unmapped) [[unlikely]] {
    erase_unmapped(block);
  } else {
    block->list->erase(block);
  }
}

/// Changes a block that is in a list.
inline void CachingAllocator::resize(Block* block, std::uint64_t address, std::int64_t size) {
  erase(block);
  block->address = address;
  block->size = size;
  insert(block);
}

// --- blocks
// -----------------------------------------------------------------------------------------------------------

inline CachingAllocator::Block* CachingAllocator::new_block() {
  if (Block* block = spare_) {
    spare_ = block->next;
    return block;
  }
  if (chunk_used_ == kChunk) {
    chunks_.push_back(std::make_unique<Block[]>(kChunk));
    chunk_used_ = 0;
  }
  return &chunks_.back()[chunk_used_++];
}

inline void CachingAllocator::drop(Block* block) {
  block->size = 0;
  block->next = spare_;
  spare_ = block;
}

/// Cuts the front off a block in a list, where the rest stays.
inline CachingAllocator::Block* CachingAllocator::split(Block* block, std::int64_t size) {
  Block* front = new_block();
  // Member by member: a copy of the whole would wait for what has just been written to parts of it.
  front->address = block->address;
  front->size = size;
  front->prev = block->prev;
  front->next = block;
  front->list = block->list;
  front->state = block->state;
  front->used_elsewhere = false;
  front->prev->next = front;
  block->prev = front;
  resize(block, block->address + static_cast<std::uint64_t>(size), block->size - size);
  return front;
}

/// The first `size` bytes of a block in a list, in no list.
CachingAllocator::Block* CachingAllocator::take_front(Block* block, std::int64_t size) {
  if (size < block->size) return split(block, size);
  erase(block);
  return block;
}

/// Puts a block that has become free, mapped or unmapped into its list, as one with its neighbours that are free and of
/// the same kind: try_merge_blocks.
inline void CachingAllocator::coalesce(Block* block) {
  Block* const prev = block->prev;
  Block* const next = block->next;
  if (prev->state == block->state) {
    erase(prev);
    block->address = prev->address;
    block->size += prev->size;
    block->prev = prev->prev;
    block->prev->next = block;
    drop(prev);
  }
  if (next->state == block->state) {
    erase(next);
    block->size += next->size;
    block->next = next->next;
    block->next->prev = block;
    drop(next);
  }
  insert(block);
}

inline void CachingAllocator::free_block(Block* block) {
  block->state = State::free;
  block->used_elsewhere = false;
  coalesce(block);
}

void CachingAllocator::process_events() {
  for (Block* block : waiting_) free_block(block);
  waiting_.clear();
}

/// get_free_block: the smallest free block that is large enough.
inline CachingAllocator::Block* CachingAllocator::best_fit(const FreeList& free_blocks, std::int64_t size) {
  Block* best = free_blocks.lower_bound(size);
  if (best == nullptr) return nullptr;
  if (expandable_) {
    // A block counts as large as it could grow, so that the one at the end of the mapped memory is used last.
    const auto expandable_size = [](const Block* block) {
      return block->size + (block->next->state == State::unmapped ? block->next->size : 0);
    };
    Block* next = free_blocks.after(best);
    while (next != nullptr && expandable_size(next) < expandable_size(best)) {
      best = next;
      next = free_blocks.after(best);
    }
  }
  return best;
}

// --- device memory
// ----------------------------------------------------------------------------------------------------

bool CachingAllocator::take(std::int64_t size) {
  if (size > usable_bytes_ - stats_.reserved) return false;
  stats_.reserved += size;
  return true;
}

/// A new segment's one block, in its list.
CachingAllocator::Block* CachingAllocator::new_segment(FreeList& list, std::int64_t size, State state) {
  Block* block = new_block();
  *block = {};
  if (descending_) next_address_ -= static_cast<std::uint64_t>(size);
  block->address = next_address_;
  block->size = size;
  block->list = &list;
  block->state = state;
  block->prev = block->next = &wall_;
  if (!descending_) next_address_ += static_cast<std::uint64_t>(size);
  insert(block);
  return block;
}

/// alloc_block: a free block of at least `size` with the device's memory; null if it has not that much.
CachingAllocator::Block* CachingAllocator::grow(FreeList& list, std::int64_t size) {
  if (expandable_) return expand(list, size);
  const std::int64_t bytes = segment_size(size);
  if (!take(bytes)) return nullptr;
  Block* block = new_segment(list, bytes, State::free);
  segment_events_.push_back({SegmentEvent::Kind::alloc, list.stream, block->address, bytes});
  return block;
}

/// try_allocate_expandable_block
CachingAllocator::Block* CachingAllocator::expand(FreeList& list, std::int64_t size) {
  Block* block = find_expandable(list, size);
  if (block->state == State::unmapped) block = map(block, std::min(block->size, size));
  while (block != nullptr && block->size < size) {
    block = map(block->next, std::min(size - block->size, block->next->size));
  }
  return block;
}

/// find_expandable_block: the lowest run of free and unmapped blocks that has room, else a new segment.
CachingAllocator::Block* CachingAllocator::find_expandable(FreeList& list, std::int64_t size) {
  for (Block* unmapped : list.unmapped) {
    Block* const before = unmapped->prev;
    Block* const first = before->state == State::free ? before : unmapped;
    std::int64_t room = 0;
    for (const Block* b = first; room < size && (b->state == State::free || b->state == State::unmapped); b = b->next) {
      room += b->size;
    }
    if (room >= size) return first;
  }
  const std::int64_t space = round_up(std::max(size, kAddressSpace), kLargeSegment);  // whole pages of either size
  return new_segment(list, space, State::unmapped);
}

/// map_block: gives memory to the pages of an unmapped block's first `size` bytes. The free block that holds them; null
/// if the device has not that much.
CachingAllocator::Block* CachingAllocator::map(Block* block, std::int64_t size) {
  const std::int64_t bytes = round_up(size, page_size(block->list->small));
  if (!take(bytes)) return nullptr;
  block = take_front(block, bytes);
  segment_events_.push_back({SegmentEvent::Kind::map, block->list->stream, block->address, bytes});
  block->state = State::free;
  coalesce(block);
  return block;
}

/// unmap_block: gives back the pages that lie whole inside a free block.
void CachingAllocator::unmap(Block* block) {
  const auto page = static_cast<std::uint64_t>(page_size(block->list->small));
  const std::uint64_t begin = block->address;
  const std::uint64_t end = begin + static_cast<std::uint64_t>(block->size);
  const std::uint64_t first = (begin + page - 1) / page * page;
  const std::uint64_t last = end / page * page;
  if (first >= last) return;
  if (first > begin) insert(split(block, static_cast<std::int64_t>(first - begin)));
  const auto bytes = static_cast<std::int64_t>(last - first);
  block = take_front(block, bytes);
  stats_.reserved -= bytes;
  segment_events_.push_back({SegmentEvent::Kind::unmap, block->list->stream, first, bytes});
  block->state = State::unmapped;
  coalesce(block);
}

void CachingAllocator::release_segment(Block* block) {
  erase(block);
  stats_.reserved -= block->size;
  segment_events_.push_back({SegmentEvent::Kind::free, block->list->stream, block->address, block->size});
  drop(block);
}

/// Gives back every segment that is free as a whole; of expandable segments, every page.
void CachingAllocator::release_cached_blocks() {
  std::vector<Block*> cached;  // giving back changes the lists
  for (const std::unique_ptr<FreeList>& list : lists_) {
    for (Block* block = list->first(); block != nullptr; block = list->after(block)) {
      cached.push_back(block);
    }
  }
  for (Block* block : cached) {
    if (expandable_) {
      unmap(block);
    } else if (is_segment(block)) {
      release_segment(block);
    }
  }
}

}  // namespace oometer
