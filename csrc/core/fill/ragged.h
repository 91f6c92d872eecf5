// core/fill/ragged.h: rollouts whose tokens lie end to end -> rows of a batch, with a column for everything that is said of each token.
//
// Ids, labels, positions and segment starts are made by assemble.h. The other columns are laid beside the labels: where a label
// is the next token, so is whatever is said of it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/fill/assemble.h"
#include "core/kernels/kernels.h"
#include "core/memory/batch.h"
#include "core/memory/guard.h"

namespace millstream {

struct TokenColumn {
  enum class Kind : std::uint8_t {
    copied,   // bytes as they are
    masked,   // floats, 0 where nothing is learned
    widened,  // uint32, as wide as ids
    spread,   // one double per rollout, as a float for every token that is learned
    last,     // one double per rollout, as a float for the last token that is learned
  };
  Kind kind;
  std::size_t width;        // bytes of a token in the batch
  bool of_inputs = false;   // beside the inputs, not the labels

  bool per_rollout() const { return kind == Kind::spread || kind == Kind::last; }
  bool of_learned() const { return per_rollout() || kind == Kind::masked; }  // floats
};

// Rollouts in columns, borrowed from their owner. Rollout r is tokens [r == 0 ? 0 : ends[r - 1], ends[r]).
struct RaggedBlock {
  std::span<const std::int64_t> ends;
  std::span<const std::uint32_t> tokens;
  const std::uint8_t* mask;          // one byte per token
  std::vector<const void*> columns;  // one value per token, or per rollout

  void check() const {
    std::int64_t last = 0;
    for (const auto end : ends) {
      if (end <= last) throw std::invalid_argument("ends of rollouts do not rise: each has a token at least");
      last = end;
    }
    if (static_cast<std::size_t>(last) != tokens.size())
      throw std::invalid_argument("the last rollout does not end with the tokens");
  }
};

struct RaggedPlace {
  std::uint64_t block, row;
  double weight = 1;  // of its targets in the loss
};

struct RaggedShape {
  Labels labels = Labels::next;
  std::int64_t pad_id = 0;
  std::size_t id_bytes = 8;
  bool packed = false;  // several rollouts in a row, with positions and segment starts
};

class RaggedRows {
 public:
  RaggedRows(const RaggedShape& shape, std::vector<TokenColumn> columns, std::vector<RaggedBlock> blocks)
      : shape_(shape), columns_(std::move(columns)), blocks_(std::move(blocks)) {
    if (shape.id_bytes != 4 && shape.id_bytes != 8) throw std::invalid_argument("ids have 4 or 8 bytes");
    for (const auto& column : columns_) {
      const auto width = column.of_learned() ? sizeof(float) : column.kind == Kind::widened ? shape.id_bytes : column.width;
      if (column.width != width || width == 0 || width > most_width) throw std::invalid_argument("a column is of another width");
    }
    for (const auto& block : blocks_) {
      block.check();
      if (block.columns.size() != columns_.size()) throw std::invalid_argument("a block lacks a column");
    }
  }

  const std::vector<TokenColumn>& columns() const { return columns_; }

  BatchLayout layout(std::size_t rows, std::size_t length, bool weighted) const {
    constexpr auto most = static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max());  // a segment start is an int32
    if (rows > 0 && length > most / rows) throw std::invalid_argument("a batch has at most 2^31 tokens");
    BatchLayout layout{.rows = rows, .length = length, .id_bytes = shape_.id_bytes, .isolated = shape_.packed,
                       .weighted = weighted};
    for (const auto& column : columns_) layout.further_bytes += BatchLayout::aligned(rows * length * column.width);
    return layout;
  }

  // Where a further column begins in a batch.
  std::size_t offset(const BatchLayout& layout, std::size_t number) const {
    auto offset = layout.further_offset();
    for (std::size_t i = 0; i < number; ++i) offset += BatchLayout::aligned(layout.rows * layout.length * columns_[i].width);
    return offset;
  }

  // Tokens of the longest row.
  std::size_t longest(std::span<const RaggedPlace> places, std::span<const std::uint64_t> row_ends) const {
    std::size_t most = 0, place = 0;
    for (const auto end : row_ends) {
      std::size_t tokens = 0;
      for (; place < std::min<std::size_t>(end, places.size()); ++place) tokens += tokens_of(places[place]).size();
      most = std::max(most, tokens);
    }
    return most;
  }

  // Fills a batch: row r is the rollouts [r == 0 ? 0 : row_ends[r - 1], row_ends[r]) of `places`.
  void fill(std::span<const RaggedPlace> places, std::span<const std::uint64_t> row_ends, Batch& batch) const {
    const auto found = located(places);
    check_rows(found.segments, row_ends, batch.layout());
    const bool whole = survives([&] {
      if (shape_.id_bytes == 8) fill_rows<std::int64_t>(found, row_ends, batch);
      else fill_rows<std::int32_t>(found, row_ends, batch);
    });
    if (!whole) throw std::runtime_error("a file of rollouts was cut while it was read");
  }

 private:
  static constexpr std::size_t most_width = std::size_t{1} << 20;
  using Kind = TokenColumn::Kind;

  // Where a rollout lies in its block.
  struct Origin {
    const RaggedBlock* block;
    std::size_t row, start;
    double weight;
  };

  // Rollouts of a row, among those that were located.
  struct Stretch {
    std::size_t begin, end;
  };

  struct Located {
    std::vector<Segment> segments;
    std::vector<Origin> origins;
  };

  Located located(std::span<const RaggedPlace> places) const {
    Located found;
    found.segments.reserve(places.size());
    found.origins.reserve(places.size());
    for (const auto& place : places) {
      const auto tokens = tokens_of(place);
      const auto& block = blocks_[place.block];
      const auto start = static_cast<std::size_t>(tokens.data() - block.tokens.data());
      if (tokens.size() > std::numeric_limits<std::int32_t>::max())
        throw std::invalid_argument("a rollout has more than 2^31 tokens");
      found.segments.push_back({tokens.data(), static_cast<std::uint32_t>(tokens.size()), false, block.mask + start});
      found.origins.push_back({&block, place.row, start, place.weight});
    }
    return found;
  }

  std::span<const std::uint32_t> tokens_of(const RaggedPlace& place) const {
    if (place.block >= blocks_.size() || place.row >= blocks_[place.block].ends.size())
      throw std::out_of_range("there is no such rollout");
    const auto& [ends, tokens, mask, columns] = blocks_[place.block];
    const auto start = static_cast<std::size_t>(place.row == 0 ? 0 : ends[place.row - 1]);
    return tokens.subspan(start, static_cast<std::size_t>(ends[place.row]) - start);
  }

  static void check_rows(std::span<const Segment> segments, std::span<const std::uint64_t> row_ends, const BatchLayout& layout) {
    std::uint64_t begin = 0;
    for (const auto end : row_ends) {
      if (end < begin || end > segments.size()) throw std::invalid_argument("ends of rows fall, or lie beyond the last rollout");
      std::size_t tokens = 0;
      for (; begin < end; ++begin) tokens += segments[begin].count;
      if (tokens > layout.length) throw std::invalid_argument("the rollouts of a row are longer than it");
    }
    if (begin != segments.size() || row_ends.size() != layout.rows) throw std::invalid_argument("a rollout has no row");
  }

  template <typename Out>
  void fill_rows(const Located& found, std::span<const std::uint64_t> row_ends, Batch& batch) const {
    const auto& layout = batch.layout();
    SegmentStarts starts{batch.starts()};
    batch.facts = {};
    std::uint64_t begin = 0;
    for (std::size_t row = 0; row < layout.rows; begin = row_ends[row++]) {
      const Stretch own{begin, row_ends[row]};
      if (own.end < found.segments.size()) {  // assemble.h asks for what it sees, and that is one row
        const auto& next = found.segments[own.end];
        prefetch(next.tokens, next.count * sizeof(std::uint32_t));
        prefetch(next.mask, next.count);
      }
      fill_ids<Out>(std::span(found.segments).subspan(own.begin, own.end - own.begin), row, batch, starts);
      if (layout.weighted)
        fill_column<Out>({Kind::spread, sizeof(float)}, found, own, batch.weights() + row * layout.length, layout.length,
                         [](const Origin& origin) { return &origin.weight; });
      for (std::size_t number = 0; number < columns_.size(); ++number)
        fill_column<Out>(columns_[number], found, own,
                         batch.data() + offset(layout, number) + row * layout.length * columns_[number].width, layout.length,
                         [&](const Origin& origin) { return value_of(origin, number); });
    }
    batch.facts.rows = layout.rows;
    batch.facts.fractional = layout.weighted;
    if (!layout.isolated) return;
    starts.starts[starts.count] = static_cast<std::int32_t>(layout.rows * layout.length);
    batch.facts.segments = starts.count;
    batch.facts.longest_segment = starts.longest;
  }

  template <typename Out>
  void fill_ids(std::span<const Segment> segments, std::size_t row, Batch& batch, SegmentStarts& starts) const {
    const auto& layout = batch.layout();
    auto* const inputs = reinterpret_cast<Out*>(batch.data()) + row * layout.length;
    const auto column = layout.column_bytes() / sizeof(Out);
    const RowSpace<Out> space{inputs, inputs + column, layout.isolated ? inputs + 2 * column : nullptr};
    const auto facts = assemble_row<std::uint32_t, Out>(segments, {layout.length, shape_.labels, shape_.pad_id}, space,
                                                        row * layout.length, layout.isolated ? &starts : nullptr);
    batch.lengths()[row] = static_cast<std::int32_t>(facts.tokens);
    batch.facts.tokens += facts.tokens;
    batch.facts.targets += facts.targets;
  }

  // Lays the values of a row's tokens where those of its labels are. Nothing is said where there is no token to speak of: 0.
  template <typename Out, typename Data>
  void fill_column(const TokenColumn& column, const Located& found, Stretch own, void* row, std::size_t length,
                   const Data& data_of) const {
    const bool ahead = shape_.labels == Labels::next && !column.of_inputs;
    auto* out = static_cast<std::byte*>(row);
    for (auto i = own.begin; i < own.end; ++i) {
      const auto& origin = found.origins[i];
      const std::size_t count = found.segments[i].count, end = count * column.width;
      if (i + 1 < found.origins.size()) ask_for(column, found.origins[i + 1], data_of, found.segments[i + 1].count);
      copy<Out>(column, found.segments[i], origin, data_of(origin), ahead ? 1 : 0, out, count - ahead);
      if (ahead) std::memset(out + end - column.width, 0, column.width);
      else if (column.of_learned()) std::memset(out, 0, column.width);  // nothing predicts the first
      out += end;
      length -= count;
    }
    std::memset(out, 0, length * column.width);
  }

  // Whatever comes next lies elsewhere: in another rollout, often in another block.
  template <typename Data>
  static void ask_for(const TokenColumn& column, const Origin& next, const Data& data_of, std::size_t count) {
    if (column.per_rollout()) return;
    const auto width = column.kind == Kind::widened ? sizeof(std::uint32_t) : column.width;
    prefetch(static_cast<const std::byte*>(static_cast<const void*>(data_of(next))) + next.start * width, count * width);
  }

  // A column of a block; of one that has a value per rollout, that value.
  const void* value_of(const Origin& origin, std::size_t number) const {
    const auto* const column = origin.block->columns[number];
    return columns_[number].per_rollout() ? static_cast<const double*>(column) + origin.row : column;
  }

  // Writes what is said of `count` tokens of a rollout, from one on.
  template <typename Out>
  static void copy(const TokenColumn& column, const Segment& segment, const Origin& origin, const void* data, std::size_t first,
                   std::byte* out, std::size_t count) {
    const auto start = origin.start + first;
    const auto* const mask = segment.mask + first;
    switch (column.kind) {
      case Kind::copied:
        std::memcpy(out, static_cast<const std::byte*>(data) + start * column.width, count * column.width);
        return;
      case Kind::masked:
        return keep_where(mask, static_cast<const float*>(data) + start, reinterpret_cast<float*>(out), count);
      case Kind::widened:
        return widen(static_cast<const std::uint32_t*>(data) + start, reinterpret_cast<Out*>(out), count);
      case Kind::spread:
        return put_where(mask, static_cast<float>(*static_cast<const double*>(data)), reinterpret_cast<float*>(out), count);
      case Kind::last:
        std::memset(out, 0, count * sizeof(float));
        while (count > 0 && !mask[count - 1]) --count;
        if (count > 0) reinterpret_cast<float*>(out)[count - 1] = static_cast<float>(*static_cast<const double*>(data));
        return;
    }
  }

  RaggedShape shape_;
  std::vector<TokenColumn> columns_;
  std::vector<RaggedBlock> blocks_;
};

}  // namespace millstream
