// bind/text.cpp: words, counts and clean texts for millstream.records.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bind/texts.h"
#include "core/text/clean.h"
#include "core/text/fold.h"
#include "core/text/words.h"

using namespace nb::literals;
using namespace millstream;

void register_text(nb::module_& m) {
  m.attr("unicode_version") = unicode_version;
  m.def("words", [](std::string_view text) {
    std::vector<std::string> out;
    for_each_word(text, Unicode{}, [&](const Word& word) { return out.emplace_back(word.bytes), true; });
    return out;
  }, "text"_a, "The words of a text, as the rules count them.");
  m.def("fold", [](std::string_view text) {
    std::string out;
    append_folded(text, Unicode{}, out);
    return out;
  }, "text"_a, "A text as it is compared with others: words only, lower case, no diacritics, every number 0.");
  m.def("count_words", [](const Texts& text, const Ends& ends, Array<std::int64_t> out) {
    need(out.size() == ends.size(), "one place per text");
    for_each_text(text, ends, [&, unicode = Unicode{}](std::size_t i, std::string_view each) {
      out(i) = static_cast<std::int64_t>(count_words(each, unicode));
    });
  }, "text"_a, "ends"_a, "out"_a, "Put the number of words of each text into `out`.");
  m.def("count_characters", [](const Texts& text, const Ends& ends, Array<std::int64_t> out) {
    need(out.size() == ends.size(), "one place per text");
    for_each_text(text, ends, [&](std::size_t i, std::string_view each) {
      out(i) = static_cast<std::int64_t>(count_characters(each));
    });
  }, "text"_a, "ends"_a, "out"_a, "Put the number of characters of each text into `out`.");
  m.attr("BEYOND_ASCII") = static_cast<int>(beyond_ascii);
  m.attr("HAS_ADDRESS_SIGN") = static_cast<int>(has_address_sign);
  m.attr("HAS_DOTTED_NUMBERS") = static_cast<int>(has_dotted_numbers);
  m.attr("HAS_LONG_NUMBER") = static_cast<int>(has_long_number);
  m.def("find_traits", [](const Texts& text, const Ends& ends, Array<std::uint8_t> out) {
    need(out.size() == ends.size(), "one place per text");
    for_each_text(text, ends, [&](std::size_t i, std::string_view each) { out(i) = traits_of(each); });
  }, "text"_a, "ends"_a, "out"_a, "Put what a text may contain into `out`: a sum of the constants above.");
  m.def("clean", [](const Texts& text, const Ends& ends, bool controls, bool line_ends, bool whitespace,
                    Array<std::int64_t> out_ends) {
    need(out_ends.size() == ends.size(), "one place per text");
    std::string out;
    out.reserve(text.size());
    const Clean clean{controls, line_ends, whitespace};
    for_each_text(text, ends, [&, unicode = Unicode{}](std::size_t i, std::string_view each) {
      clean.append(each, unicode, out);
      out_ends(i) = static_cast<std::int64_t>(out.size());
    });
    return bytes_of(out);
  }, "text"_a, "ends"_a, "controls"_a, "line_ends"_a, "whitespace"_a, "out_ends"_a, "Clean texts, end to end.");
}
