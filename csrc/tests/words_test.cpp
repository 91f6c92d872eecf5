// tests/words_test.cpp: characters, words, lines and sentences of valid and broken UTF-8.
#include "core/text/words.h"

#include <string>
#include <vector>

#include "check.h"
#include "random.h"

using namespace millstream;

namespace {

const Unicode unicode;

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> out;
  for_each_word(text, unicode, [&](const Word& word) { return out.emplace_back(word.bytes), true; });
  return out;
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> out;
  for_each_line(text, unicode, [&](std::string_view line) { return out.emplace_back(line), true; });
  return out;
}

using Strings = std::vector<std::string>;

void words_are_runs_of_one_kind() {
  CHECK(words_of("") == Strings{});
  CHECK(words_of("Don't stop...") == (Strings{"Don't", "stop", "..."}));
  CHECK(words_of("a.b. 'c' --d") == (Strings{"a.b", ".", "'", "c", "'", "--", "d"}));
  CHECK(words_of("caf\u00e9\u3000\u6570\u636e, x_1") == (Strings{"caf\u00e9", "\u6570\u636e", ",", "x_1"}));
}

void a_word_knows_its_characters() {
  for_each_word("\u00e9t\u00e9", unicode, [](const Word& word) {
    CHECK(word.characters == 3 && word.has_letter && !word.is_symbol);
    return false;
  });
  for_each_word("__", unicode, [](const Word& word) {
    CHECK(word.characters == 2 && !word.has_letter && word.is_symbol);
    return false;
  });
}

void lines_end_as_in_python() {
  CHECK(lines_of("") == Strings{});
  CHECK(lines_of("a\r\nb\rc\n\nd\u2028e\x0c\u0085") == (Strings{"a", "b", "c", "", "d", "e", ""}));
  CHECK(lines_of("\u00e2\u20acx\n") == (Strings{"\u00e2\u20acx"}));
}

void sentences_end_before_a_space() {
  CHECK(count_sentences("", unicode) == 1);
  CHECK(count_sentences("One. Two! \"Three?\" four", unicode) == 4);
  CHECK(count_sentences("3.14 is no end", unicode) == 1);
}

void spaces_are_stripped_on_both_sides() {
  CHECK(unicode.strip("\u3000 a b\u00a0\n") == "a b");
  CHECK(unicode.strip(" \u2003\t").empty());
}

void broken_bytes_stay_inside_the_text() {
  Random random;
  for (int round = 0; round < 2000; ++round) {
    std::string text(random.below(20), ' ');
    for (char& byte : text) byte = static_cast<char>(random.chance(2) ? random.below(256) : 0xC0 + random.below(64));
    const std::string copy(text);  // an exact allocation: a read past its end is seen
    std::size_t bytes = 0;
    for_each_word(copy, unicode, [&](const Word& word) { return bytes += word.bytes.size(), true; });
    CHECK(bytes <= copy.size());
    (void)lines_of(copy);
    (void)count_sentences(copy, unicode);
    (void)unicode.strip(copy);
  }
}

}  // namespace

int main() {
  words_are_runs_of_one_kind();
  a_word_knows_its_characters();
  lines_end_as_in_python();
  sentences_end_before_a_space();
  spaces_are_stripped_on_both_sides();
  broken_bytes_stay_inside_the_text();
}
