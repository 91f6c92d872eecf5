// tests/json_array_test.cpp: commas between elements are found whatever strings and brackets hold, from any such comma on.
#include "core/parse/json_array.h"

#include <algorithm>

#include "check.h"
#include "raw.h"

using namespace millstream;

namespace {

std::string lines_of(std::string_view text, ArrayScan& scan) {
  const Exact exact{std::string(text)};
  std::string out(text.size(), '?');
  scan = array_lines(exact.bytes(), reinterpret_cast<std::uint8_t*>(out.data()));
  return out.substr(0, scan.stop ? scan.stop - 1 : out.size());
}

std::string element(Random& random) {
  std::string inside = noise(random, {"a", "{", "}", "[", "]", ",", "\\\"", "\\\\", "\\n"}, 8);
  std::string text = "{\"" + inside + "\":\n[1, {\"b\": \"" + noise(random, {",", "]", "}", "\\\""}, 5) + "\"}]}";
  return noise(random, {" ", "\n", "\t"}, 3) + text + noise(random, {" ", "\n"}, 3);
}

void elements_become_lines_at_their_places() {
  Random random;
  for (int round = 0; round < 20'000; ++round) {
    const std::string one = element(random), two = element(random), three = element(random);
    const std::string text = one + "," + two + "," + three + "] \n";
    ArrayScan scan;
    const std::string lines = lines_of(text, scan);
    const auto flat = [](std::string said) {
      std::replace(said.begin(), said.end(), '\n', ' ');
      return said;
    };
    CHECK(lines == flat(one) + "\n" + flat(two) + "\n" + flat(three));
    CHECK(scan.stop == text.size() - 2 && scan.whole == one.size() + two.size() + 2 && !scan.open);
    for (std::size_t size = 0; size < text.size(); ++size) {
      const ArrayScan part = cut_array(Exact(text.substr(0, size)).bytes());
      const std::size_t whole = size > one.size() + two.size() + 1 ? one.size() + two.size() + 2 : size > one.size() ? one.size() + 1 : 0;
      CHECK(part.whole == whole);
    }
  }
}

void what_is_cut_off_is_open() {
  ArrayScan scan;
  for (const char* text : {"{\"a\": 1", "\"a", "\"a\\", "[1, 2", "1, {\"a\": \"}\""}) {
    lines_of(text, scan);
    CHECK(scan.open && scan.stop == 0);
  }
  for (const char* text : {"", " ", "{\"a\": 1}", "1, 2,", "\"a\\\\\""}) {
    lines_of(text, scan);
    CHECK(!scan.open && scan.stop == 0);
  }
}

void a_line_end_inside_a_string_stays_an_error() {
  ArrayScan scan;
  CHECK(lines_of("\"a\nb\"\n]", scan) == "\"a\x1f" "b\" ");
}

}  // namespace

int main() {
  elements_become_lines_at_their_places();
  what_is_cut_off_is_open();
  a_line_end_inside_a_string_stays_an_error();
}
