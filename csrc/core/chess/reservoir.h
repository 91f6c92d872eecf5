// core/chess/reservoir.h: a shuffle of frames that never ends: each one that comes in takes the place of a random one, which goes out.
//
// Frames go into the slots in order until all are taken. From then on the frame with number `counter` goes into the slot
// that (seed, counter) names, and what was there leaves. Draining takes a slot that is named in the same way among those still
// taken, and the last frame moves into it. So slots and counter are all there is to know, and what comes out depends on
// nothing but the seed and what came in.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/chess/frames.h"
#include "core/order/permute.h"

namespace millstream {

// A number below `limit`, which is at most 2^32; the same for the same key and counter.
constexpr std::uint64_t keyed_below(std::uint64_t key, std::uint64_t counter, std::uint64_t limit) {
  const auto word = derive(key, counter);
  return ((word >> 32) * limit + ((word & 0xFFFFFFFFU) * limit >> 32)) >> 32;  // the upper half of word * limit
}

// The same bytes as `ORIGIN` of millstream.games; they may lie at any address.
struct [[gnu::packed]] Origin {
  std::uint64_t chunk;
  std::uint32_t ply, use;
};
static_assert(sizeof(Origin) == 16);

class Reservoir {
 public:
  // Frames that left, and from which slots.
  struct Emitted {
    FrameStore frames;
    std::vector<Origin> origins;
    std::vector<std::uint32_t> slots;
  };

  Reservoir(std::size_t capacity, std::uint64_t seed) : capacity_(checked(capacity)), seed_(seed) {
    slots_ = std::make_unique_for_overwrite<Slot[]>(capacity);  // pages are taken as slots are
  }

  std::size_t capacity() const { return capacity_; }
  std::size_t size() const { return size_; }
  std::uint64_t counter() const { return counter_; }
  std::size_t nbytes() const { return capacity_ * sizeof(Slot) + overflow_entries_ * sizeof(Entry); }

  // Takes frames in; gives those that they drive out. Columns must have been checked.
  Emitted exchange(const FrameColumns& in, std::span<const Origin> origins) {
    check_origins(in, origins);
    const auto free = std::min(capacity_ - size_, in.size());
    auto out = room_for(in.size() - free);
    for (std::size_t row = 0; row < free; ++row, ++counter_) put(size_++, in, row, origins[row]);
    for (std::size_t row = free; row < in.size(); ++row, ++counter_) {
      if (row + ahead < in.size()) fetch(keyed_below(seed_, counter_ + ahead, capacity_));
      const auto slot = keyed_below(seed_, counter_, capacity_);
      emit(slot, row - free, out);
      put(slot, in, row, origins[row]);
    }
    return out;
  }

  // Gives up to so many of the frames that are left, in random order; the last one moves into each free slot.
  Emitted drain(std::size_t most) {
    const auto count = std::min(most, size_);
    auto out = room_for(count);
    for (std::size_t row = 0; row < count; ++row, ++counter_) {
      const auto slot = keyed_below(seed_, counter_, size_);
      emit(slot, row, out);
      if (slot != --size_) move(size_, slot);
      else forget_overflow(slot);
    }
    return out;
  }

  std::vector<Origin> origins() const {
    std::vector<Origin> all(size_);
    for (std::size_t slot = 0; slot < size_; ++slot) all[slot] = slots_[slot].origin;
    return all;
  }

  // Puts frames into the slots from the first on, as if `counter` frames had come in or been drained before.
  void restore(const FrameColumns& in, std::span<const Origin> origins, std::uint64_t counter) {
    check_origins(in, origins);
    if (in.size() > capacity_) throw std::invalid_argument("reservoir: more frames than slots");
    overflow_.clear(), overflow_entries_ = 0;
    for (size_ = 0; size_ < in.size(); ++size_) put(size_, in, size_, origins[size_]);
    counter_ = counter;
  }

 private:
  static constexpr std::size_t inline_entries = 64;  // few positions have more legal moves
  static constexpr std::size_t ahead = 4;            // a slot is 22 lines, and far away

  struct Slot {
    GameFrame fields;
    Origin origin;
    std::uint32_t entries;
    std::uint16_t moves[inline_entries];
    float probabilities[inline_entries];
  };
  using Entry = std::pair<std::uint16_t, float>;

  static std::size_t checked(std::size_t capacity) {
    if (capacity == 0 || capacity >> 32 != 0) throw std::invalid_argument("reservoir: 1 to 2^32 - 1 slots");
    return capacity;
  }

  static void check_origins(const FrameColumns& in, std::span<const Origin> origins) {
    if (origins.size() != in.size()) throw std::invalid_argument("reservoir: one origin for each frame");
  }

  static Emitted room_for(std::size_t rows) {
    Emitted out{FrameStore(rows), {}, {}};
    out.origins.reserve(rows), out.slots.reserve(rows);
    return out;
  }

  void fetch(std::size_t slot) const {
    const auto* from = reinterpret_cast<const std::byte*>(&slots_[slot]);
    for (std::size_t line = 0; line < sizeof(Slot); line += 64) __builtin_prefetch(from + line, 1);
  }

  void put(std::size_t at, const FrameColumns& in, std::size_t row, const Origin& origin) {
    auto& slot = slots_[at];
    const auto begin = in.begin_of(row), entries = in.ends[row] - begin;
    const auto within = std::min(entries, inline_entries);
    slot.fields = in.fields[row];
    slot.origin = origin;
    slot.entries = static_cast<std::uint32_t>(entries);
    std::copy_n(in.moves.data() + begin, within, slot.moves);
    std::copy_n(in.probabilities.data() + begin, within, slot.probabilities);
    forget_overflow(at);
    if (entries == within) return;
    auto& rest = overflow_[at];
    for (auto i = begin + within; i < begin + entries; ++i) rest.emplace_back(in.moves[i], in.probabilities[i]);
    overflow_entries_ += rest.size();
  }

  void emit(std::size_t from, std::size_t row, Emitted& out) const {
    const auto& slot = slots_[from];
    auto& frames = out.frames;
    auto used = frames.entries();
    const auto within = std::min<std::size_t>(slot.entries, inline_entries);
    frames.make_room(used);
    frames.fields[row] = slot.fields;
    std::copy_n(slot.moves, within, frames.moves.get() + used);
    std::copy_n(slot.probabilities, within, frames.probabilities.get() + used);
    used += within;
    if (slot.entries > inline_entries)
      for (const auto& [move, probability] : overflow_.at(from)) {
        frames.moves[used] = move;
        frames.probabilities[used++] = probability;
      }
    frames.ends.push_back(static_cast<std::uint32_t>(used));
    out.origins.push_back(slot.origin);
    out.slots.push_back(static_cast<std::uint32_t>(from));
  }

  void move(std::size_t from, std::size_t to) {
    forget_overflow(to);
    slots_[to] = slots_[from];
    if (auto rest = overflow_.extract(from)) {
      rest.key() = to;
      overflow_.insert(std::move(rest));
    }
  }

  void forget_overflow(std::size_t slot) {
    if (overflow_.empty()) return;
    const auto found = overflow_.find(slot);
    if (found == overflow_.end()) return;
    overflow_entries_ -= found->second.size();
    overflow_.erase(found);
  }

  std::size_t capacity_, size_ = 0, overflow_entries_ = 0;
  std::uint64_t seed_, counter_ = 0;
  std::unique_ptr<Slot[]> slots_;
  std::unordered_map<std::size_t, std::vector<Entry>> overflow_;  // entries behind the first 64
};

}  // namespace millstream
