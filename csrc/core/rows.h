// core/rows.h: sample of a store -> row of a batch. Finds a sample's tokens, cuts them at documents if asked, and assembles.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "core/assemble.h"
#include "core/batch.h"
#include "core/guard.h"
#include "core/shards.h"

namespace millstream {

enum class Documents : std::uint8_t { attend, isolate, row };

struct FeedShape {
  std::size_t length = 0;
  Labels labels = Labels::next;
  Documents documents = Documents::attend;
  std::int64_t pad_id = 0;
  std::size_t id_bytes = 8;
};

// What a thread keeps between rows.
struct RowScratch {
  std::vector<std::byte> window;          // a row that crosses shards, brought together
  std::vector<std::uint32_t> boundaries;  // where documents begin inside a window
  std::vector<Segment> segments;
};

// Writes rows of one store for as long as it lives: at most one batch.
class RowWriter {
 public:
  RowWriter(Shards& shards, const FeedShape& shape, std::uint32_t id_limit, RowScratch& scratch)
      : shards_(shards), shape_(shape), id_limit_(id_limit), scratch_(scratch), reader_(shards) {}

  // Writes a sample; returns its real tokens and adds to `cut` what did not fit.
  template <typename Out>
  std::size_t write(std::uint64_t sample, const RowSpace<Out>& space, std::size_t row_start, SegmentStarts* starts,
                    std::uint64_t& cut) {
    switch (shards_.dtype()) {
      case Dtype::uint16: return write_from<std::uint16_t>(sample, space, row_start, starts, cut);
      case Dtype::uint32: return write_from<std::uint32_t>(sample, space, row_start, starts, cut);
      default: return write_from<std::int32_t>(sample, space, row_start, starts, cut);
    }
  }

 private:
  // A row's tokens, contiguous in memory.
  struct Window {
    const std::byte* tokens;
    std::uint32_t count;  // inputs
    bool followed;        // one more token is there, as a target
    std::size_t shard;
  };

  template <typename In, typename Out>
  std::size_t write_from(std::uint64_t sample, const RowSpace<Out>& space, std::size_t row_start, SegmentStarts* starts,
                         std::uint64_t& cut) {
    scratch_.boundaries.clear();
    const auto window =
        shape_.documents == Documents::row ? document_window(sample, cut) : token_window(sample);
    cut_segments(window, sizeof(In));
    std::size_t tokens = 0;
    const bool alive = survives([&] {
      check_ids(reinterpret_cast<const In*>(window.tokens), window.count + window.followed, window.shard);
      tokens = assemble_row<In, Out>(scratch_.segments, {shape_.length, shape_.labels, shape_.pad_id}, space, row_start, starts);
    });
    if (!alive) throw shrunk(window.shard);
    return tokens;
  }

  DataError shrunk(std::size_t shard) const {
    return DataError(shards_.path(shard) + ": became shorter, or unreadable, while it was being read");
  }

  DataError damaged_index(std::size_t shard) const {
    return DataError(shards_.path(shard) + ": its document index is damaged");
  }

  DataError behind_the_end(std::uint64_t sample) const {
    return DataError(shards_.path(0) + ": the store has no row " + std::to_string(sample));
  }

  DataError wrong_table(std::size_t shard) const {
    return DataError(shards_.path(shard) + ": the table that describes this shard contradicts itself");
  }

  Window document_window(std::uint64_t sample, std::uint64_t& cut) {
    if (sample >= shards_.documents()) throw behind_the_end(sample);
    const auto number = shards_.shard_of_document(sample);
    const auto facts = shards_.row(number);
    const auto document = sample - facts.first_document;
    if (document >= facts.documents) throw wrong_table(number);
    const auto& shard = reader_.at(number);
    std::uint64_t start = 0, stop = 0;
    const bool alive = survives([&] {
      start = document == 0 ? 0 : shard.end(document - 1);
      stop = shard.end(document);
    });
    if (!alive) throw shrunk(number);
    if (start > stop || stop > shard.token_count) throw damaged_index(number);
    const auto count = std::min<std::uint64_t>(stop - start, shape_.length);
    cut += stop - start - count;
    return {shard.tokens + start * shard.token_width, static_cast<std::uint32_t>(count), stop - start > count, number};
  }

  Window token_window(std::uint64_t sample) {
    if (shards_.tokens() == 0 || sample > (shards_.tokens() - 1) / shape_.length) throw behind_the_end(sample);
    const auto first = sample * shape_.length;
    const auto total = std::min<std::uint64_t>(shape_.length + 1, shards_.tokens() - first);
    const auto inputs = static_cast<std::uint32_t>(std::min<std::uint64_t>(total, shape_.length));
    const auto number = shards_.shard_of_token(first);
    const auto facts = shards_.row(number);
    const auto start = first - facts.first_token;
    if (start >= facts.tokens) throw wrong_table(number);
    if (total > facts.tokens - start) {
      bring_together(first, total, number);
      return {scratch_.window.data(), inputs, total > inputs, number};
    }
    const auto& shard = reader_.at(number);
    find_boundaries(number, shard, start, total, 0);
    return {shard.tokens + start * shard.token_width, inputs, total > inputs, number};
  }

  // Copies a window that crosses shards into the scratch, piece by piece.
  void bring_together(std::uint64_t first, std::uint64_t total, std::size_t number) {
    const auto token_bytes = width(shards_.dtype());
    scratch_.window.resize(total * token_bytes);
    for (std::uint64_t done = 0; done < total; ++number) {
      if (number == shards_.count()) throw wrong_table(number - 1);
      const auto facts = shards_.row(number);
      const auto start = first + done - facts.first_token;
      if (start > facts.tokens) throw wrong_table(number);
      const auto take = std::min(total - done, facts.tokens - start);
      if (take == 0) continue;
      const auto& shard = reader_.at(number);
      auto* const to = scratch_.window.data() + done * token_bytes;
      const auto* const from = shard.tokens + start * token_bytes;
      if (!survives([&] { std::memcpy(to, from, take * token_bytes); })) throw shrunk(number);
      if (done > 0) scratch_.boundaries.push_back(static_cast<std::uint32_t>(done));  // a document never crosses shards
      find_boundaries(number, shard, start, take, done);
      done += take;
    }
  }

  // Where documents begin behind the first of [start, start + count) of a shard, counted from the window's first token.
  void find_boundaries(std::size_t number, const Shards::Shard& shard, std::uint64_t start, std::uint64_t count,
                       std::uint64_t shift) {
    if (shape_.documents != Documents::isolate) return;
    auto& found = scratch_.boundaries;
    found.reserve(found.size() + count);  // so that nothing is allocated inside the guard
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
    if (!alive) throw shrunk(number);
    if (damaged) throw damaged_index(number);
  }

  // Window and boundaries -> segments. The extra token behind the inputs is a target only within its own document.
  void cut_segments(const Window& window, std::size_t token_bytes) {
    auto& segments = scratch_.segments;
    segments.clear();
    const bool isolate = shape_.documents == Documents::isolate;
    std::uint32_t begin = 0;
    bool followed = window.followed;
    const auto add = [&](std::uint32_t end, bool has_target) {
      segments.push_back({window.tokens + begin * token_bytes, end - begin, has_target});
      begin = end;
    };
    if (isolate) {
      for (const auto boundary : scratch_.boundaries) {
        if (boundary < window.count) add(boundary, false);
        if (boundary == window.count) followed = false;
      }
    }
    add(window.count, followed);
  }

  template <typename In>
  void check_ids(const In* tokens, std::size_t count, std::size_t shard) const {
    if (id_limit_ == 0) return;
    if (const auto top = largest(tokens, count); top >= id_limit_)
      throw DataError(shards_.path(shard) + ": holds the id " + std::to_string(top) + ", but the vocabulary ends at " +
                      std::to_string(id_limit_ - 1));
  }

  Shards& shards_;
  const FeedShape& shape_;
  std::uint32_t id_limit_;
  RowScratch& scratch_;
  Shards::Reader reader_;
};

}  // namespace millstream
