// tests/quality_test.cpp: the rules at their limits, and on bytes that are no text.
#include "core/filter/quality.h"

#include <limits>
#include <string>

#include "check.h"
#include "core/filter/c4.h"
#include "core/filter/repetition.h"
#include "core/text/clean.h"
#include "random.h"

using namespace millstream;

namespace {

const Unicode unicode;
constexpr double off = std::numeric_limits<double>::infinity();

GopherQuality lenient() { return {-off, off, -off, off, off, off, off, -off, 0, {}}; }
GopherRepetition patient() { return {off, off, off, off, {}, {}}; }
const C4Quality c4{1000, 3, 2, true, true, true, true, true, true};

std::string repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

void limits_are_inclusive() {
  auto rule = lenient();
  rule.min_words = 3;
  CHECK(rule.judge("one two three", unicode) == 0);
  CHECK(rule.judge("one two ...", unicode) == 1);
  rule = lenient();
  rule.max_symbol_ratio = 0.5;
  CHECK(rule.judge("# a", unicode) == 0);
  CHECK(rule.judge("## a", unicode) == 5);
}

void stop_words_count_once() {
  auto rule = lenient();
  rule.stop_words = {"the", "of"};
  rule.min_stop_words = 2;
  CHECK(rule.judge("the the the", unicode) == 10);
  CHECK(rule.judge("the end of it", unicode) == 0);
}

void an_empty_text_divides_by_nothing() {
  CHECK(lenient().judge("", unicode) == 0);
  GopherRepetition::Scratch scratch;
  CHECK(patient().judge("", unicode, scratch) == 1);
}

void a_tally_forgets_between_rounds() {
  Tally tally;
  Random random;
  for (std::size_t round = 0; round < 1000; ++round) {
    const std::size_t most = random.between(1, 50);
    tally.reset(most);
    for (std::size_t hash = 0; hash < most; ++hash) CHECK(tally.add(hash, hash + round).count == 1);
    for (std::size_t hash = 0; hash < most; ++hash) {
      const auto& slot = tally.add(hash, 0);
      CHECK(slot.count == 2 && slot.first == hash + round);
    }
  }
}

void the_most_frequent_pair_is_weighed() {
  auto rule = patient();
  rule.top = {{2, 0.5}};
  GopherRepetition::Scratch scratch;
  CHECK(rule.judge("a b a b a b", unicode, scratch) == GopherRepetition::fixed_reasons);
  CHECK(rule.judge("a b c d e f", unicode, scratch) == 0);
}

void repeated_runs_are_compared_without_spaces() {
  auto rule = patient();
  rule.repeated = {{2, 0.1}};
  GopherRepetition::Scratch scratch;
  CHECK(rule.judge("ab c, a bc!", unicode, scratch) == GopherRepetition::fixed_reasons);
  CHECK(rule.judge("ab c, a bd!", unicode, scratch) == 0);
}

void lines_that_are_no_prose_are_left_out() {
  C4Quality::Scratch scratch;
  std::string out = "before ";
  std::size_t left_out[C4Quality::line_reasons] = {};
  const auto text = "This is a line[1].\nMenu\nWe use cookies on this site.\nAnd one more line.\n";
  CHECK(c4.judge(text, unicode, scratch, out, left_out) == 0);
  CHECK(out == "before This is a line.\nAnd one more line.");
  CHECK(left_out[1] == 1 && left_out[4] == 1);
}

void a_dropped_page_leaves_nothing() {
  C4Quality::Scratch scratch;
  std::string out = "before";
  std::size_t left_out[C4Quality::line_reasons] = {};
  CHECK(c4.judge("A good line here.\nThen { a bracket here.", unicode, scratch, out, left_out) == 2);
  CHECK(out == "before");
}

void spaces_are_put_in_order() {
  std::string out;
  Clean{true, true, true}.append("\ufeff a \t b\r\n \r\n\r\nc\x0c\x07" "d  ", unicode, out);
  CHECK(out == "a b\n\nc\nd");
}

void any_bytes_are_survived() {
  Random random;
  GopherRepetition::Scratch scratch;
  C4Quality::Scratch lines;
  Tally seen;
  auto rule = patient();
  rule.top = {{2, off}, {4, off}};
  rule.repeated = {{5, off}, {10, off}};
  const FineWebQuality fineweb{-off, false, off, 30, off, off, {}};
  for (int round = 0; round < 2000; ++round) {
    std::string text(random.below(200), ' ');
    for (char& byte : text) byte = static_cast<char>(random.chance(3) ? random.below(256) : "ab. \n[{"[random.below(7)]);
    const std::string copy(text);
    std::string out;
    std::size_t left_out[C4Quality::line_reasons] = {};
    (void)lenient().judge(copy, unicode);
    CHECK(copy.empty() || rule.judge(copy, unicode, scratch) == 0);
    (void)fineweb.judge(copy, unicode, seen);
    (void)c4.judge(copy, unicode, lines, out, left_out);
    CHECK(out.size() <= copy.size());
    (void)traits_of(copy);
  }
}

void long_texts_take_linear_time() {
  auto rule = patient();
  rule.repeated = {{5, 0.1}};
  GopherRepetition::Scratch scratch;
  CHECK(rule.judge(repeated("a b c d e f g ", 200'000), unicode, scratch) == GopherRepetition::fixed_reasons);
  CHECK(patient().judge(std::string(5'000'000, ' '), unicode, scratch) == 0);
  CHECK(patient().judge(std::string(5'000'000, 'a'), unicode, scratch) == 0);
}

}  // namespace

int main() {
  a_tally_forgets_between_rounds();
  limits_are_inclusive();
  stop_words_count_once();
  an_empty_text_divides_by_nothing();
  the_most_frequent_pair_is_weighed();
  repeated_runs_are_compared_without_spaces();
  lines_that_are_no_prose_are_left_out();
  a_dropped_page_leaves_nothing();
  spaces_are_put_in_order();
  any_bytes_are_survived();
  long_texts_take_linear_time();
}
