// core/order/bins.h: lengths -> bins of a capacity, by best fit decreasing: the longest first, each into the fullest bin that has room.
//
// A pure function of the lengths. Bins of equal room wait in line: the one that came to have it first is filled first.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

namespace millstream {

inline constexpr std::uint32_t most_capacity = std::uint32_t{1} << 20;

// A set of small numbers that finds its least member from some number on. Three levels of 64-bit words hold up to 2^20 + 1.
class RoomSet {
 public:
  explicit RoomSet(std::size_t numbers) {
    for (auto& level : levels_) level.resize(numbers = numbers / 64 + 1);
  }

  void add(std::size_t number) {
    for (auto& level : levels_) {
      level[number / 64] |= std::uint64_t{1} << number % 64;
      number /= 64;
    }
  }

  void remove(std::size_t number) {
    for (auto& level : levels_) {
      if ((level[number / 64] &= ~(std::uint64_t{1} << number % 64)) != 0) return;
      number /= 64;
    }
  }

  // `none` where there is no member from `number` on.
  std::size_t next(std::size_t number) const {
    for (std::size_t depth = 0; depth < levels_.size(); ++depth) {
      const auto& level = levels_[depth];
      if (number / 64 >= level.size()) return none;
      if (const auto rest = level[number / 64] >> number % 64; rest != 0)
        return first_below(depth, number + static_cast<std::size_t>(std::countr_zero(rest)));
      number = number / 64 + 1;
    }
    return none;
  }

  static constexpr auto none = std::numeric_limits<std::size_t>::max();
  static std::size_t bytes(std::size_t numbers) { return numbers / 64 * 9 + 64; }

 private:
  std::size_t first_below(std::size_t depth, std::size_t number) const {
    while (depth-- > 0) number = number * 64 + static_cast<std::size_t>(std::countr_zero(levels_[depth][number]));
    return number;
  }

  std::array<std::vector<std::uint64_t>, 4> levels_;
};

// Which items lie in which bin: bin b holds items[ends[b - 1] .. ends[b]), the longest first.
struct Bins {
  std::vector<std::uint32_t> items;
  std::vector<std::uint32_t> ends;

  std::size_t count() const { return ends.size(); }
  std::span<const std::uint32_t> operator[](std::size_t bin) const {
    const auto begin = bin == 0 ? 0 : ends[bin - 1];
    return std::span(items).subspan(begin, ends[bin] - begin);
  }
};

// Packs, and keeps its tables for the next time.
class Packer {
 public:
  explicit Packer(std::uint32_t capacity) : capacity_(capacity), rooms_(capacity + 1), first_(capacity + 1), last_(capacity + 1) {
    if (capacity == 0 || capacity > most_capacity) throw std::invalid_argument("bins hold 1 to 2^20 tokens");
  }

  std::uint32_t capacity() const { return capacity_; }

  // What it grows to with so many items at a time.
  static std::size_t bytes(std::uint32_t capacity, std::size_t items) {
    return capacity * std::size_t{8} + RoomSet::bytes(capacity) + items * 24;
  }

  // The items that have a length, the longest first, equal ones as they came; until the next call.
  std::span<const std::uint32_t> sorted(std::span<const std::uint32_t> lengths) {
    sort(lengths);
    return sorted_;
  }

  // Items of length 0 go nowhere; none may be longer than the capacity.
  void pack(std::span<const std::uint32_t> lengths, Bins& bins) {
    sort(lengths);
    home_.resize(sorted_.size());
    next_.clear();
    room_.clear();
    for (std::size_t place = 0; place < sorted_.size(); ++place) home_[place] = put(lengths[sorted_[place]]);
    for (const auto room : room_) forget(room);
    group(bins);
  }

 private:
  static constexpr auto nobody = std::numeric_limits<std::uint32_t>::max();

  // A radix sort by two halves of the length.
  void sort(std::span<const std::uint32_t> lengths) {
    sorted_.clear();
    for (std::uint32_t item = 0; item < lengths.size(); ++item) {
      if (lengths[item] > capacity_) throw std::invalid_argument("an item is longer than a bin");
      if (lengths[item] > 0) sorted_.push_back(item);
    }
    other_.resize(sorted_.size());
    for (const int shift : {0, digit_bits}) {
      std::array<std::uint32_t, digits> starts{};
      const auto digit = [&](std::uint32_t item) { return digits - 1 - (lengths[item] >> shift) % digits; };
      for (const auto item : sorted_) ++starts[digit(item)];
      std::uint32_t sum = 0;
      for (auto& start : starts) sum += std::exchange(start, sum);
      for (const auto item : sorted_) other_[starts[digit(item)]++] = item;
      std::swap(sorted_, other_);
    }
  }

  // Puts an item into the bin with the least room for it, or into a new one.
  std::uint32_t put(std::uint32_t length) {
    const auto found = rooms_.next(length);
    std::uint32_t bin;
    if (found == RoomSet::none) {
      bin = static_cast<std::uint32_t>(room_.size());
      room_.push_back(capacity_);
      next_.push_back(nobody);
    } else {
      const auto room = static_cast<std::uint32_t>(found);
      bin = first_[room];
      first_[room] = next_[bin];
      if (first_[room] == nobody) rooms_.remove(room);
    }
    room_[bin] -= length;
    if (room_[bin] > 0) line_up(bin, room_[bin]);
    return bin;
  }

  void line_up(std::uint32_t bin, std::uint32_t room) {
    next_[bin] = nobody;
    if (rooms_.next(room) == room) {
      next_[last_[room]] = bin;
    } else {
      rooms_.add(room);
      first_[room] = bin;
    }
    last_[room] = bin;
  }

  void forget(std::uint32_t room) {
    if (room > 0) rooms_.remove(room);
  }

  // Lists the items of each bin, as they were put.
  void group(Bins& bins) const {
    bins.ends.assign(room_.size(), 0);
    bins.items.resize(sorted_.size());
    for (const auto bin : home_) ++bins.ends[bin];
    std::uint32_t sum = 0;
    for (auto& end : bins.ends) sum += std::exchange(end, sum);
    for (std::size_t place = 0; place < sorted_.size(); ++place) bins.items[bins.ends[home_[place]]++] = sorted_[place];
  }

  static constexpr int digit_bits = 11;
  static constexpr std::uint32_t digits = 1 << digit_bits;

  const std::uint32_t capacity_;
  RoomSet rooms_;                             // room that some bin has
  std::vector<std::uint32_t> first_, last_;   // bins of that room, in line
  std::vector<std::uint32_t> next_, room_;    // of each bin
  std::vector<std::uint32_t> sorted_, other_, home_;
};

// Packs each window of items by itself; names the bin of each item, or `no_bin`, and returns how many bins there are.
inline constexpr auto no_bin = std::numeric_limits<std::uint32_t>::max();

inline std::uint32_t pack_windows(std::span<const std::uint32_t> lengths, std::uint32_t capacity, std::size_t window,
                                  std::span<std::uint32_t> bin_of) {
  Packer packer(capacity);
  Bins bins;
  std::uint32_t before = 0;
  for (std::size_t start = 0; start < lengths.size(); start += window) {
    const auto count = std::min(window, lengths.size() - start);
    packer.pack(lengths.subspan(start, count), bins);
    std::ranges::fill(bin_of.subspan(start, count), no_bin);
    for (std::uint32_t bin = 0; bin < bins.count(); ++bin)
      for (const auto item : bins[bin]) bin_of[start + item] = before + bin;
    before += static_cast<std::uint32_t>(bins.count());
  }
  return before;
}

}  // namespace millstream
