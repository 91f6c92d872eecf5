// core/kernels/runs.h: runs of equal numbers, in a column that lies in pieces.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace millstream {

struct Runs {
  std::vector<std::uint32_t> values, lengths;
};

// The runs of pieces that lie end to end; none if the numbers themselves take no more room than they.
inline std::optional<Runs> runs_of(std::span<const std::span<const std::uint32_t>> pieces) {
  std::size_t total = 0;
  for (const auto piece : pieces) total += piece.size();
  if (total == 0 || total > std::numeric_limits<std::uint32_t>::max()) return std::nullopt;
  Runs runs;
  for (const auto piece : pieces)
    for (auto at = piece.begin(); at != piece.end();) {
      const auto value = *at;
      const auto end = std::find_if(at, piece.end(), [value](std::uint32_t each) { return each != value; });
      if (runs.values.empty() || runs.values.back() != value) {
        if (2 * (runs.values.size() + 1) > total) return std::nullopt;
        runs.values.push_back(value);
        runs.lengths.push_back(0);
      }
      runs.lengths.back() += static_cast<std::uint32_t>(end - at);
      at = end;
    }
  return runs;
}

}  // namespace millstream
