// tests/raw.h: bytes in memory of exactly their size, so that a sanitizer sees every step beyond them; and noise.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "core/parse/columns.h"
#include "random.h"

class Exact {
 public:
  explicit Exact(std::string_view text) : size_(text.size()), data_(new std::uint8_t[text.size()]) {
    if (size_) std::memcpy(data_.get(), text.data(), size_);
  }
  millstream::Bytes bytes() const { return {data_.get(), size_}; }

 private:
  std::size_t size_;
  std::unique_ptr<std::uint8_t[]> data_;
};

// Up to `most` pieces, each drawn from `alphabet`.
inline std::string noise(Random& random, std::initializer_list<std::string_view> alphabet, std::size_t most) {
  std::string text;
  for (std::size_t left = random.below(most + 1); left; --left) text += alphabet.begin()[random.below(alphabet.size())];
  return text;
}

inline std::string text_of(const millstream::Columns& columns, std::size_t index) {
  const auto begin = index ? columns.ends[index - 1] : 0;
  const auto* text = reinterpret_cast<const char*>(columns.text().data());
  return {text + begin, text + columns.ends[index]};
}

// What holds for every parser, whatever the bytes: rows rise, ranges lie in the data, every row is accounted for.
inline bool is_sound(const millstream::Columns& columns, millstream::Bytes data) {
  const auto size = static_cast<std::int64_t>(data.size());
  std::int64_t row = -1, stop = 0, end = 0;
  for (std::size_t i = 0; i < columns.rows.size(); ++i) {
    if (columns.rows[i] <= row || columns.starts[i] < stop || columns.stops[i] < columns.starts[i]) return false;
    if (columns.stops[i] > size || columns.ends[i] <= end) return false;
    row = columns.rows[i], stop = columns.stops[i], end = columns.ends[i];
  }
  const auto known = static_cast<std::int64_t>(columns.rows.size() + columns.odd.size() / 3);
  return known + columns.blank + columns.empty == columns.row_count && columns.text_bytes() <= data.size();
}
