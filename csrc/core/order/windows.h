// core/order/windows.h: position in an epoch -> bin of a window, and back.
//
// Rows that were packed are not all of one size in documents, so how many there are is known only window by window. An epoch
// permutes the windows, then the bins inside each. Sample = window * rows + bin: the name of a bin depends on no other window.
// Or samples are numbered through: then a bin is named by all bins before it, in windows as they come.
//
// Bins that stand by length stay where they are, but for neighbours that change places in every epoch; the longest of all may
// come first in the first epoch, for what does not fit into memory had better fail at once.
//
// A store that is still being made has its documents in a keyed order already, and its first epoch takes the windows as they
// come: then nothing need be known of windows that are not there yet. A stream takes them so in every epoch. Of windows
// that it skipped it may know only how many bins they have together: the first of them is a gap with all of those bins, the
// others have none, and each window behind keeps its number.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/memory/lru2.h"
#include "core/order/permute.h"

namespace millstream {

struct Windows {
  std::vector<std::uint64_t> bins;  // of each window
  std::uint64_t rows = 1;           // at least as many as any window has bins; 0: samples are numbered through
  bool first_in_order = false;      // the first epoch takes the windows as they come
  std::uint64_t block = 0;          // neighbours that change places; 0: all bins of a window do
  std::optional<std::uint64_t> foremost = std::nullopt;  // the sample that changes places with the first one of the first epoch
  bool always_in_order = false;     // every epoch takes the windows as they come
  std::vector<std::uint64_t> gaps = {};  // windows, rising, that stand for several: where a shuffle puts their bins is unknown

  std::uint64_t samples() const {
    std::uint64_t sum = 0;
    for (const auto count : bins) {
      if (count > most_positions - sum) throw std::invalid_argument("windows have up to 2^63 bins");
      sum += count;
    }
    return sum;
  }

  bool has(std::uint64_t sample) const {
    return rows == 0 ? sample < samples() : sample / rows < bins.size() && sample % rows < bins[sample / rows];
  }

  bool in_order(std::uint64_t epoch) const { return always_in_order || (first_in_order && epoch == 0); }
  bool may_grow() const { return always_in_order || first_in_order; }
};

// One epoch. Not for sharing between threads: it remembers the last windows.
class WindowOrder {
 public:
  // Without a key the windows, and the bins in them, stand as they are.
  WindowOrder(std::shared_ptr<const Windows> windows, std::optional<std::uint64_t> key, std::uint64_t epoch)
      : windows_(std::move(windows)), key_(key) {
    known_ = windows_->samples();
    if (key_ && !windows_->bins.empty() && !windows_->in_order(epoch)) whole_.emplace(windows_->bins.size(), *key_);
    if (windows_->rows == 0) firsts_ = before_each([&](std::uint64_t window) { return window; });
    starts_ = before_each([&](std::uint64_t slot) { return window_at(slot); });
    if (key_ && epoch == 0 && windows_->foremost && known_ > 0) {
      const auto sample = *windows_->foremost;
      if (!has(sample)) throw std::invalid_argument("the windows do not have the bin that is to come first");
      displaced_ = {sample, ordered_place(sample), ordered(0)};
    }
  }

  bool has(std::uint64_t sample) const { return windows_->rows == 0 ? sample < known_ : windows_->has(sample); }

  std::uint64_t at(std::uint64_t position) {
    if (displaced_ && position == 0) return displaced_->foremost;
    if (displaced_ && position == displaced_->place) return displaced_->first;
    return ordered(position);
  }

  std::uint64_t inverse(std::uint64_t sample) {
    if (displaced_ && sample == displaced_->foremost) return 0;
    if (displaced_ && sample == displaced_->first) return displaced_->place;
    return ordered_place(sample);
  }

  static std::size_t bytes(const Windows& windows) {
    return windows.bins.size() * (windows.rows == 0 ? 2 : 1) * sizeof(std::uint64_t);
  }

 private:
  // The sample that comes first, where it would stand, and the sample that stands there instead.
  struct Displaced {
    std::uint64_t foremost, place, first;
  };

  std::uint64_t ordered(std::uint64_t position) {
    if (position >= known_) throw std::out_of_range("a row that is not known yet was asked for");
    const auto slot = holder(starts_, position);
    const auto window = window_at(slot);
    const auto place = position - starts_[slot];
    if (!key_) return first_sample(window) + place;
    const auto& block = block_of(window, place);
    return first_sample(window) + block.start + block.order->at(place - block.start);
  }

  std::uint64_t ordered_place(std::uint64_t sample) {
    const auto window = windows_->rows == 0 ? holder(firsts_, sample) : sample / windows_->rows;
    const auto bin = sample - first_sample(window);
    const auto slot = whole_ ? whole_->inverse(window) : window;
    if (!key_) return starts_[slot] + bin;
    const auto& block = block_of(window, bin);
    return starts_[slot] + block.start + block.order->inverse(bin - block.start);
  }

  std::uint64_t window_at(std::uint64_t slot) const { return whole_ ? whole_->at(slot) : slot; }

  std::uint64_t first_sample(std::uint64_t window) const {
    return windows_->rows == 0 ? firsts_[window] : window * windows_->rows;
  }

  // How many bins come before each of the windows, in some order of them.
  std::vector<std::uint64_t> before_each(const auto& window_of) const {
    std::vector<std::uint64_t> sums(windows_->bins.size());
    std::uint64_t sum = 0;
    for (std::uint64_t place = 0; place < sums.size(); ++place)
      sums[place] = std::exchange(sum, sum + windows_->bins[window_of(place)]);
    return sums;
  }

  // The last of those sums at or below a number: windows without bins hold nothing.
  static std::uint64_t holder(const std::vector<std::uint64_t>& sums, std::uint64_t number) {
    return static_cast<std::uint64_t>(std::ranges::upper_bound(sums, number) - sums.begin() - 1);
  }

  // Bins of a window that change places among themselves.
  struct Block {
    std::uint64_t window = 0, start = 0;
    std::optional<Permutation> order;
  };

  const Block& block_of(std::uint64_t window, std::uint64_t bin) {
    if (std::ranges::binary_search(windows_->gaps, window)) throw std::out_of_range("a row inside a gap was asked for");
    const std::uint64_t bins = windows_->bins[window], most = windows_->block == 0 ? bins : windows_->block;
    const auto start = bin / most * most;
    const auto wanted = [&](const Block& block) { return block.order && block.window == window && block.start == start; };
    auto& block = blocks_.find(wanted);
    if (!wanted(block)) {
      const auto key = derive(*key_, window + 1);
      block = {window, start, std::nullopt};
      block.order.emplace(std::min(most, bins - start), start == 0 ? key : derive(key, start));
    }
    return block;
  }

  std::shared_ptr<const Windows> windows_;
  std::optional<std::uint64_t> key_;
  std::optional<Permutation> whole_;   // of the windows
  std::uint64_t known_ = 0;            // positions
  std::vector<std::uint64_t> starts_;  // position of the first bin of the window in each slot
  std::vector<std::uint64_t> firsts_;  // sample of the first bin of each window, where samples are numbered through
  std::optional<Displaced> displaced_;
  LastTwo<Block> blocks_;
};

}  // namespace millstream
