// bind/filter.cpp: rules, keys and phrases for millstream.records.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <iterator>

#include "bind/texts.h"
#include "core/filter/c4.h"
#include "core/filter/minhash.h"
#include "core/filter/phrases.h"
#include "core/filter/quality.h"
#include "core/filter/repetition.h"

using namespace nb::literals;
using namespace millstream;

namespace {

void bind_rules(nb::module_& m) {
  m.def("c4_reasons", [] { return Names(std::begin(c4_reasons), std::end(c4_reasons)); });
  m.def("c4_line_reasons", [] { return Names(std::begin(c4_line_reasons), std::end(c4_line_reasons)); });
  m.def("gopher_quality_reasons", [] { return Names(std::begin(gopher_quality_reasons), std::end(gopher_quality_reasons)); });
  m.def("gopher_repetition_reasons", [] { return Names(std::begin(gopher_repetition_reasons), std::end(gopher_repetition_reasons)); });
  m.def("fineweb_quality_reasons", [] { return Names(std::begin(fineweb_quality_reasons), std::end(fineweb_quality_reasons)); });

  m.def("c4_quality", [](const Texts& text, const Ends& ends, std::size_t max_word_characters,
                         std::size_t min_words_per_line, std::ptrdiff_t min_sentences, bool remove_citations,
                         bool need_punctuation, bool no_lorem_ipsum, bool no_javascript, bool no_curly_bracket,
                         bool no_policy, Array<std::uint8_t> verdicts, Array<std::int64_t> out_ends,
                         Array<std::uint64_t> left_out) {
    need(verdicts.size() == ends.size() && out_ends.size() == ends.size(), "one place per text");
    need(left_out.size() == C4Quality::line_reasons, "one place per reason");
    const C4Quality rule{max_word_characters, min_words_per_line, min_sentences, remove_citations, need_punctuation,
                         no_lorem_ipsum,      no_javascript,      no_curly_bracket, no_policy};
    C4Quality::Scratch scratch;
    std::string out;
    out.reserve(text.size());
    for_each_text(text, ends, [&, unicode = Unicode{}](std::size_t i, std::string_view each) {
      std::size_t lines[C4Quality::line_reasons] = {};
      verdicts(i) = rule.judge(each, unicode, scratch, out, lines);
      out_ends(i) = static_cast<std::int64_t>(out.size());
      if (verdicts(i) != 0) return;  // a dropped page is counted as a page
      for (std::size_t reason = 0; reason < std::size(lines); ++reason) left_out(reason) += lines[reason];
    });
    return bytes_of(out);
  }, "text"_a, "ends"_a, nb::kw_only(), "max_word_characters"_a, "min_words_per_line"_a, "min_sentences"_a,
     "remove_citations"_a, "need_punctuation"_a, "no_lorem_ipsum"_a, "no_javascript"_a, "no_curly_bracket"_a,
     "no_policy"_a, "verdicts"_a, "out_ends"_a, "left_out"_a,
     "C4's rules: a verdict per text, the lines that are kept end to end, and how many are left out for which reason.");

  m.def("gopher_quality", [](const Texts& text, const Ends& ends, double min_words, double max_words,
                             double min_mean_word_length, double max_mean_word_length, double max_symbol_ratio,
                             double max_bullet_lines, double max_ellipsis_lines, double min_alphabetic_words,
                             std::size_t min_stop_words, const std::vector<std::string>& stop_words,
                             Array<std::uint8_t> verdicts) {
    need(verdicts.size() == ends.size(), "one place per text");
    const GopherQuality rule{min_words,          max_words,            min_mean_word_length, max_mean_word_length,
                             max_symbol_ratio,   max_bullet_lines,     max_ellipsis_lines,   min_alphabetic_words,
                             min_stop_words,     {stop_words.begin(), stop_words.end()}};
    for_each_text(text, ends, [&, unicode = Unicode{}](std::size_t i, std::string_view each) {
      verdicts(i) = rule.judge(each, unicode);
    });
  }, "text"_a, "ends"_a, nb::kw_only(), "min_words"_a, "max_words"_a, "min_mean_word_length"_a,
     "max_mean_word_length"_a, "max_symbol_ratio"_a, "max_bullet_lines"_a, "max_ellipsis_lines"_a,
     "min_alphabetic_words"_a, "min_stop_words"_a, "stop_words"_a, "verdicts"_a, "Gopher's quality rules.");

  using Limits = std::vector<std::pair<std::size_t, double>>;
  m.def("gopher_repetition", [](const Texts& text, const Ends& ends, double max_repeated_paragraphs,
                                double max_repeated_paragraph_characters, double max_repeated_lines,
                                double max_repeated_line_characters, const Limits& top_n_grams,
                                const Limits& repeated_n_grams, Array<std::uint8_t> verdicts) {
    need(verdicts.size() == ends.size(), "one place per text");
    GopherRepetition rule{max_repeated_paragraphs, max_repeated_paragraph_characters, max_repeated_lines,
                          max_repeated_line_characters, {}, {}};
    for (const auto& [n, share] : top_n_grams) rule.top.push_back({n, share});
    for (const auto& [n, share] : repeated_n_grams) rule.repeated.push_back({n, share});
    GopherRepetition::Scratch scratch;
    for_each_text(text, ends, [&, unicode = Unicode{}](std::size_t i, std::string_view each) {
      verdicts(i) = static_cast<std::uint8_t>(rule.judge(each, unicode, scratch));
    });
  }, "text"_a, "ends"_a, nb::kw_only(), "max_repeated_paragraphs"_a, "max_repeated_paragraph_characters"_a,
     "max_repeated_lines"_a, "max_repeated_line_characters"_a, "top_n_grams"_a, "repeated_n_grams"_a, "verdicts"_a,
     "Gopher's repetition rules; verdicts beyond the fixed reasons count the n-gram limits, `top_n_grams` first.");

  m.def("fineweb_quality", [](const Texts& text, const Ends& ends, double min_punctuated_lines,
                              bool keep_if_none_punctuated, double max_short_lines, std::size_t short_line_characters,
                              double max_repeated_characters, double max_newlines_per_word,
                              const std::vector<std::uint32_t>& line_ends, Array<std::uint8_t> verdicts) {
    need(verdicts.size() == ends.size(), "one place per text");
    const FineWebQuality rule{min_punctuated_lines,    keep_if_none_punctuated, max_short_lines, short_line_characters,
                              max_repeated_characters, max_newlines_per_word,   {line_ends.begin(), line_ends.end()}};
    Tally seen;
    for_each_text(text, ends, [&, unicode = Unicode{}](std::size_t i, std::string_view each) {
      verdicts(i) = rule.judge(each, unicode, seen);
    });
  }, "text"_a, "ends"_a, nb::kw_only(), "min_punctuated_lines"_a, "keep_if_none_punctuated"_a, "max_short_lines"_a,
     "short_line_characters"_a, "max_repeated_characters"_a, "max_newlines_per_word"_a, "line_ends"_a, "verdicts"_a,
     "FineWeb's quality rules.");
}

void bind_keys(nb::module_& m) {
  m.def("exact_keys", [](const Texts& text, const Ends& ends, bool folded, Array<std::uint64_t> out) {
    need(out.size() == 2 * ends.size(), "two places per text");
    std::string scratch;
    for_each_text(text, ends, [&, unicode = Unicode{}](std::size_t i, std::string_view each) {
      scratch.clear();
      if (folded) append_folded(each, unicode, scratch);
      exact_key(scratch.empty() ? each : scratch, out.data() + 2 * i);
    });
  }, "text"_a, "ends"_a, "folded"_a, "out"_a, "Two hashes per text; a text without words is compared as it is.");

  m.def("minhash_keys", [](const Texts& text, const Ends& ends, std::size_t words, std::size_t bands, std::size_t rows,
                           std::uint64_t seed, Array<std::uint64_t> out) {
    MinHash minhash(words, bands, rows, seed);
    need(out.size() == bands * ends.size(), "one place per text and band");
    for_each_text(text, ends, [&](std::size_t i, std::string_view each) { minhash.keys(each, out.data() + bands * i); });
  }, "text"_a, "ends"_a, "words"_a, "bands"_a, "rows"_a, "seed"_a, "out"_a, "One key per text and band.");

  nb::class_<PhraseIndex>(m, "PhraseIndex", "Which of many phrases a text contains, comparing folded words.")
      .def(nb::init<>())
      .def("add", [](PhraseIndex& self, std::string_view text, std::size_t words, std::int64_t label) {
        return self.add(text, words, label);
      }, "text"_a, "words"_a, "label"_a, "Add every run of so many words (0: the whole text), and say how many it has.")
      .def("__len__", &PhraseIndex::size)
      .def("find", [](const PhraseIndex& self, const Texts& text, const Ends& ends, Array<std::int64_t> out) {
        need(out.size() == ends.size(), "one place per text");
        for_each_text(text, ends, [&](std::size_t i, std::string_view each) { out(i) = self.find(each); });
      }, "text"_a, "ends"_a, "out"_a, "Put the smallest label of a phrase in each text into `out`, or -1.");
}

}  // namespace

void register_filter(nb::module_& m) {
  bind_rules(m);
  bind_keys(m);
}
