// core/parse/lines.h: text that is cut at a separator, such as "\n", as `split` of a string would cut it.
#pragma once

#include <string_view>

#include "core/parse/columns.h"
#include "core/text/scan.h"
#include "core/text/utf8.h"

namespace millstream {

// The first place of `separator` in [at, end), or `end`.
inline const std::uint8_t* find_separator(const std::uint8_t* at, const std::uint8_t* end, std::string_view separator) {
  if (separator.size() == 1) return find_byte(at, end, static_cast<std::uint8_t>(separator[0]));
  const void* found = memmem(at, static_cast<std::size_t>(end - at), separator.data(), separator.size());
  return found ? static_cast<const std::uint8_t*>(found) : end;
}

// Call `piece(first, last)` for what stands between separators. Behind the last one there is a piece only if it has bytes.
template <typename Piece>
void for_each_piece(Bytes data, std::string_view separator, Piece&& piece) {
  const std::uint8_t* at = data.data();
  const std::uint8_t* const end = at + data.size();
  while (at < end) {
    const std::uint8_t* stop = find_separator(at, end, separator);
    piece(at, stop);
    at = stop == end ? end : stop + separator.size();
  }
}

// Bytes up to and with the last separator, counted from the front: separators that overlap are read as `split` reads them.
inline std::size_t cut_separated(Bytes data, std::string_view separator) {
  const std::uint8_t* at = data.data();
  const std::uint8_t* const end = at + data.size();
  for (;;) {
    const std::uint8_t* stop = find_separator(at, end, separator);
    if (stop == end) return static_cast<std::size_t>(at - data.data());
    at = stop + separator.size();
  }
}

// Each piece is a text; with `trim` a carriage return at its end is not part of it. Pieces that are not UTF-8 are odd.
inline Columns parse_lines(Bytes data, std::string_view separator, bool trim) {
  Columns columns(data.size());
  const auto place = [&](const std::uint8_t* at) { return static_cast<std::int64_t>(at - data.data()); };
  for_each_piece(data, separator, [&](const std::uint8_t* first, const std::uint8_t* last) {
    if (trim && last > first && last[-1] == '\r') --last;
    const auto size = static_cast<std::size_t>(last - first);
    if (size == 0) return columns.leave_empty();
    if (!is_utf8(first, size)) return columns.leave_odd(place(first), place(last));
    std::memcpy(columns.writing(), first, size);
    columns.accept(columns.writing() + size, place(first), place(last));
  });
  return columns;
}

}  // namespace millstream
