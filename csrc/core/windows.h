// core/windows.h: position in an epoch -> bin of a window, and back.
//
// Rows that were packed are not all of one size in documents, so how many there are is known only window by window. An epoch
// permutes the windows, then the bins inside each. Sample = window * rows + bin: the name of a bin depends on no other window.
//
// A store that is still being made has its documents in a keyed order already, and its first epoch takes the windows as they
// come: then nothing need be known of windows that are not there yet.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <vector>

#include "core/permute.h"

namespace millstream {

struct Windows {
  std::vector<std::uint32_t> bins;  // of each window
  std::uint64_t rows = 1;           // more than any window has bins
  bool first_in_order = false;      // the first epoch takes the windows as they come

  std::uint64_t samples() const { return std::accumulate(bins.begin(), bins.end(), std::uint64_t{0}); }
  bool has(std::uint64_t sample) const { return sample / rows < bins.size() && sample % rows < bins[sample / rows]; }
};

// One epoch. Not for sharing between threads: it remembers the last window.
class WindowOrder {
 public:
  // Without a key the windows, and the bins in them, stand as they are.
  WindowOrder(std::shared_ptr<const Windows> windows, std::optional<std::uint64_t> key, std::uint64_t epoch)
      : windows_(std::move(windows)), key_(key) {
    if (key_ && !windows_->bins.empty() && !(windows_->first_in_order && epoch == 0)) whole_.emplace(windows_->bins.size(), *key_);
    starts_.reserve(windows_->bins.size());
    std::uint64_t start = 0;
    for (std::uint64_t slot = 0; slot < windows_->bins.size(); ++slot) {
      starts_.push_back(start);
      start += windows_->bins[window_at(slot)];
    }
    known_ = start;
  }

  std::uint64_t at(std::uint64_t position) {
    if (position >= known_) throw std::out_of_range("a row that is not known yet was asked for");
    const auto slot = static_cast<std::uint64_t>(std::ranges::upper_bound(starts_, position) - starts_.begin() - 1);
    const auto window = window_at(slot);
    return window * windows_->rows + (key_ ? bins_of(window).at(position - starts_[slot]) : position - starts_[slot]);
  }

  std::uint64_t inverse(std::uint64_t sample) {
    const auto window = sample / windows_->rows, bin = sample % windows_->rows;
    const auto slot = whole_ ? whole_->inverse(window) : window;
    return starts_[slot] + (key_ ? bins_of(window).inverse(bin) : bin);
  }

  static std::size_t bytes(const Windows& windows) { return windows.bins.size() * sizeof(std::uint64_t); }

 private:
  std::uint64_t window_at(std::uint64_t slot) const { return whole_ ? whole_->at(slot) : slot; }

  const Permutation& bins_of(std::uint64_t window) {
    if (!inside_ || inside_window_ != window) {
      inside_.emplace(windows_->bins[window], derive(*key_, window + 1));
      inside_window_ = window;
    }
    return *inside_;
  }

  std::shared_ptr<const Windows> windows_;
  std::optional<std::uint64_t> key_;
  std::optional<Permutation> whole_;   // of the windows
  std::uint64_t known_ = 0;            // positions
  std::vector<std::uint64_t> starts_;  // position of the first bin of the window in each slot
  std::optional<Permutation> inside_;  // of the bins of one window
  std::uint64_t inside_window_ = 0;
};

}  // namespace millstream
