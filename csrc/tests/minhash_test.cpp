// tests/minhash_test.cpp: folding, phrases, and keys that similar texts share.
#include "core/filter/minhash.h"

#include <cmath>
#include <string>

#include "check.h"
#include "core/filter/phrases.h"
#include "random.h"

using namespace millstream;

namespace {

const Unicode unicode;

std::string folded(std::string_view text) {
  std::string out;
  append_folded(text, unicode, out);
  return out;
}

// `count` words drawn from a large vocabulary.
std::string page(Random& random, std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) out += "w" + std::string(1, static_cast<char>('a' + random.below(26))) +
                                                 std::string(1, static_cast<char>('a' + random.below(26))) + "x ";
  return out;
}

void folding_keeps_words_only() {
  CHECK(folded("Das Caf\u00e9, 1.250 G\u00e4ste_") == "das cafe 0 0 gaste");
  CHECK(folded("a\u0301 \u0416 x1\u03012") == "a \u0436 x0");
  CHECK(folded(" ... \u0301").empty());
}

void keys_depend_on_folded_words_alone() {
  MinHash minhash(5, 14, 8, 1);
  std::vector<std::uint64_t> one(14), other(14);
  minhash.keys("One, two: THREE four five six seven", one.data());
  minhash.keys("one two three four  five six... seven", other.data());
  CHECK(one == other);
  minhash.keys("...", one.data());
  minhash.keys("!!!", other.data());
  CHECK(one != other);
}

// The share of equal minima estimates the Jaccard similarity, with the deviation that theory gives it.
void equal_minima_estimate_similarity() {
  Random random;
  MinHash minhash(1, 64, 16, 7);
  double error = 0;
  for (int round = 0; round < 40; ++round) {
    std::string shared, one, other;
    const auto word = [&] { return " w" + std::to_string(random.word()).insert(0, "q") + "e"; };
    const auto letters = [&](std::string text) {
      for (char& c : text)
        if (c >= '0' && c <= '9') c = static_cast<char>('a' + (c - '0'));
      return text;
    };
    for (int i = 0; i < 100; ++i) shared += letters(word());
    for (int i = 0; i < 50; ++i) one += letters(word()), other += letters(word());
    const auto first = minhash.sign(shared + one);
    const auto second = minhash.sign(shared + other);
    std::size_t equal = 0;
    for (std::size_t i = 0; i < first.size(); ++i) equal += first[i] == second[i];
    error += static_cast<double>(equal) / static_cast<double>(first.size()) - 0.5;
  }
  CHECK(std::abs(error / 40) < 0.02);
}

void phrases_are_found_by_words() {
  PhraseIndex index;
  CHECK(index.add("Secret  Word", 0, 3) == 1);
  CHECK(index.add("one two three four", 3, 1) == 2);
  CHECK(index.add("too short", 3, 0) == 0);
  CHECK(index.size() == 3);
  CHECK(index.find("the SECRET, word!") == 3);
  CHECK(index.find("secretword") == PhraseIndex::none);
  CHECK(index.find("a secret word: two three four") == 1);
  CHECK(index.find("") == PhraseIndex::none);
}

void an_index_grows() {
  Random random;
  PhraseIndex index;
  const std::string text = page(random, 5000);
  CHECK(index.add(text, 3, 5) == 4998);
  CHECK(index.find(text.substr(2000, 100)) == 5);
}

void impossible_settings_are_refused() {
  CHECK_THROWS(MinHash(0, 1, 1, 0), std::invalid_argument);
  CHECK_THROWS(MinHash(1, 0, 1, 0), std::invalid_argument);
}

}  // namespace

int main() {
  folding_keeps_words_only();
  keys_depend_on_folded_words_alone();
  equal_minima_estimate_similarity();
  phrases_are_found_by_words();
  an_index_grows();
  impossible_settings_are_refused();
}
