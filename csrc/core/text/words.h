// core/text/words.h: the words, lines and sentences that rules count.
//
// A word is a run of letters, marks, numbers and underscores, in which one apostrophe or full stop may stand between two
// of them ("don't", "3.14", "e.g"); every other character that is not a space is a word of its own, and a run of the
// same one is one ("...", "---"). So punctuation counts, as it does for the tokenizers that these rules were made with.
#pragma once

#include "core/text/unicode.h"

namespace millstream {

struct Word {
  std::string_view bytes;
  std::size_t characters;
  bool has_letter;
  bool is_symbol;  // nothing but punctuation
};

namespace words {

inline bool joins(char32_t code) { return code == U'\'' || code == U'.' || code == U'’'; }

// Takes characters of a word while they are of the same kind.
struct Taken {
  std::size_t end;
  std::size_t characters = 0;
  std::uint8_t any = 0;
  std::uint8_t all = 0xFF;

  void take(const Character& character, std::uint8_t classes) {
    end += character.bytes;
    ++characters;
    any |= classes;
    all &= classes;
  }
};

inline void take_run(std::string_view text, const Unicode& unicode, Taken& taken) {
  while (taken.end < text.size()) {
    const Character next = character_at(text, taken.end);
    const auto classes = unicode.classes(next.code);
    if (classes & in_word) {
      taken.take(next, classes);
      continue;
    }
    const std::size_t after = taken.end + next.bytes;
    if (!joins(next.code) || after >= text.size()) return;
    const Character second = character_at(text, after);
    const auto second_classes = unicode.classes(second.code);
    if (!(second_classes & in_word)) return;
    taken.take(next, classes);
    taken.take(second, second_classes);
  }
}

inline void take_same(std::string_view text, char32_t code, std::uint8_t classes, Taken& taken) {
  while (taken.end < text.size()) {
    const Character next = character_at(text, taken.end);
    if (next.code != code) return;
    taken.take(next, classes);
  }
}

}  // namespace words

// Calls visit(Word) for each word; stops when it gives false.
template <typename Visit>
void for_each_word(std::string_view text, const Unicode& unicode, Visit visit) {
  for (std::size_t at = 0; at < text.size();) {
    const Character first = character_at(text, at);
    const auto classes = unicode.classes(first.code);
    if (classes & is_space) {
      at += first.bytes;
      continue;
    }
    words::Taken taken{at};
    taken.take(first, classes);
    if (classes & in_word)
      words::take_run(text, unicode, taken);
    else
      words::take_same(text, first.code, classes, taken);
    const Word word{text.substr(at, taken.end - at), taken.characters, (taken.any & is_letter) != 0,
                    (taken.all & is_punctuation) != 0};
    if (!visit(word)) return;
    at = taken.end;
  }
}

inline std::size_t count_words(std::string_view text, const Unicode& unicode) {
  std::size_t count = 0;
  for_each_word(text, unicode, [&](const Word&) { return ++count, true; });
  return count;
}

// Calls visit(line) for each line as Python's str.splitlines cuts them; stops when it gives false.
template <typename Visit>
void for_each_line(std::string_view text, const Unicode& unicode, Visit visit) {
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte >= 0x20 && byte != 0xC2 && byte != 0xE2) {  // no line break begins with these
      ++at;
      continue;
    }
    const auto [code, bytes] = character_at(text, at);
    if (!unicode.is(code, is_line_break)) {
      at += bytes;
      continue;
    }
    if (!visit(text.substr(begin, at - begin))) return;
    at += bytes;
    if (code == U'\r' && at < text.size() && text[at] == '\n') ++at;
    begin = at;
  }
  if (begin < text.size()) visit(text.substr(begin));
}

namespace words {

inline bool closes(char32_t code) {
  return code == U'"' || code == U'\'' || code == U')' || code == U']' || code == U'’' || code == U'”' || code == U'»';
}

}  // namespace words

// A sentence ends after sentence punctuation (and quotes or brackets that close there) before a space or the end.
// At least 1.
inline std::size_t count_sentences(std::string_view text, const Unicode& unicode) {
  enum { inside, ended, between } state = between;
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto [code, bytes] = character_at(text, at);
    at += bytes;
    if (unicode.is(code, is_space)) {
      if (state == ended) state = between;
    } else if (unicode.is(code, is_terminal) || code == U'…') {
      count += state == between;
      state = ended;
    } else if (!(state == ended && words::closes(code))) {
      count += state == between;
      state = inside;
    }
  }
  return count > 0 ? count : 1;
}

}  // namespace millstream
