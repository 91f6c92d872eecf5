// core/text/unicode.h: the characters of a UTF-8 text, what each of them is, and what it is compared as.
//
// Texts are valid UTF-8 (sources see to that). Bytes that are not give wrong characters, never a read out of bounds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/text/unicode_ranges.h"

namespace millstream {

inline constexpr char32_t last_character = 0x10FFFF;

enum CharacterClass : std::uint8_t {
  is_space = 1,
  is_letter = 2,
  in_word = 4,  // letters, marks, numbers, the underscore
  is_digit = 8,
  is_punctuation = 16,
  is_terminal = 32,  // ends a sentence
  is_line_break = 64,
  is_invisible = 128,  // controls that separate nothing
};

namespace unicode {

// Flat tables in zeroed storage: only pages that say something take memory.
struct Tables {
  std::array<std::uint8_t, last_character + 1> classes{};
  std::array<std::int32_t, last_character + 1> folds{};

  void fill() {
    for (const auto& [first, last, value] : class_ranges)
      for (auto c = first; c <= last; ++c) classes[c] = static_cast<std::uint8_t>(value);
    for (const auto& [first, last, value] : fold_ranges)
      for (auto c = first; c <= last; ++c) folds[c] = value;
  }
};

inline Tables storage;

inline const Tables& tables() {
  static const bool filled = (storage.fill(), true);
  (void)filled;
  return storage;
}

}  // namespace unicode

// One character and the number of bytes it takes.
struct Character {
  char32_t code;
  std::size_t bytes;
};

inline std::size_t bytes_of_lead(unsigned char lead) { return lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4; }

inline bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

// The character at `at`, which must be inside `text`.
inline Character character_at(std::string_view text, std::size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  if (lead < 0x80) return {lead, 1};
  const std::size_t wanted = bytes_of_lead(lead);
  char32_t code = lead & (0x7Fu >> wanted);
  std::size_t bytes = 1;
  for (; bytes < wanted && at + bytes < text.size() && is_continuation(text[at + bytes]); ++bytes)
    code = (code << 6) | (static_cast<unsigned char>(text[at + bytes]) & 0x3Fu);
  return {code <= last_character ? code : U'\uFFFD', bytes};
}

// The last character of `text`, which must not be empty.
inline Character last_of(std::string_view text) {
  std::size_t at = text.size() - 1;
  while (at > 0 && text.size() - at < 4 && is_continuation(text[at])) --at;
  return {character_at(text, at).code, text.size() - at};
}

inline std::size_t count_characters(std::string_view text) {
  std::size_t count = 0;
  for (const char byte : text) count += !is_continuation(byte);
  return count;
}

inline void append_character(std::string& out, char32_t code) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xC0 | (code >> 6));
  } else if (code < 0x10000) {
    put(0xE0 | (code >> 12));
    put(0x80 | ((code >> 6) & 0x3F));
  } else {
    put(0xF0 | (code >> 18));
    put(0x80 | ((code >> 12) & 0x3F));
    put(0x80 | ((code >> 6) & 0x3F));
  }
  put(0x80 | (code & 0x3F));
}

// Answers for one pass over texts: a reference to the tables, so that the inner loops do not ask for it again.
struct Unicode {
  const unicode::Tables& tables = unicode::tables();

  std::uint8_t classes(char32_t code) const { return tables.classes[code]; }
  bool is(char32_t code, int wanted) const { return (tables.classes[code] & wanted) != 0; }

  // Lower case without diacritics; 0 for a mark, which is left out.
  char32_t fold(char32_t code) const {
    const std::int32_t shift = tables.folds[code];
    const std::int32_t folded = static_cast<std::int32_t>(code) + shift;
    return folded < 0 ? 0 : static_cast<char32_t>(folded);
  }

  std::string_view strip_left(std::string_view text) const {
    while (!text.empty()) {
      const auto [code, bytes] = character_at(text, 0);
      if (!is(code, is_space)) break;
      text.remove_prefix(bytes);
    }
    return text;
  }

  std::string_view strip_right(std::string_view text) const {
    while (!text.empty()) {
      const auto [code, bytes] = last_of(text);
      if (!is(code, is_space)) break;
      text.remove_suffix(bytes);
    }
    return text;
  }

  std::string_view strip(std::string_view text) const { return strip_right(strip_left(text)); }
};

}  // namespace millstream
