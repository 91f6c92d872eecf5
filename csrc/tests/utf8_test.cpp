// tests/utf8_test.cpp: every scalar value is valid, and nothing else is.
#include "core/text/utf8.h"

#include <vector>

#include "check.h"

using namespace millstream;

namespace {

using Text = std::vector<std::uint8_t>;

void append(Text& text, std::uint32_t code) {
  std::uint8_t bytes[4];
  text.insert(text.end(), bytes, bytes + encode_utf8(code, bytes));
}

bool valid(const Text& text) { return is_utf8(text.data(), text.size()); }

void every_character_is_valid_and_every_cut_of_one_is_not() {
  for (std::uint32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    Text text;
    append(text, code);
    CHECK(valid(text));
    if (text.size() == 1) continue;
    Text cut(text.begin(), text.end() - 1), tail(text.begin() + 1, text.end());
    CHECK(!valid(cut) && !valid(tail));
  }
}

void all_short_byte_strings_are_judged_as_the_definition_says() {
  for (std::uint32_t lead = 0xC0; lead < 0x100; ++lead)
    for (std::uint32_t second = 0; second < 0x100; ++second)
      for (const std::uint32_t rest : {0x7Fu, 0x80u, 0xBFu, 0xC0u}) {
        const auto byte = [](std::uint32_t value) { return static_cast<std::uint8_t>(value); };
        const Text text{byte(lead), byte(second), byte(rest), byte(rest)};
        // Decode without any check, encode again, and compare: only the shortest form of a scalar value comes back.
        bool expected = false;
        const std::size_t size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
        if (lead < 0xF8) {
          std::uint32_t code = lead & (0x7Fu >> size);
          bool tails = true;
          for (std::size_t i = 1; i < size; ++i) code = code << 6 | (text[i] & 0x3F), tails = tails && (text[i] & 0xC0) == 0x80;
          Text again;
          if (tails && code < 0x110000 && !(code >= 0xD800 && code < 0xE000)) {
            append(again, code);
            expected = again == Text(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(size));
          }
        }
        CHECK(is_utf8(text.data(), size) == expected);
      }
}

void the_place_of_the_first_wrong_byte_is_found_at_every_distance() {
  for (std::size_t size = 1; size < 100; ++size)
    for (std::size_t place = 0; place < size; ++place) {
      Text text(size, 'a');
      text[place] = 0xFF;
      CHECK(valid_utf8_prefix(text.data(), size) == place);
    }
}

}  // namespace

int main() {
  every_character_is_valid_and_every_cut_of_one_is_not();
  all_short_byte_strings_are_judged_as_the_definition_says();
  the_place_of_the_first_wrong_byte_is_found_at_every_distance();
}
