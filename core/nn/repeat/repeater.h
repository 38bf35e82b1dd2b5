#pragma once

#include <optional>

#include "nn/repeat/block_pass.h"

namespace oometer {

/// How what one block of a kind did is written for others, and compared with what another did.
class Repeater {
 public:
  explicit Repeater(BlockPass& pass) : pass_(pass) {}
  virtual ~Repeater() = default;

  /// A kind's first or last block is executed between these.
  virtual void start_recording([[maybe_unused]] std::size_t block) {}
  virtual void stop_recording() {}

  /// Takes the forward of the kind's first block, which is over; false: it cannot be written for others.
  virtual bool take_forward(std::size_t kind, const BlockKind& of) = 0;
  virtual void write_forward(std::size_t kind, std::size_t block) = 0;
  /// Whether the forward of the kind's last block was as the first's.
  virtual bool is_forward_same(std::size_t kind, const BlockKind& of) = 0;

  /// Takes the backward of the kind's last block, which is over; false: it cannot be written for others.
  virtual bool take_backward(std::size_t kind, const BlockKind& of) = 0;
  virtual void write_backward(std::size_t kind, std::size_t block, StorageId incoming) = 0;
  /// Whether the backward of the kind's first block, into which `incoming` came, was as the last one's.
  virtual bool is_backward_same(std::size_t kind, const BlockKind& of, const LogRange& range, StorageId incoming) = 0;

  /// Of a kind's first or last block, or one that is written.
  virtual CreatedStorages created_in_forward(std::size_t block) const = 0;
  /// By the last backward that was written, or taken.
  virtual CreatedStorages created_in_backward() const = 0;

 protected:
  BlockPass& pass_;
};

}  // namespace oometer
