// core/fill/assemble.h: segments of tokens -> the rows of a batch. The one place where ids, labels, positions and cu_seqlens are made,
// but for the mismatched rows of KTO, which are joined of filled rows of a batch (loaders/answers.py).
//
// A row is a list of segments laid side by side and padded to its length. Tokens of a segment may see each other; nothing
// crosses from one segment to the next. A pretraining window is one segment, a row of isolated documents has several.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "core/kernels/kernels.h"

namespace millstream {

struct Segment {
  const void* tokens;
  std::uint32_t count;
  bool followed;  // tokens[count] exists and is the target of the last token
  const std::uint8_t* mask = nullptr;  // which tokens are learned, one byte each; null: all that the tokens themselves say
};

enum class Labels : std::uint8_t { next, same };

// What a loss is a mean of: of targets, or of segments, each of which is a mean of its own targets.
enum class MeanOf : std::uint8_t { targets, segments };

struct RowFormat {
  std::size_t length;
  Labels labels;
  std::int64_t pad_id;
  MeanOf mean = MeanOf::targets;
};

// Where one row goes. `positions` is null unless the batch isolates its segments.
template <typename Out>
struct RowSpace {
  Out* inputs;
  Out* labels;
  Out* positions;
};

// The starts of all segments of a batch, as offsets into its flattened rows.
struct SegmentStarts {
  std::int32_t* starts;
  std::size_t count = 0;
  std::size_t longest = 0;

  void add(std::size_t start, std::size_t length) {
    starts[count++] = static_cast<std::int32_t>(start);
    longest = std::max(longest, length);
  }
};

// Begins to fetch tokens that are needed soon: they lie elsewhere, and no hardware can guess where. Once they are read, it has
// understood.
inline void prefetch(const void* tokens, std::size_t bytes) {
  constexpr std::size_t enough = 512;
  for (std::size_t line = 0; line <= std::min(bytes, enough); line += 64)
    __builtin_prefetch(static_cast<const std::byte*>(tokens) + line);
}

// What is known of a row, or of its targets: those that a model learns from, after its labels are shifted where it does that.
struct RowFacts {
  std::size_t tokens = 0;   // real ones
  std::size_t targets = 0;  // that weigh anything
  bool fractional = false;  // some weigh neither 0 nor 1
};

// Tokens without a weight weigh 1.
template <typename In, typename Out>
TargetFacts write_targets(const In* tokens, Out* out, std::size_t count) {
  widen(tokens, out, count);
  return {count, false};
}

// The tokens of a segment from one on, as targets.
template <typename In, typename Out>
TargetFacts write_targets(const Segment& segment, std::size_t first, Out* out, std::size_t count) {
  const auto* const tokens = static_cast<const In*>(segment.tokens) + first;
  if constexpr (std::is_same_v<In, std::uint32_t>)
    if (segment.mask != nullptr) return write_targets(tokens, segment.mask + first, out, count);
  return write_targets(tokens, out, count);
}

template <typename In, typename Out>
TargetFacts write_labels(const Segment& segment, Labels labels, bool isolated, Out* out) {
  if (labels == Labels::same) {
    auto facts = write_targets<In>(segment, 1, out + 1, segment.count - 1);  // nothing predicts the first
    if (isolated || segment.mask != nullptr) out[0] = no_loss;               // its predecessor is elsewhere, or there is none
    else facts.fractional = write_targets<In>(segment, 0, out, 1).fractional || facts.fractional;
    return facts;
  }
  const auto facts = write_targets<In>(segment, 1, out, segment.count - 1 + segment.followed);
  if (!segment.followed) out[segment.count - 1] = no_loss;
  return facts;
}

// Writes one row. Segments must not be longer than the row in sum.
template <typename In, typename Out>
RowFacts assemble_row(std::span<const Segment> segments, const RowFormat& format, const RowSpace<Out>& row,
                      std::size_t row_start, SegmentStarts* starts) {
  RowFacts facts;
  auto& filled = facts.tokens;
  for (std::size_t number = 0; number < segments.size(); ++number) {
    const auto& segment = segments[number];
    if (segment.count == 0) continue;
    if (number + 1 < segments.size()) prefetch(segments[number + 1].tokens, segments[number + 1].count * sizeof(In));
    widen(static_cast<const In*>(segment.tokens), row.inputs + filled, segment.count);
    const auto targets = write_labels<In>(segment, format.labels, starts != nullptr, row.labels + filled);
    facts.targets += targets.count;
    facts.fractional = facts.fractional || targets.fractional;
    if (starts != nullptr) {
      count_up(row.positions + filled, segment.count);
      starts->add(row_start + filled, segment.count);
    }
    filled += segment.count;
  }
  const auto rest = format.length - filled;
  std::fill_n(row.inputs + filled, rest, static_cast<Out>(format.pad_id));
  std::fill_n(row.labels + filled, rest, Out{no_loss});
  if (starts != nullptr) {
    std::fill_n(row.positions + filled, rest, Out{0});
    for (auto place = filled; place < format.length; ++place) starts->add(row_start + place, 1);
  }
  return facts;
}

// Weighs the targets of a segment, as they are delivered. Tokens without a weight weigh 1.
template <typename In>
DocumentWeight weigh_targets(const Segment& segment, Labels labels) {
  const auto stop = segment.count + (segment.followed && labels == Labels::next);
  DocumentWeight weight;
  if constexpr (std::is_same_v<In, Weighted>)
    for (std::size_t i = 1; i < stop; ++i) weight.add(static_cast<const Weighted*>(segment.tokens)[i]);
  else if (stop > 1)
    weight = {stop - 1, (stop - 1) * Weighted::whole};
  return weight;
}

template <typename In>
float weight_of(const In& token) {
  if constexpr (std::is_same_v<In, Weighted>) return weight_table[token.code()];
  else return 1.0F;
}

// Writes what each target of a row weighs, aligned with its labels.
template <typename In>
void weigh_row(std::span<const Segment> segments, const RowFormat& format, bool isolated, float* weights) {
  std::size_t filled = 0;
  const std::size_t ahead = format.labels == Labels::next ? 1 : 0;
  for (const auto& segment : segments) {
    const auto* const tokens = static_cast<const In*>(segment.tokens);
    double share = 1.0;
    if (format.mean == MeanOf::segments) {
      const auto all = weigh_targets<In>(segment, format.labels).hundredths;
      share = all == 0 ? 0.0 : 100.0 / static_cast<double>(all);
    }
    for (std::size_t i = 0; i < segment.count; ++i) {
      const bool targeted = ahead == 1 ? i + 1 < segment.count || segment.followed : i > 0 || !isolated;
      weights[filled + i] = targeted ? static_cast<float>(share * static_cast<double>(weight_of(tokens[i + ahead]))) : 0.0F;
    }
    filled += segment.count;
  }
  std::fill_n(weights + filled, format.length - filled, 0.0F);
}

}  // namespace millstream
