// core/lent.h: rows that somebody else made, borrowed for as long as a batch is filled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>

namespace millstream {

// A row has one token more than its length, as its last target. Row r is tokens [r * (length + 1), (r + 1) * (length + 1));
// documents begin in it at boundaries [r == 0 ? 0 : boundary_ends[r - 1], boundary_ends[r]), counted from its first token.
struct LentRows {
  std::span<const std::uint32_t> tokens, boundaries;
  std::span<const std::uint64_t> boundary_ends;  // none: no documents begin inside the rows

  const std::uint32_t* row(std::uint64_t number, std::size_t length) const {
    if (number >= tokens.size() / (length + 1)) throw std::out_of_range("there is no such lent row");
    return tokens.data() + number * (length + 1);
  }

  std::span<const std::uint32_t> boundaries_of(std::uint64_t number) const {
    if (boundary_ends.empty()) return {};
    const auto begin = number == 0 ? 0 : boundary_ends[number - 1];
    return boundaries.subspan(begin, boundary_ends[number] - begin);
  }

  // Rows are cut at boundaries without looking at them again.
  void check(std::size_t length) const {
    const auto rows = tokens.size() / (length + 1);
    if (tokens.size() % (length + 1) != 0) throw std::invalid_argument("a lent row has one token more than its length");
    if (!boundary_ends.empty() && boundary_ends.size() != rows)
      throw std::invalid_argument("the boundaries of each lent row have an end");
    std::uint64_t begin = 0;
    for (const auto end : boundary_ends) {
      if (end < begin || end > boundaries.size()) throw std::invalid_argument("the boundaries of lent rows are not in order");
      std::uint32_t before = 0;
      for (const auto boundary : boundaries.subspan(begin, end - begin)) {
        if (boundary <= before || boundary > length)
          throw std::invalid_argument("documents of a lent row begin inside it, one after another");
        before = boundary;
      }
      begin = end;
    }
  }
};

}  // namespace millstream
