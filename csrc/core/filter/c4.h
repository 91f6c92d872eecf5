// core/filter/c4.h: C4's rules: lines that do not look like prose are left out, and pages with too little left are dropped.
#pragma once

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

#include "core/text/words.h"

namespace millstream {

inline constexpr const char* c4_reasons[] = {"", "lorem ipsum", "curly bracket", "too few sentences"};

// Why a line is left out.
inline constexpr const char* c4_line_reasons[] = {
    "a word too long", "no punctuation at the end", "too few words", "javascript", "policy notice",
};

struct C4Quality {
  static constexpr std::size_t line_reasons = std::size(c4_line_reasons);

  std::size_t max_word_characters, min_words_per_line;
  std::ptrdiff_t min_sentences;
  bool remove_citations, need_punctuation, no_lorem_ipsum, no_javascript, no_curly_bracket, no_policy;

  struct Scratch {
    std::string lowered, line;
  };

  // Appends what is left of `text` to `out`, and counts in `left_out` the lines that are not.
  std::uint8_t judge(std::string_view text, const Unicode& unicode, Scratch& scratch, std::string& out,
                     std::size_t* left_out) const {
    lower(text, scratch.lowered);
    const bool suspicious = mentions_any(scratch.lowered);
    const std::size_t begin = out.size();
    std::size_t sentences = 0;
    std::uint8_t verdict = 0;
    for_each_line(text, unicode, [&](std::string_view line) {
      const int found = look_at(unicode.strip(line), suspicious, unicode, scratch);
      if (found < 0) {
        verdict = static_cast<std::uint8_t>(-found);
      } else if (found > 0) {
        ++left_out[found - 1];
      } else {
        sentences += count_sentences(scratch.line, unicode);
        if (out.size() > begin) out.push_back('\n');
        out.append(scratch.line);
      }
      return verdict == 0;
    });
    if (verdict == 0 && static_cast<std::ptrdiff_t>(sentences) < min_sentences) verdict = 3;
    strip_tail(begin, unicode, out);
    if (verdict != 0) out.resize(begin);
    return verdict;
  }

 private:
  static constexpr std::string_view policies[] = {"terms of use", "privacy policy", "cookie policy",
                                                  "uses cookies", "use of cookies", "use cookies"};

  static constexpr std::string_view kelvin = "\u212A";

  static bool mentions(std::string_view text, std::string_view what) {
    return memmem(text.data(), text.size(), what.data(), what.size()) != nullptr;
  }

  // Two letters of a phrase that seldom stand at this distance.
  struct Mark {
    std::string_view phrase;
    std::size_t one, other;
  };
  static constexpr Mark marks[] = {
      {"javascript", 0, 4}, {"lorem ipsum", 4, 7}, {"cookie", 3, 5}, {"terms of use", 7, 9}, {"privacy policy", 3, 8}};

  // Whether a rule about words could apply at all: true for everything that has to be looked at closely. Looks for the
  // marks of all phrases in blocks, which compilers turn into vector instructions.
  static bool mentions_any(std::string_view text) {
    constexpr std::size_t block = 256, widest = 14;
    for (const auto& [phrase, one, other] : marks) {
      std::size_t at = 0;
      for (; at + block + widest <= text.size(); at += block) {
        const char* const from = text.data() + at;
        unsigned char any = 0;
        for (std::size_t i = 0; i < block; ++i)
          any |= static_cast<unsigned char>((from[i + one] == phrase[one]) & (from[i + other] == phrase[other]));
        if (any != 0 && mentions(text.substr(at, block + phrase.size() - 1), phrase)) return true;
      }
      if (mentions(text.substr(at), phrase)) return true;
    }
    return false;
  }

  // ASCII in lower case, and the Kelvin sign, the one other capital whose small letter is ASCII by itself.
  static void lower(std::string_view text, std::string& out) {
    out.resize(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      out[i] = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    }
    std::size_t to = out.find(kelvin);
    for (std::size_t from = to; from < out.size();) {
      const bool found = std::string_view(out).substr(from).starts_with(kelvin);
      out[to++] = found ? 'k' : out[from];
      from += found ? kelvin.size() : 1;
    }
    out.resize(std::min(to, out.size()));
  }

  // 0: keep; above: why the line is left out; below: why the page is dropped. Leaves the line in scratch.line.
  int look_at(std::string_view line, bool suspicious, const Unicode& unicode, Scratch& scratch) const {
    const auto [words, longest] = measure(line, unicode);
    if (longest > max_word_characters) return 1;
    scratch.line.assign(line);
    const bool cited = remove_citations && without_citations(line, unicode, scratch.line);
    if (need_punctuation && !ends_well(scratch.line)) return 2;
    if (words < min_words_per_line) return 3;
    const bool mentioned = suspicious || cited;
    if (mentioned) lower(scratch.line, scratch.lowered);
    if (mentioned && no_lorem_ipsum && mentions(scratch.lowered, "lorem ipsum")) return -1;
    if (mentioned && no_javascript && mentions(scratch.lowered, "javascript")) return 4;
    if (no_curly_bracket && scratch.line.find('{') != std::string::npos) return -2;
    if (mentioned && no_policy)
      for (const std::string_view policy : policies)
        if (mentions(scratch.lowered, policy)) return 5;
    return 0;
  }

  struct Measure {
    std::size_t words = 0, longest = 0;
  };

  // Words here are what stands between spaces.
  static Measure measure(std::string_view line, const Unicode& unicode) {
    Measure found;
    std::size_t run = 0;
    for (std::size_t at = 0; at < line.size();) {
      const auto [code, bytes] = character_at(line, at);
      at += bytes;
      const bool space = unicode.is(code, is_space);
      found.words += !space && run == 0;
      run = space ? 0 : run + 1;
      found.longest = std::max(found.longest, run);
    }
    return found;
  }

  // "[12]", "[edit]" and "[citation needed]", as encyclopedias have them. True if there was one.
  static bool without_citations(std::string_view line, const Unicode& unicode, std::string& out) {
    std::size_t open = line.find('[');
    if (open == line.npos) return false;
    std::size_t copied = 0;
    out.clear();
    while (open != line.npos) {
      const std::size_t end = citation_end(line, open, unicode);
      if (end != 0) {
        out.append(line, copied, open - copied);
        copied = end;
      }
      open = line.find('[', end != 0 ? end : open + 1);
    }
    out.append(line, copied);
    return copied != 0;
  }

  // Where the citation at `open` ends; 0 if there is none.
  static std::size_t citation_end(std::string_view line, std::size_t open, const Unicode& unicode) {
    for (const std::string_view word : {"[edit]", "[citation needed]"})
      if (line.substr(open).starts_with(word)) return open + word.size();
    for (std::size_t at = open + 1; at < line.size();) {
      const auto [code, bytes] = character_at(line, at);
      at += bytes;
      if (code == U']') return at;
      if (!unicode.is(code, is_digit)) return 0;
    }
    return 0;
  }

  static bool ends_well(std::string_view line) {
    return !line.empty() && std::string_view(".?!\"'").find(line.back()) != std::string_view::npos &&
           !line.ends_with("...");
  }

  // Lines may have got spaces at their ends where a citation was: the page as a whole has none.
  static void strip_tail(std::size_t begin, const Unicode& unicode, std::string& out) {
    const auto page = std::string_view(out).substr(begin);
    const auto left = page.size() - unicode.strip_left(page).size();
    out.resize(out.size() - (page.size() - unicode.strip_right(page).size()));
    if (out.size() > begin) out.erase(begin, left);
  }
};

}  // namespace millstream
