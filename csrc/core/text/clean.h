// core/text/clean.h: a text without control characters and with its spaces in order; and what a text may contain.
#pragma once

#include <string>

#include "core/text/unicode.h"

namespace millstream {

struct Clean {
  bool controls;     // leave out invisible controls; those that separate become line ends or spaces
  bool line_ends;    // \r\n and \r become \n
  bool whitespace;   // one space between words, no spaces around line ends, at most one empty line, none at the ends

  void append(std::string_view text, const Unicode& unicode, std::string& out) const {
    const std::size_t begin = out.size();
    std::size_t newlines = 0, spaces = 0;  // not written yet; only with `whitespace`
    for (std::size_t at = 0; at < text.size();) {
      auto [code, bytes] = character_at(text, at);
      const auto character = text.substr(at, bytes);
      at += bytes;
      const auto classes = unicode.classes(code);
      if (controls && (classes & is_invisible)) continue;
      if (line_ends && code == U'\r') {
        if (at < text.size() && text[at] == '\n') continue;
        code = U'\n';
      }
      if (controls && separates_invisibly(code)) code = (classes & is_line_break) ? U'\n' : U' ';
      if (whitespace && (classes & is_space)) {
        ++(code == U'\n' ? newlines : spaces);
        continue;
      }
      if (out.size() > begin) write_gap(newlines, spaces, out);
      newlines = spaces = 0;
      if (code < 0x80)
        out.push_back(static_cast<char>(code));
      else
        out.append(character);
    }
  }

 private:
  static bool separates_invisibly(char32_t code) {
    return code == 0x0B || code == 0x0C || (code >= 0x1C && code <= 0x1F) || code == 0x85;
  }

  static void write_gap(std::size_t newlines, std::size_t spaces, std::string& out) {
    if (newlines > 0)
      out.append(newlines > 1 ? 2 : 1, '\n');
    else if (spaces > 0)
      out.push_back(' ');
  }
};

// What makes a text worth a closer look by slower means.
enum Trait : std::uint8_t { beyond_ascii = 1, has_address_sign = 2, has_dotted_numbers = 4, has_long_number = 8 };

inline bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }

// An address sign is an @ that touches others on both sides; dotted numbers are four of them, 1.2.3.4; a long number has
// at least seven digits with no more than two other characters between them.
inline std::uint8_t traits_of(std::string_view text) {
  std::uint8_t found = 0;
  std::size_t digits = 0, others = 0, dots = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (is_ascii_digit(text[i])) {
      digits = others > 2 ? 1 : digits + 1;
      others = 0;
      if (digits >= 7) found |= has_long_number;
      continue;
    }
    ++others;
    const bool inside = i > 0 && i + 1 < text.size();
    if (c == '@' && inside && text[i - 1] > ' ' && text[i + 1] > ' ') found |= has_address_sign;
    if (c >= 0x80) found |= beyond_ascii;
    dots = c == '.' && inside && is_ascii_digit(text[i - 1]) && is_ascii_digit(text[i + 1]) ? dots + 1 : 0;
    if (dots >= 3) found |= has_dotted_numbers;
  }
  return found;
}

}  // namespace millstream
