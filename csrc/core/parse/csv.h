// core/parse/csv.h: tables as text, cut into records and fields exactly as Python's csv module cuts them.
//
// A field that begins with a quote continues, over delimiters and line ends, to the closing quote; two quotes in it stand
// for one, and what follows the closing quote up to the delimiter belongs to it as it is. Elsewhere quotes are ordinary.
// A record ends at \n, \r or \r\n.
#pragma once

#include "core/parse/columns.h"
#include "core/text/scan.h"
#include "core/text/utf8.h"

namespace millstream {

template <std::uint8_t delimiter>
struct Csv {
  static constexpr ByteSet field_end{{delimiter, '\n', '\r', '\r'}, false};
  static constexpr ByteSet quote_or_line_end{{'"', '\n', '\r', '\r'}, false};

  static bool ends_line(std::uint8_t byte) { return byte == '\n' || byte == '\r'; }
  static bool ends_field(std::uint8_t byte) { return byte == delimiter || ends_line(byte); }

  static const std::uint8_t* after_line_end(const std::uint8_t* at, const std::uint8_t* end) {
    const bool two = *at == '\r' && end - at > 1 && at[1] == '\n';
    return at + (two ? 2 : 1);
  }

  // Read the field at `at`, and write it to `out` unless that is null. Gives the delimiter or line end behind it, or
  // `end`; `open` is set when its quote is never closed.
  static const std::uint8_t* field(const std::uint8_t* at, const std::uint8_t* end, std::uint8_t** out, bool& open) {
    const auto keep = [out](const std::uint8_t* first, const std::uint8_t* last) {
      if (out == nullptr) return;
      std::memcpy(*out, first, static_cast<std::size_t>(last - first));
      *out += last - first;
    };
    if (at < end && *at == '"') {
      for (++at;;) {
        const std::uint8_t* quote = find_byte(at, end, '"');
        if (quote == end) {
          open = true;
          return end;
        }
        const bool doubled = quote + 1 < end && quote[1] == '"';
        keep(at, quote + doubled);
        at = quote + 1 + doubled;
        if (!doubled) break;
      }
      if (at == end || ends_field(*at)) return at;
    }
    const std::uint8_t* stop = find_any<field_end>(at, end);
    keep(at, stop);
    return stop;
  }

  // The text of a record is field `column`. Odd: a record without that field, with more than `most` fields, with an
  // open quote, or not UTF-8.
  static Columns parse(Bytes data, std::size_t column, std::size_t most) {
    Columns columns(data.size());
    const std::uint8_t* at = data.data();
    const std::uint8_t* const end = at + data.size();
    while (at < end) {
      const std::uint8_t* const first = at;
      if (ends_line(*at)) {
        columns.leave_blank();
        at = after_line_end(at, end);
        continue;
      }
      std::uint8_t* out = columns.writing();
      bool open = false, found = false, many = false;
      for (std::size_t index = 0;; ++index) {
        at = field(at, end, index == column ? &out : nullptr, open);
        found = found || index == column;
        many = index >= most;
        if (at == end || *at != delimiter) break;
        ++at;
      }
      const auto size = static_cast<std::size_t>(at - first);
      const std::int64_t start = first - data.data(), stop = at - data.data();
      if (open || !found || many || !is_utf8(first, size))
        columns.leave_odd(start, stop);
      else if (out == columns.writing())
        columns.leave_empty();
      else
        columns.accept(out, start, stop);
      if (at < end) at = after_line_end(at, end);
    }
    return columns;
  }

  // Bytes up to the end of the last whole record, or of the first. A \r at the very end may be half of a line end.
  static std::size_t cut(Bytes data, bool first) {
    const std::uint8_t* at = data.data();
    const std::uint8_t* const end = at + data.size();
    std::size_t whole = 0;
    while ((at = find_any<quote_or_line_end>(at, end)) < end) {
      const bool field_starts = at == data.data() || ends_field(at[-1]);
      if (*at == '"' && field_starts) {
        bool open = false;
        at = field(at, end, nullptr, open);
        continue;
      }
      if (*at == '"') {
        ++at;
        continue;
      }
      if (*at == '\r' && at + 1 == end) break;
      at = after_line_end(at, end);
      whole = static_cast<std::size_t>(at - data.data());
      if (first) break;
    }
    return whole;
  }
};

}  // namespace millstream
