// core/parse/jsonl.h: lines of JSON -> the text of one field of each.
//
// It may refuse, but not lie: the text of a line that it accepts is what Python's json.loads gives for that field. A
// line that is rare, wrong or merely doubtful (deep nesting, NaN, the field twice, a key with escapes, half a surrogate
// pair, bytes that are not UTF-8) is left as odd, and a slower reader decides.
#pragma once

#include <string_view>

#include "core/parse/json.h"
#include "core/parse/lines.h"

namespace millstream {

enum class Verdict { text, empty, odd };

// Read a line that is an object; the text of its field is written to `out`, which moves on.
inline Verdict read_field(JsonCursor line, std::string_view field, std::uint8_t*& out) {
  std::uint8_t* const begin = out;
  bool found = false;
  line.skip_space();
  const bool read = line.object([&](std::string_view key) {
    if (key != field) return line.value();
    if (found || !line.take('"') || !line.string<true>(out)) return false;
    return found = true;
  });
  line.skip_space();
  if (!read || !found || !line.at_end()) return Verdict::odd;
  return out == begin ? Verdict::empty : Verdict::text;
}

inline bool is_blank_line(const std::uint8_t* first, const std::uint8_t* last) {
  while (first < last && (*first == ' ' || *first == '\t' || *first == '\r')) ++first;
  return first == last;
}

inline Columns parse_jsonl(Bytes data, std::string_view field) {
  Columns columns(data.size());
  const auto place = [&](const std::uint8_t* at) { return static_cast<std::int64_t>(at - data.data()); };
  for_each_piece(data, "\n", [&](const std::uint8_t* first, const std::uint8_t* last) {
    if (is_blank_line(first, last)) return columns.leave_blank();
    if (!is_utf8(first, static_cast<std::size_t>(last - first))) return columns.leave_odd(place(first), place(last));
    std::uint8_t* out = columns.writing();
    switch (read_field({first, last}, field, out)) {
      case Verdict::text: return columns.accept(out, place(first), place(last));
      case Verdict::empty: return columns.leave_empty();
      case Verdict::odd: return columns.leave_odd(place(first), place(last));
    }
  });
  return columns;
}

}  // namespace millstream
