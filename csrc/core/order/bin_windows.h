// core/order/bin_windows.h: documents of a store -> windows -> bins. Only lengths are read; the tokens stay where they are.
//
// Windows are cut from an order of the documents that does not depend on the epoch: keyed, or as they lie in the file. What a
// bin holds follows from the lengths in its window, so any thread can work it out again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/memory/guard.h"
#include "core/order/bins.h"
#include "core/order/permute.h"
#include "core/order/windows.h"
#include "core/store/shards.h"

namespace millstream {

struct PackedDocument {
  std::uint64_t number = 0;
  std::uint64_t start = 0;  // in its shard
  std::uint64_t cut = 0;    // tokens that do not fit a bin
  std::uint64_t weight_word = 0;
  std::uint32_t shard = 0;
  std::uint32_t count = 0;
};

struct PackedWindow {
  std::uint64_t number = ~0ULL;
  std::vector<PackedDocument> documents;
  std::vector<std::uint32_t> lengths;
  Bins bins;
};

// What shares a bin. best_fit: as many documents as fit into one row. alone: one. by_length: one, or as many rows as a budget
// allows; the bins of a window stand from the longest document to the shortest.
enum class Fill : std::uint8_t { best_fit, alone, by_length };

// How bins are filled. A bin of several rows is as long as its longest document, padded to a multiple of `unit`.
struct Filling {
  Fill fill = Fill::best_fit;
  std::uint64_t budget = 0;  // by_length: places of a bin of rows, padding too; 0: a bin is one row
  std::uint32_t unit = 0;    // 0: every row is as long as the capacity
};

// How long rows are whose longest has so many tokens.
inline std::size_t padded_length(std::size_t longest, std::size_t unit, std::size_t most) {
  if (unit == 0) return most;
  return std::min(most, std::max<std::size_t>(1, (longest + unit - 1) / unit) * unit);
}

class Packing {
 public:
  Packing(std::shared_ptr<Shards> shards, std::uint64_t window_documents, std::uint32_t capacity,
          std::optional<std::uint64_t> key, const Filling& filling = {},
          std::optional<std::uint64_t> documents = std::nullopt)
      : shards_(std::move(shards)),
        documents_(std::min(shards_->documents(), documents.value_or(shards_->documents()))),
        window_documents_(window_documents),
        capacity_(capacity),
        filling_(filling) {
    if (window_documents_ == 0 || window_documents_ > most_window) throw std::invalid_argument("windows of 1 to 2^20 documents");
    if (capacity_ == 0 || capacity_ > most_capacity) throw std::invalid_argument("bins hold 1 to 2^20 tokens");
    if (filling_.budget > 0 && (filling_.fill != Fill::by_length || filling_.budget < capacity_ || filling_.budget > most_budget))
      throw std::invalid_argument("a budget holds at least one row and less than 2^31 tokens, and goes by length");
    if (key && documents_ > 0) members_.emplace(documents_, *key);
  }

  std::uint32_t capacity() const { return capacity_; }
  std::uint64_t window_documents() const { return window_documents_; }
  const Filling& filling() const { return filling_; }
  std::uint64_t windows() const { return (documents_ + window_documents_ - 1) / window_documents_; }

  // What a thread needs to plan a window, and to remember two of them.
  std::size_t bytes() const {
    const auto items = std::min(window_documents_, documents_);
    return Packer::bytes(capacity_, items) + items * (2 * (sizeof(PackedDocument) + 12) + 16);
  }

  void plan(std::uint64_t number, PackedWindow& window, Packer& packer) const {
    window.number = ~0ULL;  // until it is whole
    const auto first = number * window_documents_;
    if (first >= documents_) throw std::out_of_range("a packing has no window " + std::to_string(number));
    const auto count = std::min(window_documents_, documents_ - first);
    window.documents.resize(count);
    window.lengths.resize(count);
    look_up(first, window.documents);
    std::ranges::transform(window.documents, window.lengths.begin(), &PackedDocument::count);
    switch (filling_.fill) {
      case Fill::best_fit: packer.pack(window.lengths, window.bins); break;
      case Fill::alone: list_each(window.lengths, window.bins); break;
      case Fill::by_length: list_groups(window.lengths, packer.sorted(window.lengths), window.bins); break;
    }
    window.number = number;
  }

  // Window and place in it of a document.
  std::pair<std::uint64_t, std::uint64_t> place_of(std::uint64_t document) const {
    const auto place = members_ ? members_->inverse(document) : document;
    return {place / window_documents_, place % window_documents_};
  }

  static constexpr std::uint64_t most_window = std::uint64_t{1} << 20;
  static constexpr std::uint64_t most_budget = (std::uint64_t{1} << 31) - 1;

 private:
  // Where the documents lie. Shards are mapped first: nothing is opened inside the guard.
  void look_up(std::uint64_t first, std::span<PackedDocument> documents) const {
    Shards::Reader reader(*shards_);
    std::vector<const Shards::Shard*> mapped(documents.size());
    std::vector<std::uint64_t> numbers(documents.size());
    std::iota(numbers.begin(), numbers.end(), first);
    if (members_) members_->at(numbers, numbers);
    for (std::size_t i = 0; i < documents.size(); ++i) {
      auto& document = documents[i];
      document.number = numbers[i];
      document.shard = static_cast<std::uint32_t>(shards_->shard_of_document(document.number));
      const auto facts = shards_->row(document.shard);
      if (document.number - facts.first_document >= facts.documents) throw shards_->contradiction(document.shard);
      mapped[i] = &reader.at(document.shard);
    }
    volatile std::size_t number = 0;  // readable after a jump out of the reading
    const bool alive = survives([&] {
      for (std::size_t i = 0; i < documents.size(); ++i) {
        number = i;
        auto& document = documents[i];
        const auto local = document.number - shards_->first_document(document.shard);
        document.start = local == 0 ? 0 : mapped[i]->end(local - 1);
        document.cut = mapped[i]->end(local);  // its end, until all are known
        if (mapped[i]->knows_weights()) document.weight_word = mapped[i]->weight_word(local);
      }
    });
    if (!alive) throw shards_->shrunk(documents[number].shard);
    for (std::size_t i = 0; i < documents.size(); ++i) settle(documents[i], mapped[i]->token_count);
  }

  // A bin for each item that has a length, as they come.
  static void list_each(std::span<const std::uint32_t> lengths, Bins& bins) {
    bins.items.clear();
    bins.ends.clear();
    for (std::uint32_t item = 0; item < lengths.size(); ++item) {
      if (lengths[item] == 0) continue;
      bins.items.push_back(item);
      bins.ends.push_back(static_cast<std::uint32_t>(bins.items.size()));
    }
  }

  // A bin for the longest item that is left, and for as many of the next as the budget has rows of that length.
  void list_groups(std::span<const std::uint32_t> lengths, std::span<const std::uint32_t> sorted, Bins& bins) const {
    bins.items.assign(sorted.begin(), sorted.end());
    bins.ends.clear();
    for (std::size_t end = 0; end < sorted.size();) {
      const auto rows = filling_.budget == 0 ? 1 : filling_.budget / padded_length(lengths[sorted[end]], filling_.unit, capacity_);
      end = std::min<std::size_t>(end + rows, sorted.size());
      bins.ends.push_back(static_cast<std::uint32_t>(end));
    }
  }

  void settle(PackedDocument& document, std::uint64_t tokens) const {
    const auto stop = document.cut;
    if (document.start > stop || stop > tokens) throw shards_->damaged_index(document.shard);
    document.count = static_cast<std::uint32_t>(std::min<std::uint64_t>(stop - document.start, capacity_));
    document.cut = stop - document.start - document.count;
  }

  std::shared_ptr<Shards> shards_;
  std::uint64_t documents_;  // that are packed: all, or the first so many
  std::uint64_t window_documents_;
  std::uint32_t capacity_;
  Filling filling_;
  std::optional<Permutation> members_;
};

// How many bins each window has, and what the fullest bin holds.
struct PackingFacts {
  Windows windows;
  std::uint64_t tokens = 0, cut = 0, empty = 0;
  std::size_t most_documents = 0;  // in a bin
  std::uint64_t longest = 0;       // the first bin that holds a longest document, where bins go by length
};

inline PackingFacts count_bins(const Packing& packing) {
  PackingFacts facts;
  facts.windows.rows = packing.window_documents();
  std::uint32_t most = 0;
  Packer packer(packing.capacity());
  PackedWindow window;
  for (std::uint64_t number = 0; number < packing.windows(); ++number) {
    packing.plan(number, window, packer);
    facts.windows.bins.push_back(window.bins.count());
    if (packing.filling().fill == Fill::by_length && window.bins.count() > 0 && window.lengths[window.bins[0][0]] > most) {
      most = window.lengths[window.bins[0][0]];
      facts.longest = number * packing.window_documents();
    }
    for (std::size_t bin = 0; bin < window.bins.count(); ++bin)
      facts.most_documents = std::max(facts.most_documents, window.bins[bin].size());
    for (const auto& document : window.documents) {
      facts.tokens += document.count;
      facts.cut += document.cut;
      facts.empty += document.count == 0;
    }
  }
  return facts;
}

}  // namespace millstream
