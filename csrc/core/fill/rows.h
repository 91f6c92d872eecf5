// core/fill/rows.h: sample of a store -> where its tokens lie in memory, cut at documents if asked. Nothing is copied yet, except
// for the few samples that cross shards and for those that lie in compressed shards.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/fill/assemble.h"
#include "core/memory/guard.h"
#include "core/memory/lru2.h"
#include "core/order/bin_windows.h"
#include "core/store/block_cache.h"
#include "core/store/shards.h"

namespace millstream {

// How documents meet in a row. `packed`: whole documents side by side, as a packing says.
enum class Documents : std::uint8_t { attend, isolate, row, packed };

struct FeedSource {
  std::shared_ptr<Shards> shards;
  std::uint32_t id_limit = 0;  // 0: ids were checked when the store was opened
  Documents documents = Documents::attend;
  std::shared_ptr<const Packing> packing = nullptr;  // which documents a row holds, where that is not its number
  std::size_t most_documents = 1;                    // in a row of that packing

  bool isolated() const { return documents == Documents::isolate || documents == Documents::packed; }
  bool whole_documents() const { return documents == Documents::row || documents == Documents::packed; }
  std::size_t most_rows() const { return documents == Documents::row ? most_documents : 1; }  // of a sample
  std::size_t budget() const { return packing ? packing->filling().budget : 0; }
};

struct FeedShape {
  std::size_t length = 0;
  Labels labels = Labels::next;
  std::int64_t pad_id = 0;
  std::size_t id_bytes = 8;
  MeanOf mean = MeanOf::targets;
  std::size_t unit = 0;  // rows are as long as the longest of their batch, in multiples of this; 0: all have `length`
};

// Where a row's tokens lie: contiguous in memory, and then where in them documents begin; or, where whole documents were packed,
// in several places.
struct FoundRow {
  Segment whole;  // of packed documents, the first
  std::size_t source = 0, shard = 0;
  std::size_t first_boundary = 0, boundaries = 0;  // in RowScratch::boundaries; only where documents are isolated
  std::size_t first_document = 0, documents = 0;   // in RowScratch::documents; only where they are packed
  std::uint64_t cut = 0;                           // tokens of documents that do not fit into the row
  std::optional<DocumentWeight> weight;            // of a document that is a row, where its index says so
};

// What a thread keeps between batches.
struct RowScratch {
  // The windows of a packing that rows were last found in: the order of an epoch stays in one for a while.
  struct Planned {
    Packer packer;
    LastTwo<PackedWindow> windows = {};
  };

  std::vector<FoundRow> rows;
  std::vector<std::uint32_t> boundaries;
  std::vector<Segment> documents;
  std::vector<std::optional<DocumentWeight>> weights;  // of those documents, where an index says so
  std::vector<std::optional<Planned>> planned;         // by source
  std::vector<std::byte> joined;  // samples that cross shards, brought together, or were decompressed
  std::size_t joined_bytes = 0;   // in use
  std::size_t sample_bytes = 0, most_joined_bytes = 0;
  std::vector<Segment> segments;
  DecodedBlocks blocks;

  // Room for a batch of samples of up to so many tokens, so that what was found stays where it is.
  void reset(std::size_t samples, std::size_t sample_tokens, const FeedShape& shape, bool isolates) {
    rows.clear();
    rows.reserve(samples);
    boundaries.clear();
    documents.clear();
    weights.clear();
    sample_bytes = joined_bytes_of(sample_tokens);
    joined_bytes = 0;
    most_joined_bytes = samples * sample_bytes;
    if (!isolates) return;
    boundaries.reserve(samples * (shape.length + 1));
    segments.reserve(shape.length + 2);
  }

  // What it may grow to, without blocks and windows; `joins` where samples may cross shards, or are decompressed.
  static std::size_t bytes(std::size_t samples, std::size_t most_rows, std::size_t sample_tokens, const FeedShape& shape,
                           bool isolates, bool joins) {
    const auto found = samples * most_rows * sizeof(FoundRow);
    const auto together = joins ? samples * joined_bytes_of(sample_tokens) : 0;
    if (!isolates) return found + together;
    return found + together + samples * (shape.length + 1) * sizeof(std::uint32_t) + (shape.length + 2) * sizeof(Segment);
  }

  std::byte* join_next() {
    if (joined_bytes == 0 && joined.size() < most_joined_bytes) joined.resize(most_joined_bytes);
    return joined.data() + std::exchange(joined_bytes, joined_bytes + sample_bytes);
  }

 private:
  // Of the widest tokens, and aligned for them.
  static std::size_t joined_bytes_of(std::size_t tokens) { return ((tokens + 1) * sizeof(std::uint32_t) + 7) / 8 * 8; }
};

// Finds rows of one store. What it found may be read for as long as it lives. Who only wants to weigh rows gets no tokens of
// documents whose index says what they weigh.
class RowFinder {
 public:
  enum class For : std::uint8_t { copying, weighing };

  RowFinder(const FeedSource& source, std::size_t number, const FeedShape& shape, RowScratch& scratch, For purpose = For::copying)
      : source_(source), number_(number), shards_(*source.shards), shape_(shape), scratch_(scratch), purpose_(purpose),
        reader_(shards_) {}

  // Adds the row of a sample to the scratch, or the rows, where documents that share a bin are rows of their own.
  void find(std::uint64_t sample) {
    const auto first = scratch_.rows.size();
    if (source_.packing) find_bin(sample);
    else scratch_.rows.push_back(source_.documents == Documents::row ? find_document(sample) : find_tokens(sample));
    for (auto row = first; row < scratch_.rows.size(); ++row) scratch_.rows[row].source = number_;
  }

 private:
  FoundRow find_tokens(std::uint64_t sample) {
    FoundRow found;
    found.first_boundary = scratch_.boundaries.size();
    found.whole = find_window(sample, found.shard);
    found.boundaries = scratch_.boundaries.size() - found.first_boundary;
    return found;
  }

  DataError behind_the_end(std::uint64_t sample) const {
    return DataError(shards_.path(0) + ": the store has no row " + std::to_string(sample));
  }

  FoundRow find_document(std::uint64_t sample) {
    if (sample >= shards_.documents()) throw behind_the_end(sample);
    const auto number = shards_.shard_of_document(sample);
    const auto facts = shards_.row(number);
    const auto document = sample - facts.first_document;
    if (document >= facts.documents) throw shards_.contradiction(number);
    const auto& shard = reader_.at(number);
    std::uint64_t start = 0, stop = 0, weight_word = 0;
    const bool alive = survives([&] {
      start = document == 0 ? 0 : shard.end(document - 1);
      stop = shard.end(document);
      if (shard.knows_weights()) weight_word = shard.weight_word(document);
    });
    if (!alive) throw shards_.shrunk(number);
    if (start > stop || stop > shard.token_count) throw shards_.damaged_index(number);
    const auto count = std::min<std::uint64_t>(stop - start, shape_.length);
    const auto cut = stop - start - count;
    FoundRow found;
    found.whole = {nullptr, static_cast<std::uint32_t>(count), cut > 0};
    found.shard = number;
    found.cut = cut;
    if (cut == 0 && shard.knows_weights()) found.weight = DocumentWeight::of(weight_word);
    if (purpose_ == For::copying || !found.weight) found.whole.tokens = tokens_at(number, shard, start, count + (cut > 0));
    return found;
  }

  void find_bin(std::uint64_t sample) {
    const auto& packing = *source_.packing;
    auto& planned = scratch_.planned[number_];
    if (!planned) planned.emplace(Packer(packing.capacity()));
    const auto number = sample / packing.window_documents(), bin = sample % packing.window_documents();
    auto& window = planned->windows.find([&](const PackedWindow& known) { return known.number == number; });
    if (window.number != number) packing.plan(number, window, planned->packer);
    if (bin >= window.bins.count()) throw behind_the_end(sample);
    const auto items = window.bins[bin];
    const auto share = source_.documents == Documents::row ? 1 : items.size();  // of a row
    auto* join = static_cast<std::byte*>(nullptr);
    for (std::size_t first = 0; first < items.size(); first += share) {
      FoundRow found;
      found.first_document = scratch_.documents.size();
      for (const auto item : items.subspan(first, share)) add_document(window.documents[item], found, join);
      found.documents = share;
      found.whole = scratch_.documents[found.first_document];
      scratch_.rows.push_back(found);
    }
  }

  // Adds a document to a row; `join` is where the sample's next decompressed document goes, if there was one.
  void add_document(const PackedDocument& document, FoundRow& row, std::byte*& join) {
    const auto& shard = reader_.at(document.shard);
    const bool followed = document.cut > 0 && source_.documents == Documents::row;  // packed ones learn what they hold
    std::optional<DocumentWeight> weight;
    if (document.cut == 0 && shard.knows_weights()) weight = DocumentWeight::of(document.weight_word);
    const std::byte* tokens = nullptr;
    if (shard.tokens != nullptr) {
      tokens = shard.tokens + document.start * shard.token_width;
    } else if (purpose_ == For::copying || !weight) {
      if (join == nullptr) join = scratch_.join_next();
      scratch_.blocks.copy(shards_, document.shard, shard, document.start, document.count + followed, join);
      tokens = std::exchange(join, join + (document.count + followed) * shard.token_width);
    }
    if (row.first_document == scratch_.documents.size()) row.shard = document.shard;
    scratch_.documents.push_back({tokens, document.count, followed});
    scratch_.weights.push_back(weight);
    row.cut += document.cut;
  }

  Segment find_window(std::uint64_t sample, std::size_t& number) {
    if (shards_.tokens() == 0 || sample > (shards_.tokens() - 1) / shape_.length) throw behind_the_end(sample);
    const auto first = sample * shape_.length;
    const auto total = std::min<std::uint64_t>(shape_.length + 1, shards_.tokens() - first);
    const auto inputs = static_cast<std::uint32_t>(std::min<std::uint64_t>(total, shape_.length));
    number = shards_.shard_of_token(first);
    const auto start = first - shards_.first_token(number);
    if (start >= shards_.tokens_of(number)) throw shards_.contradiction(number);
    if (total > shards_.tokens_of(number) - start) return {bring_together(first, total, number), inputs, total > inputs};
    const auto& shard = reader_.at(number);
    find_boundaries(number, shard, start, total, 0);
    return {tokens_at(number, shard, start, total), inputs, total > inputs};
  }

  // Tokens of one shard as they lie in its file, or unpacked into the scratch.
  const std::byte* tokens_at(std::size_t number, const Shards::Shard& shard, std::uint64_t start, std::uint64_t count) {
    if (shard.tokens != nullptr) return shard.tokens + start * shard.token_width;
    auto* const window = scratch_.join_next();
    scratch_.blocks.copy(shards_, number, shard, start, count, window);
    return window;
  }

  // Copies a window that crosses shards into the scratch, piece by piece.
  const std::byte* bring_together(std::uint64_t first, std::uint64_t total, std::size_t number) {
    const auto token_bytes = width(shards_.dtype());
    auto* const window = scratch_.join_next();
    for (std::uint64_t done = 0; done < total; ++number) {
      if (number == shards_.count()) throw shards_.contradiction(number - 1);
      const auto start = first + done - shards_.first_token(number);
      if (start > shards_.tokens_of(number)) throw shards_.contradiction(number);
      const auto take = std::min(total - done, shards_.tokens_of(number) - start);
      if (take == 0) continue;
      const auto& shard = reader_.at(number);
      auto* const to = window + done * token_bytes;
      copy_tokens(number, shard, start, take, to);
      if (done > 0 && source_.documents == Documents::isolate)
        scratch_.boundaries.push_back(static_cast<std::uint32_t>(done));  // a document never crosses shards
      find_boundaries(number, shard, start, take, done);
      done += take;
    }
    return window;
  }

  void copy_tokens(std::size_t number, const Shards::Shard& shard, std::uint64_t start, std::uint64_t count, std::byte* to) {
    if (shard.tokens == nullptr) return scratch_.blocks.copy(shards_, number, shard, start, count, to);
    const auto* const from = shard.tokens + start * shard.token_width;
    if (!survives([&] { std::memcpy(to, from, count * shard.token_width); })) throw shards_.shrunk(number);
  }

  // Where documents begin behind the first of [start, start + count) of a shard, counted from the window's first token.
  void find_boundaries(std::size_t number, const Shards::Shard& shard, std::uint64_t start, std::uint64_t count,
                       std::uint64_t shift) {
    if (source_.documents != Documents::isolate) return;
    auto& found = scratch_.boundaries;  // with room for all: nothing is allocated inside the guard
    bool damaged = false;
    const bool alive = survives([&] {
      auto document = shard.document_at(start);
      if ((damaged = document == shard.document_count)) return;
      for (auto end = shard.end(document); end < start + count && !damaged;) {
        found.push_back(static_cast<std::uint32_t>(shift + end - start));
        const auto previous = end;
        while (end == previous && ++document < shard.document_count) end = shard.end(document);
        damaged = end <= previous || end > shard.token_count;
      }
    });
    if (!alive) throw shards_.shrunk(number);
    if (damaged) throw shards_.damaged_index(number);
  }

  const FeedSource& source_;
  const std::size_t number_;  // of that source in its feed
  Shards& shards_;
  const FeedShape& shape_;
  RowScratch& scratch_;
  const For purpose_;
  Shards::Reader reader_;
};

// Cuts a found row into segments. The extra token behind the inputs is a target only within its own document.
inline void cut_row(const FoundRow& row, std::size_t token_bytes, std::span<const std::uint32_t> boundaries,
                    std::vector<Segment>& segments) {
  segments.clear();
  const auto* const tokens = static_cast<const std::byte*>(row.whole.tokens);
  std::uint32_t begin = 0;
  bool followed = row.whole.followed;
  for (const auto boundary : boundaries) {
    if (boundary < row.whole.count) {
      segments.push_back({tokens + begin * token_bytes, boundary - begin, false});
      begin = boundary;
    }
    if (boundary == row.whole.count) followed = false;
  }
  segments.push_back({tokens + begin * token_bytes, row.whole.count - begin, followed});
}

}  // namespace millstream
