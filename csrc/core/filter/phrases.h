// core/filter/phrases.h: which of many phrases a text contains, comparing folded words. For blocklists and eval sets.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "core/text/fold.h"

namespace millstream {

class PhraseIndex {
 public:
  static constexpr std::int64_t none = -1;

  // Adds every run of n words of `text` (n = 0: the whole text as one phrase), and says how many it has.
  std::size_t add(std::string_view text, std::size_t n, std::int64_t label) {
    const Shingles shingles = shingles_of(text);
    const std::size_t words = n == 0 ? shingles.words() : n;
    if (words == 0 || words > shingles.words()) return 0;
    if (std::find(lengths_.begin(), lengths_.end(), words) == lengths_.end()) lengths_.push_back(words);
    const std::uint64_t power = Shingles::power(words);
    const std::size_t runs = shingles.words() - words + 1;
    for (std::size_t i = 0; i < runs; ++i) put(shingles.at(i, words, power), label);
    return runs;
  }

  // The smallest label among the phrases that stand in `text`, or none.
  std::int64_t find(std::string_view text) const {
    const Shingles shingles = shingles_of(text);
    std::int64_t best = none;
    for (const std::size_t n : lengths_) {
      const std::uint64_t power = Shingles::power(n);
      for (std::size_t i = 0; i + n <= shingles.words(); ++i) {
        const Slot& slot = slots_[place(shingles.at(i, n, power))];
        if (slot.label != none && (best == none || slot.label < best)) best = slot.label;
      }
    }
    return best;
  }

  std::size_t size() const { return size_; }

 private:
  struct Slot {
    std::uint64_t hash = 0;
    std::int64_t label = none;
  };

  Shingles shingles_of(std::string_view text) const {
    std::vector<std::uint64_t> words;
    hash_words(text, unicode_, words);
    return Shingles(words);
  }

  // Where `hash` is, or could be put.
  std::size_t place(std::uint64_t hash) const {
    std::size_t at = hash & (slots_.size() - 1);
    while (slots_[at].label != none && slots_[at].hash != hash) at = (at + 1) & (slots_.size() - 1);
    return at;
  }

  // The first label of a phrase stays.
  void put(std::uint64_t hash, std::int64_t label) {
    if (2 * (size_ + 1) > slots_.size()) {
      std::vector<Slot> old(2 * slots_.size());
      old.swap(slots_);
      for (const Slot& slot : old)
        if (slot.label != none) slots_[place(slot.hash)] = slot;
    }
    Slot& slot = slots_[place(hash)];
    if (slot.label != none) return;
    slot = {hash, label};
    ++size_;
  }

  Unicode unicode_;
  std::vector<std::size_t> lengths_;
  std::vector<Slot> slots_ = std::vector<Slot>(1024);
  std::size_t size_ = 0;
};

}  // namespace millstream
