// core/memory/batch.h: one batch in one buffer, and what is known of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <utility>

#include "core/kernels/weights.h"
#include "core/memory/pool.h"

namespace millstream {

// Where the columns of a batch lie in its buffer, each on a 64-byte boundary: jax shares no other memory.
struct BatchLayout {
  std::size_t rows = 0;
  std::size_t length = 0;
  std::size_t id_bytes = 8;  // 4 or 8
  bool isolated = false;     // with position ids and segment starts
  bool documents = false;    // rows hold whole documents, which may have been cut
  bool weighted = false;     // targets may have weights of their own
  std::size_t further_bytes = 0;  // of columns that lie behind all others

  std::size_t columns() const { return isolated ? 3 : 2; }
  std::size_t column_bytes() const { return aligned(rows * length * id_bytes); }
  std::size_t lengths_offset() const { return columns() * column_bytes(); }
  std::size_t sources_offset() const { return lengths_offset() + rows * sizeof(std::int32_t); }
  std::size_t cuts_offset() const { return sources_offset() + rows * sizeof(std::int32_t); }
  std::size_t starts_offset() const { return aligned(cuts_offset() + (documents ? rows * sizeof(std::int64_t) : 0)); }
  std::size_t weights_offset() const {
    return aligned(starts_offset() + (isolated ? (rows * length + 1) * sizeof(std::int32_t) : 0));
  }
  std::size_t further_offset() const {
    return aligned(weights_offset() + (weighted ? rows * length * sizeof(float) : 0));
  }
  std::size_t bytes() const { return aligned(further_offset() + further_bytes); }

  static std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }
};

// What the targets of some rows weigh together: what sums of losses are divided by.
struct StepWeight {
  std::uint64_t targets = 0, hundredths = 0;
  std::uint64_t segments = 0;  // that have a target

  bool operator==(const StepWeight&) const = default;

  void add(const DocumentWeight& weight) {
    targets += weight.targets;
    hundredths += weight.hundredths;
    segments += weight.hundredths > 0;
  }
};

struct BatchFacts {
  std::uint64_t step = 0;    // of the clock that made it
  std::uint64_t epoch = 0;   // since the clock began
  std::uint64_t place = 0;   // of the first row among the samples of its epoch (since the clock began, in epoch 0)
  std::uint64_t rows = 0;    // real rows
  std::uint64_t filler = 0;  // rows that only fill up (loss 0)
  std::uint64_t tokens = 0;  // real input tokens
  std::uint64_t cut = 0;     // tokens that did not fit their row
  std::uint64_t segments = 0;
  std::uint64_t longest_segment = 0;
  std::uint64_t targets = 0;  // that weigh anything in the loss
  bool fractional = false;    // some weigh neither 0 nor 1: their weights are written down
  StepWeight step_weight;     // of all rows that one update of the model sees, on all ranks; where it was asked for
};

// A buffer on loan from a pool; it goes back when the last tensor over it is gone.
class Batch {
 public:
  Batch(std::shared_ptr<Pool> pool, std::byte* data, const BatchLayout& layout)
      : pool_(std::move(pool)), data_(data), layout_(layout) {}
  ~Batch() {
    if (pool_) pool_->give_back(data_);
  }
  Batch(Batch&& other) noexcept = default;  // a moved-from batch has no pool
  Batch& operator=(Batch&&) = delete;

  const BatchLayout& layout() const { return layout_; }

  // Makes it a batch of so many rows of such a length, which need no more room than those it was made for.
  void reshape(std::size_t rows, std::size_t length) {
    auto layout = layout_;
    layout.rows = rows;
    layout.length = length;
    if (layout.bytes() > layout_.bytes()) throw std::logic_error("a batch needs more room than it has");
    layout_ = layout;
  }

  std::byte* data() const { return data_; }
  std::int32_t* lengths() const { return reinterpret_cast<std::int32_t*>(data_ + layout_.lengths_offset()); }
  std::int32_t* sources() const { return reinterpret_cast<std::int32_t*>(data_ + layout_.sources_offset()); }
  std::int64_t* cuts() const { return reinterpret_cast<std::int64_t*>(data_ + layout_.cuts_offset()); }
  std::int32_t* starts() const { return reinterpret_cast<std::int32_t*>(data_ + layout_.starts_offset()); }
  float* weights() const { return reinterpret_cast<float*>(data_ + layout_.weights_offset()); }

  BatchFacts facts;

 private:
  std::shared_ptr<Pool> pool_;
  std::byte* data_;
  BatchLayout layout_;
};

// Buffers for batches of any size, each as large as the largest that was asked for so far. Any thread may ask.
class Buffers {
 public:
  explicit Buffers(std::shared_ptr<Budget> budget, std::size_t keep) : budget_(std::move(budget)), keep_(keep) {}

  // Nothing where the budget has no room.
  std::optional<Batch> take(const BatchLayout& layout) {
    const std::lock_guard locked(mutex_);
    if (pool_ == nullptr || layout.bytes() > pool_->buffer_bytes()) grow_to(layout.bytes());
    auto* const data = pool_->try_take();
    if (data != nullptr) return std::optional<Batch>(std::in_place, pool_, data, layout);
    pool_.reset();  // a smaller batch may still fit
    return std::nullopt;
  }

 private:
  void grow_to(std::size_t bytes) {
    if (pool_ != nullptr) pool_->retire();
    const auto more = bytes + bytes / 8;  // the next one may be a little larger
    pool_ = std::make_shared<Pool>(more <= budget_->most_bytes() ? more : bytes, budget_, keep_);
  }

  const std::shared_ptr<Budget> budget_;
  const std::size_t keep_;
  std::mutex mutex_;
  std::shared_ptr<Pool> pool_;
};

}  // namespace millstream
