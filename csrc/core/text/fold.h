// core/text/fold.h: a text as it is compared with others: words only, lower case, no diacritics, every number the same.
//
// What is left of "Das Café, 1.250 Gäste_" is "das cafe 0 0 gaste".
#pragma once

#include <string>
#include <vector>

#include "core/kernels/hash.h"
#include "core/text/unicode.h"

namespace millstream {

// Calls letter(code) for each character of a folded word, and end() after each word that has any.
template <typename Letter, typename End>
void fold_words(std::string_view text, const Unicode& unicode, Letter letter, End end) {
  bool inside = false, in_number = false;
  for (std::size_t at = 0; at < text.size();) {
    const auto [code, bytes] = character_at(text, at);
    at += bytes;
    const auto classes = unicode.classes(code);
    if (!(classes & in_word) || code == U'_') {
      if (inside) end();
      inside = in_number = false;
      continue;
    }
    const bool digit = (classes & is_digit) != 0;
    const char32_t folded = digit ? U'0' : unicode.fold(code);
    if (folded == 0) continue;
    if (!(digit && in_number)) letter(folded);
    inside = true;
    in_number = digit;
  }
  if (inside) end();
}

// Appends the folded words with a space between them.
inline void append_folded(std::string_view text, const Unicode& unicode, std::string& out) {
  const std::size_t begin = out.size();
  fold_words(
      text, unicode, [&](char32_t code) { append_character(out, code); }, [&] { out.push_back(' '); });
  if (out.size() > begin) out.pop_back();
}

// The hash of every folded word, in their order.
inline void hash_words(std::string_view text, const Unicode& unicode, std::vector<std::uint64_t>& out) {
  std::uint64_t hash = xxh::prime5;
  fold_words(
      text, unicode, [&](char32_t code) { hash = (hash ^ code) * xxh::prime1, hash ^= hash >> 29; },
      [&] {
        out.push_back(xxh::avalanche(hash));
        hash = xxh::prime5;
      });
}

// The hashes of runs of words, by differences of a polynomial in the words before each place.
class Shingles {
 public:
  explicit Shingles(const std::vector<std::uint64_t>& words) {
    before_.reserve(words.size() + 1);
    before_.push_back(0);
    for (const std::uint64_t word : words) before_.push_back(before_.back() * base + word);
  }

  std::size_t words() const { return before_.size() - 1; }

  static std::uint64_t power(std::size_t n) {
    std::uint64_t result = 1;
    for (std::size_t i = 0; i < n; ++i) result *= base;
    return result;
  }

  // The n words from word i on; `power` is power(n).
  std::uint64_t at(std::size_t i, std::size_t n, std::uint64_t power) const {
    return xxh::avalanche(before_[i + n] - before_[i] * power + n);
  }

 private:
  static constexpr std::uint64_t base = xxh::prime2;
  std::vector<std::uint64_t> before_;
};

}  // namespace millstream
