// core/order/order.h: position in an epoch -> sample, and back.
//
// global: one permutation of all samples.
// local:  blocks of neighbouring samples are permuted, then the samples inside each group of blocks. Reads stay inside a
//         group, so a disk or an object store sees large reads; only the last block may be short, and wherever the
//         permutation puts it, the arithmetic below knows.
// none:   the identity.
//
// Neighbours that belong together, as the two answers of a pair do, are a unit: units are ordered, and their samples follow.
//
// Rows that were packed lie in windows (core/order/windows.h): those are permuted, then the bins in each, unless there is no shuffle.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>

#include "core/order/permute.h"
#include "core/order/windows.h"

namespace millstream {

enum class Shuffle : std::uint8_t { none, global, local };

struct OrderSpec {
  Shuffle shuffle = Shuffle::none;
  std::uint64_t samples = 0;
  std::uint64_t key = 0;           // of (seed, source name)
  std::uint64_t block_samples = 1;  // local: neighbours that stay together until their group is shuffled
  std::uint64_t group_blocks = 1;   // local: blocks that are shuffled into each other
  std::shared_ptr<const Windows> windows = nullptr;  // of packed rows; then samples are bins
  std::uint64_t unit = 1;  // neighbouring samples that stay together; blocks and windows are then of units
};

// One epoch of an order. Not for sharing between threads: it remembers the last group.
class EpochOrder {
 public:
  EpochOrder(const OrderSpec& spec, std::uint64_t epoch) : spec_(spec), epoch_(epoch) {
    if (spec.samples == 0) throw std::invalid_argument("an order needs at least one sample");
    if (spec.block_samples == 0 || spec.group_blocks == 0)
      throw std::invalid_argument("a local shuffle needs blocks and groups of at least one");
    if (spec.unit == 0 || spec.samples % spec.unit != 0)
      throw std::invalid_argument("samples that stay together are all there");
    const auto key = derive(spec.key, epoch);
    spec_.samples /= spec.unit;
    if (spec.windows) {
      const auto bins = spec.windows->samples();  // of a store that is still being made, more are to come
      if (spec_.samples < bins || (spec_.samples > bins && !spec.windows->may_grow()))
        throw std::invalid_argument("the windows do not have so many bins");
      const auto shuffled = spec.shuffle == Shuffle::none ? std::nullopt : std::optional(key);
      packed_ = std::make_unique<WindowOrder>(spec.windows, shuffled, epoch);
      return;
    }
    if (spec.shuffle == Shuffle::global) whole_.emplace(spec_.samples, key);
    if (spec.shuffle == Shuffle::local) {
      const auto blocks = (spec_.samples - 1) / spec.block_samples + 1;
      last_samples_ = spec_.samples - (blocks - 1) * spec.block_samples;
      whole_.emplace(blocks, key);
      last_slot_ = whole_->inverse(blocks - 1);
    }
  }

  std::uint64_t epoch() const { return epoch_; }

  bool has(std::uint64_t sample) const {
    return packed_ ? packed_->has(sample / spec_.unit) : sample / spec_.unit < spec_.samples;
  }

  std::uint64_t at(std::uint64_t position) {
    if (spec_.unit == 1) return unit_at(position);
    return unit_at(position / spec_.unit) * spec_.unit + position % spec_.unit;
  }

  std::uint64_t inverse(std::uint64_t sample) {
    if (spec_.unit == 1) return inverse_unit(sample);
    return inverse_unit(sample / spec_.unit) * spec_.unit + sample % spec_.unit;
  }

  void at(std::span<const std::uint64_t> positions, std::span<std::uint64_t> out) {
    if (at_once()) return whole_->at(positions, out);
    std::ranges::transform(positions, out.begin(), [this](auto position) { return at(position); });
  }

  void inverse(std::span<const std::uint64_t> samples, std::span<std::uint64_t> out) {
    if (at_once()) return whole_->inverse(samples, out);
    std::ranges::transform(samples, out.begin(), [this](auto sample) { return inverse(sample); });
  }

  // The block that stands at `slot` of this epoch (local), or `slot` itself (none): what to read ahead.
  std::uint64_t block_at(std::uint64_t slot) const {
    return spec_.shuffle == Shuffle::local ? whole_->at(slot) : slot;
  }

 private:
  bool at_once() const { return whole_ && spec_.shuffle == Shuffle::global && spec_.unit == 1; }

  std::uint64_t unit_at(std::uint64_t position) {
    if (packed_) return packed_->at(position);
    if (spec_.shuffle == Shuffle::none) return position;
    if (spec_.shuffle == Shuffle::global) return whole_->at(position);
    const auto& group = group_of(position);
    const auto inside = group.start + group.order->at(position - group.start);
    const auto slot = slot_of(inside);
    return whole_->at(slot) * spec_.block_samples + (inside - slot_start(slot));
  }

  std::uint64_t inverse_unit(std::uint64_t sample) {
    if (packed_) return packed_->inverse(sample);
    if (spec_.shuffle == Shuffle::none) return sample;
    if (spec_.shuffle == Shuffle::global) return whole_->inverse(sample);
    const auto slot = whole_->inverse(sample / spec_.block_samples);
    const auto inside = slot_start(slot) + sample % spec_.block_samples;
    const auto& group = group_of(inside);
    return group.start + group.order->inverse(inside - group.start);
  }

  struct Group {
    std::uint64_t number = ~0ULL;
    std::uint64_t start = 0;
    std::optional<Permutation> order;
  };

  // Every slot but one holds a full block; the short one shifts what stands behind it.
  std::uint64_t slot_start(std::uint64_t slot) const {
    const auto start = slot * spec_.block_samples;
    return slot > last_slot_ ? start - (spec_.block_samples - last_samples_) : start;
  }

  std::uint64_t slot_of(std::uint64_t position) const {
    const auto short_start = last_slot_ * spec_.block_samples;
    if (position < short_start + last_samples_) return position / spec_.block_samples;
    return last_slot_ + 1 + (position - short_start - last_samples_) / spec_.block_samples;
  }

  const Group& group_of(std::uint64_t position) {
    const auto number = slot_of(position) / spec_.group_blocks;
    if (group_.number != number) {
      const auto start = slot_start(number * spec_.group_blocks);
      const auto blocks = whole_->size();
      const auto stop_slot = std::min(blocks, (number + 1) * spec_.group_blocks);
      const auto stop = stop_slot == blocks ? spec_.samples : slot_start(stop_slot);
      group_.order.emplace(stop - start, derive(derive(spec_.key, epoch_), number + 1));
      group_.start = start;
      group_.number = number;
    }
    return group_;
  }

  OrderSpec spec_;  // with as many samples as there are units
  std::uint64_t epoch_;
  std::unique_ptr<WindowOrder> packed_;  // few have one, and all would have to make room for it
  std::optional<Permutation> whole_;  // of samples (global) or of blocks (local)
  std::uint64_t last_samples_ = 0;    // in the last, maybe short, block
  std::uint64_t last_slot_ = 0;       // where that block stands in this epoch
  Group group_;
};

}  // namespace millstream
