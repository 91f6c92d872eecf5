// core/filter/repetition.h: Gopher's repetition rules: how much of a text is lines, paragraphs or n-grams it had before.
//
// Every n-gram is compared by a 64-bit hash that is carried from n to n + 1, so that a size costs one multiplication and
// one probe per word. A collision could only matter inside one document.
#pragma once

#include <utility>
#include <vector>

#include "core/filter/quality.h"

namespace millstream {

struct NGramLimit {
  std::size_t n;
  double share;
};

inline constexpr const char* gopher_repetition_reasons[] = {
    "",
    "empty",
    "too many repeated paragraphs",
    "too much text in repeated paragraphs",
    "too many repeated lines",
    "too much text in repeated lines",
};

struct GopherRepetition {
  double max_repeated_paragraphs, max_repeated_paragraph_characters;
  double max_repeated_lines, max_repeated_line_characters;
  std::vector<NGramLimit> top, repeated;

  // 0: keep; the fixed reasons; then one for each n-gram limit, `top` first.
  static constexpr std::size_t fixed_reasons = std::size(gopher_repetition_reasons);

  struct Scratch {
    Tally seen;
    std::vector<std::uint64_t> hashes, powers, grams;
    std::vector<std::size_t> characters;  // before each word
  };

  std::size_t judge(std::string_view text, const Unicode& unicode, Scratch& scratch) const {
    if (text.empty()) return 1;
    const std::size_t length = count_characters(text);
    const Repeats paragraphs = repeats(unicode.strip(text), 2, scratch.seen);
    if (share(paragraphs.pieces, paragraphs.all) > max_repeated_paragraphs) return 2;
    if (share(paragraphs.characters, length) > max_repeated_paragraph_characters) return 3;
    const Repeats lines = repeats(text, 1, scratch.seen);
    if (share(lines.pieces, lines.all) > max_repeated_lines) return 4;
    if (share(lines.characters, length) > max_repeated_line_characters) return 5;
    read_words(text, unicode, scratch);
    std::size_t reason = fixed_reasons;
    for (Grams grams{scratch, Grams::sequence}; const auto& limit : top) {
      grams.grow(limit.n);
      if (share(top_characters(grams, scratch.seen), length) > limit.share) return reason;
      ++reason;
    }
    for (Grams grams{scratch, Grams::concatenation}; const auto& limit : repeated) {
      grams.grow(limit.n);
      if (share(repeated_characters(grams, scratch.seen), length) > limit.share) return reason;
      ++reason;
    }
    return 0;
  }

 private:
  static constexpr std::uint64_t base = 0x9E3779B97F4A7C15u | 1u;

  struct Repeats {
    std::size_t all = 0, pieces = 0, characters = 0;
  };

  // Cuts at runs of at least `newlines` newlines, as re.split does: the ends may be empty pieces.
  static Repeats repeats(std::string_view text, std::size_t newlines, Tally& seen) {
    Repeats result;
    seen.reset(count_bytes(text, '\n') / newlines + 1);
    for (std::size_t begin = 0, at = 0;;) {
      const std::size_t cut = std::min(text.find('\n', at), text.size());
      const std::size_t next = std::min(text.find_first_not_of('\n', cut), text.size());
      if (cut != text.size() && next - cut < newlines) {
        at = next;
        continue;
      }
      const auto piece = text.substr(begin, cut - begin);
      ++result.all;
      if (seen.add(hash_of(piece), 0).count > 1) {
        ++result.pieces;
        result.characters += count_characters(piece);
      }
      if (cut == text.size()) return result;
      begin = at = next;
    }
  }

  // A polynomial in the bytes, so that the hash of two words written together follows from theirs.
  static void read_words(std::string_view text, const Unicode& unicode, Scratch& scratch) {
    scratch.hashes.clear();
    scratch.powers.clear();
    scratch.characters.assign(1, 0);
    for_each_word(text, unicode, [&](const Word& word) {
      std::uint64_t hash = 0, power = 1;
      for (const char byte : word.bytes) {
        hash = hash * base + static_cast<unsigned char>(byte) + 1;
        power *= base;
      }
      scratch.hashes.push_back(hash);
      scratch.powers.push_back(power);
      scratch.characters.push_back(scratch.characters.back() + word.characters);
      return true;
    });
  }

  // The hashes of all n-grams, for growing n. As a sequence "ab c" is not "a bc"; as a concatenation it is.
  struct Grams {
    enum Kind { sequence, concatenation };

    Scratch& scratch;
    Kind kind;
    std::size_t n = 0;
    std::size_t count = 0;

    void grow(std::size_t wanted) {
      const std::size_t words = scratch.hashes.size();
      if (n == 0 || wanted < n) {
        scratch.grams.assign(words, 0);
        n = 0;
      }
      for (; n < wanted; ++n) {
        const std::size_t left = words > n ? words - n : 0;
        const std::uint64_t* const hashes = scratch.hashes.data() + n;
        const std::uint64_t* const powers = scratch.powers.data() + n;
        std::uint64_t* const grams = scratch.grams.data();
        if (kind == sequence)
          for (std::size_t i = 0; i < left; ++i) grams[i] = (grams[i] + (hashes[i] ^ (hashes[i] >> 29))) * base;
        else
          for (std::size_t i = 0; i < left; ++i) grams[i] = grams[i] * powers[i] + hashes[i];
      }
      count = words >= n ? words - n + 1 : 0;
    }

    std::size_t characters(std::size_t i) const { return scratch.characters[i + n] - scratch.characters[i]; }
  };

  // Length (with a space between words) times count of the most frequent n-gram; the first of equals.
  static std::size_t top_characters(const Grams& grams, Tally& seen) {
    seen.reset(grams.count);
    std::size_t most = 0, place = 0;
    for (std::size_t i = 0; i < grams.count; ++i) {
      const Tally::Slot& slot = seen.add(grams.scratch.grams[i], i);
      if (slot.count > most || (slot.count == most && slot.first < place)) {
        most = slot.count;
        place = slot.first;
      }
    }
    return most == 0 ? 0 : most * (grams.characters(place) + grams.n - 1);
  }

  // Characters in n-grams that stood earlier in the text; what one of them covers is not looked at again.
  static std::size_t repeated_characters(const Grams& grams, Tally& seen) {
    seen.reset(grams.count);
    std::size_t characters = 0;
    for (std::size_t i = 0; i < grams.count;) {
      const bool repeated = seen.add(grams.scratch.grams[i], i).count > 1;
      if (repeated) characters += grams.characters(i);
      i += repeated ? grams.n : 1;
    }
    return characters;
  }
};

}  // namespace millstream
