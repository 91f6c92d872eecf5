// core/parse/columns.h: what a parser of raw bytes gives: texts end to end, and where each came from.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace millstream {

using Bytes = std::span<const std::uint8_t>;

// Record i of the parsed bytes is row `rows[i]`, bytes [starts[i], stops[i]), and its text ends at `ends[i]` of `text`.
// What a parser does not vouch for is in `odd` as (row, start, stop): a slower reader looks at it again.
class Columns {
 public:
  // No format here has texts longer than their raw bytes; 16 more let a parser copy in whole blocks.
  explicit Columns(std::size_t raw_bytes) : text_(std::make_unique_for_overwrite<std::uint8_t[]>(raw_bytes + 16)) {}

  std::uint8_t* writing() { return text_.get() + size_; }

  // The text that was written from `writing()` up to `out` is that of the present row.
  void accept(const std::uint8_t* out, std::int64_t start, std::int64_t stop) {
    size_ = static_cast<std::size_t>(out - text_.get());
    ends.push_back(static_cast<std::int64_t>(size_));
    rows.push_back(row_count++);
    starts.push_back(start);
    stops.push_back(stop);
  }

  void leave_odd(std::int64_t start, std::int64_t stop) { odd.insert(odd.end(), {row_count++, start, stop}); }
  void leave_blank() { ++row_count, ++blank; }
  void leave_empty() { ++row_count, ++empty; }

  std::size_t text_bytes() const { return size_; }
  std::unique_ptr<std::uint8_t[]> take_text() { return std::move(text_); }
  Bytes text() const { return {text_.get(), size_}; }

  std::vector<std::int64_t> ends, rows, starts, stops, odd;
  std::int64_t row_count = 0, blank = 0, empty = 0;

 private:
  std::unique_ptr<std::uint8_t[]> text_;
  std::size_t size_ = 0;
};

}  // namespace millstream
