// core/parse/json_array.h: the elements of a JSON array as lines, so that readers of JSON lines read them too.
//
// Only strings and brackets are looked at: what an element holds, and whether it is JSON at all, its reader finds out.
#pragma once

#include "core/parse/columns.h"
#include "core/text/scan.h"

namespace millstream {

struct ArrayScan {
  std::size_t whole = 0;  // bytes up to and with the last comma between elements
  std::size_t stop = 0;   // the place behind the bracket that ends the array; 0: it does not end here
  bool open = false;      // whether the data ends inside an element
};

// Scan an array from inside: from between two elements, or from behind its first bracket. Call `comma(at)` for each comma
// between elements, `gap(first, last)` for what lies outside strings, and `string(first, last)` for strings.
template <typename Comma, typename Gap, typename String>
ArrayScan scan_array(Bytes data, Comma&& comma, Gap&& gap, String&& string) {
  static constexpr ByteSet escape_or_quote{{'"', '\\', '\\', '\\'}, false};
  ArrayScan found;
  const std::uint8_t* at = data.data();
  const std::uint8_t* const end = at + data.size();
  const auto place = [&](const std::uint8_t* there) { return static_cast<std::size_t>(there - data.data()); };
  std::size_t depth = 0;
  const std::uint8_t* first = at;
  for (; at < end; ++at) {
    switch (*at) {
      case '{':
      case '[': ++depth; break;
      case ']':
        if (depth == 0) {
          gap(first, at);
          found.stop = place(at) + 1;
          return found;
        }
        [[fallthrough]];
      case '}':
        if (depth > 0) --depth;
        break;
      case ',':
        if (depth > 0) break;
        gap(first, at);
        comma(at);
        first = at + 1;
        found.whole = place(first);
        break;
      case '"': {
        gap(first, at);
        first = at++;
        while ((at = find_any<escape_or_quote>(at, end)) < end && *at == '\\') at += end - at < 2 ? 1 : 2;
        found.open = at == end;
        if (found.open) --at;  // the loop steps over what closes a string
        string(first, at + 1);
        first = at + 1;
        break;
      }
      default: break;
    }
  }
  gap(first, end);
  found.open = found.open || depth > 0;
  return found;
}

inline ArrayScan cut_array(Bytes data) {
  const auto nothing = [](auto...) {};
  return scan_array(data, nothing, nothing, nothing);
}

// Write the elements as lines to `out`, byte for byte at the same places: a comma between elements becomes the end of a
// line, and no other line ends are left. Inside a string, where JSON has none, another control character takes its place.
inline ArrayScan array_lines(Bytes data, std::uint8_t* out) {
  const auto written = [&](const std::uint8_t* at) { return out + (at - data.data()); };
  const auto without_line_ends = [&](const std::uint8_t* first, const std::uint8_t* last, std::uint8_t instead) {
    std::memcpy(written(first), first, static_cast<std::size_t>(last - first));
    for (const std::uint8_t* at = first; (at = find_byte(at, last, '\n')) < last; ++at) *written(at) = instead;
  };
  return scan_array(
      data, [&](const std::uint8_t* at) { *written(at) = '\n'; },
      [&](const std::uint8_t* first, const std::uint8_t* last) { without_line_ends(first, last, ' '); },
      [&](const std::uint8_t* first, const std::uint8_t* last) { without_line_ends(first, last, 0x1f); });
}

}  // namespace millstream
