// tests/lines_test.cpp: pieces between separators are those of a plain split from the front.
#include "core/parse/lines.h"

#include "check.h"
#include "raw.h"

using namespace millstream;

namespace {

std::vector<std::string> plain_split(std::string_view text, std::string_view separator) {
  std::vector<std::string> pieces;
  while (!text.empty()) {
    const auto at = text.find(separator);
    pieces.emplace_back(text.substr(0, at));
    text = at == text.npos ? "" : text.substr(at + separator.size());
  }
  return pieces;
}

void noise_is_split_as_from_the_front() {
  Random random;
  for (int round = 0; round < 100'000; ++round) {
    const std::string text = noise(random, {"a", "b", "\n", "\r", "aab", "\xc3\xa9", "\xff"}, 20);
    const std::string separator = noise(random, {"a", "b", "\n"}, 3) + "a";
    const Exact exact(text);
    const Columns columns = parse_lines(exact.bytes(), separator, false);
    const auto pieces = plain_split(text, separator);
    CHECK(is_sound(columns, exact.bytes()));
    CHECK(columns.row_count == static_cast<std::int64_t>(pieces.size()));
    for (std::size_t i = 0; i < columns.rows.size(); ++i)
      CHECK(text_of(columns, i) == pieces[static_cast<std::size_t>(columns.rows[i])]);
    const std::size_t cut = cut_separated(exact.bytes(), separator);
    CHECK(plain_split(text.substr(cut), separator).size() + plain_split(text.substr(0, cut), separator).size() == pieces.size());
  }
}

void carriage_returns_are_trimmed_when_asked() {
  const Columns columns = parse_lines(Exact("a\r\n\r\nb\r").bytes(), "\n", true);
  CHECK(columns.row_count == 3 && columns.empty == 1);
  CHECK(text_of(columns, 0) == "a" && text_of(columns, 1) == "b");
  CHECK(columns.stops[1] == 6);
}

}  // namespace

int main() {
  noise_is_split_as_from_the_front();
  carriage_returns_are_trimmed_when_asked();
}
