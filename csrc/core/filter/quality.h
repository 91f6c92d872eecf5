// core/filter/quality.h: the quality rules of Gopher and FineWeb: text -> the first rule that it breaks, or 0.
//
// Definitions and order of the rules are those of the public implementations that the papers' thresholds are used with.
// A limit that is switched off is infinite.
#pragma once

#include <algorithm>
#include <cstring>
#include <unordered_set>
#include <vector>

#include "core/filter/counts.h"
#include "core/kernels/hash.h"
#include "core/text/words.h"

namespace millstream {

// part / whole; 0 of 0 is 0, so that an empty text breaks no limit by a division.
inline double share(std::size_t part, std::size_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

inline std::size_t count_bytes(std::string_view text, char byte) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), byte));
}

inline std::uint64_t hash_of(std::string_view text) { return xxh64(std::as_bytes(std::span(text.data(), text.size()))); }

inline constexpr const char* gopher_quality_reasons[] = {
    "",
    "too few words",
    "too many words",
    "words too short",
    "words too long",
    "too many hash signs",
    "too many ellipses",
    "too many bullet lines",
    "too many lines ending in an ellipsis",
    "too few words with letters",
    "too few stop words",
};

struct GopherQuality {
  double min_words, max_words;
  double min_mean_word_length, max_mean_word_length;
  double max_symbol_ratio;
  double max_bullet_lines, max_ellipsis_lines;
  double min_alphabetic_words;
  std::size_t min_stop_words;
  std::unordered_set<std::string_view> stop_words;

  std::uint8_t judge(std::string_view text, const Unicode& unicode) const {
    const Counts counts = count(text, unicode);
    const auto plain = static_cast<double>(counts.plain_words);
    if (plain < min_words) return 1;
    if (plain > max_words) return 2;
    const double mean_length = share(counts.plain_characters, counts.plain_words);
    if (mean_length < min_mean_word_length && counts.plain_words > 0) return 3;
    if (mean_length > max_mean_word_length) return 4;
    if (share(count_bytes(text, '#'), counts.words) > max_symbol_ratio) return 5;
    if (share(count_ellipses(text), counts.words) > max_symbol_ratio) return 6;
    const Lines lines = look_at_lines(text, unicode);
    if (share(lines.bullets, lines.all) > max_bullet_lines) return 7;
    if (share(lines.ellipses, lines.all) > max_ellipsis_lines) return 8;
    if (share(counts.alphabetic, counts.words) < min_alphabetic_words && counts.words > 0) return 9;
    return counts.stop_words < min_stop_words ? 10 : 0;
  }

 private:
  struct Counts {
    std::size_t words = 0, plain_words = 0, plain_characters = 0, alphabetic = 0, stop_words = 0;
  };
  struct Lines {
    std::size_t all = 0, bullets = 0, ellipses = 0;
  };

  Counts count(std::string_view text, const Unicode& unicode) const {
    Counts counts;
    std::vector<std::string_view> found;  // at most min_stop_words of them
    std::size_t longest = 0;
    for (const auto each : stop_words) longest = std::max(longest, each.size());
    for_each_word(text, unicode, [&](const Word& word) {
      ++counts.words;
      counts.alphabetic += word.has_letter;
      if (!word.is_symbol) {
        ++counts.plain_words;
        counts.plain_characters += word.characters;
      }
      if (found.size() < min_stop_words && word.bytes.size() <= longest && stop_words.contains(word.bytes) &&
          std::find(found.begin(), found.end(), word.bytes) == found.end())
        found.push_back(word.bytes);
      return true;
    });
    counts.stop_words = found.size();
    return counts;
  }

  static bool ends_in_ellipsis(std::string_view line) { return line.ends_with("...") || line.ends_with("…"); }

  static std::size_t count_ellipses(std::string_view text) {
    std::size_t count = 0;
    for (std::size_t at = 0; (at = text.find('.', at)) != text.npos;) {
      const bool three = text.substr(at, 3) == "...";
      count += three;
      at += three ? 3 : 1;
    }
    for (std::size_t at = 0; (at = text.find('\xE2', at)) != text.npos; ++at) count += text.substr(at, 3) == "…";
    return count;
  }

  static Lines look_at_lines(std::string_view text, const Unicode& unicode) {
    Lines lines;
    for_each_line(text, unicode, [&](std::string_view line) {
      ++lines.all;
      const auto left = unicode.strip_left(line);
      lines.bullets += left.starts_with("•") || left.starts_with("-");
      lines.ellipses += ends_in_ellipsis(unicode.strip_right(line));
      return true;
    });
    return lines;
  }
};

inline constexpr const char* fineweb_quality_reasons[] = {
    "", "empty", "too few lines ending in punctuation", "too many short lines", "too many repeated lines", "a list",
};

struct FineWebQuality {
  double min_punctuated_lines;
  bool keep_if_none_punctuated;
  double max_short_lines;
  std::size_t short_line_characters;
  double max_repeated_characters;
  double max_newlines_per_word;
  std::vector<char32_t> line_ends;  // none: everything that ends a sentence

  std::uint8_t judge(std::string_view text, const Unicode& unicode, Tally& seen) const {
    const std::size_t newlines = count_bytes(text, '\n');
    const Lines lines = look_at_lines(text, newlines, unicode, seen);
    if (lines.all == 0) return 1;
    const double punctuated = share(lines.punctuated, lines.all);
    if (punctuated < min_punctuated_lines && !(keep_if_none_punctuated && lines.punctuated == 0)) return 2;
    if (share(lines.short_ones, lines.all) > max_short_lines) return 3;
    if (share(lines.repeated_characters, count_characters(text) - newlines) > max_repeated_characters) return 4;
    return share(newlines, count_words(text, unicode)) > max_newlines_per_word ? 5 : 0;
  }

 private:
  struct Lines {
    std::size_t all = 0, punctuated = 0, short_ones = 0, repeated_characters = 0;
  };

  bool ends_line(char32_t code, const Unicode& unicode) const {
    if (line_ends.empty()) return unicode.is(code, is_terminal);
    return std::find(line_ends.begin(), line_ends.end(), code) != line_ends.end();
  }

  Lines look_at_lines(std::string_view text, std::size_t newlines, const Unicode& unicode, Tally& seen) const {
    Lines lines;
    seen.reset(newlines + 1);
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      const auto line = text.substr(begin, end - begin);
      begin = end + 1;
      if (unicode.strip_left(line).empty()) continue;
      const std::size_t characters = count_characters(line);
      ++lines.all;
      lines.punctuated += ends_line(last_of(line).code, unicode);
      lines.short_ones += characters <= short_line_characters;
      if (seen.add(hash_of(line), 0).count > 1) lines.repeated_characters += characters;
    }
    return lines;
  }
};

}  // namespace millstream
